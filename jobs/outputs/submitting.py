"""The bucket of a job's output directory: made with the job, where there is none yet."""

from __future__ import annotations

from datetime import datetime

from agents.infra.refusals import Refused
from agents.infra.texts import said
from jobs.artifacts import buckets
from jobs.models import Bucket, Project
from jobs.outputs.ordering import shared_directories
from jobs.rules import storage_names
from jobs.rules.spec.custom_job import CustomJobSpec
from jobs.rules.spec.output_addresses import output_addresses

FIELD = "jobSpec.baseOutputDirectory.outputUriPrefix"


def make_bucket(project: Project, spec: CustomJobSpec, location: str, actor: str, now: datetime) -> None:
    """In the transaction of the submit. Raises Refused where the project cannot have this bucket."""
    base = output_addresses(spec).base
    if base is None or shared_directories(project, location, [base.bucket]):
        return
    if problem := storage_names.bucket_problem(base.bucket):
        raise Refused(FIELD, problem)
    owner = Bucket.objects.filter(name=base.bucket).values_list("project", flat=True).first()
    if owner is None:
        buckets.create(project, base.bucket, actor, now)
    elif owner != project.pk:
        raise Refused(
            FIELD,
            said("Bucket {name} is not one of project {project}.", name=base.bucket, project=project.name),
        )
