"""What no engine can give to a container is refused with its field, before anything is stored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.spec.tasks import Container
from jobs.scheduling import container_variables
from tests.unit.jobs.rules.views import pool, spec

POOL = "job_spec.worker_pool_specs[1]"


@pytest.mark.parametrize(("engine", "image", "fits"), [
    ("podman", "ghcr.io/lab/train", False),
    ("docker", "ghcr.io/lab/train", False),
    ("apptainer", "ghcr.io/lab/train", True),
    ("", "host", True),
])  # fmt: skip
def test_a_variable_that_the_engine_reads_itself_has_one_line(engine, image, fits):
    """What the host would refuse is refused here, by its name. Names that are the program's own are not meant."""
    env = (("GOOGLE_CREDENTIALS", "{\n}"), ("DOCKER_AUTH_CONFIG", "{\n}"), ("REGISTRY_AUTH_FILE", "a"))
    named = replace(pool(), task=Container(image, ("python",), env=env), runtime=engine)
    job = replace(spec(1), pools=(None, named))
    if fits:
        return container_variables.check(job, {})
    with pytest.raises(InvalidDocument) as refused:
        container_variables.check(job, {})
    (violation,) = refused.value.violations
    assert violation.field == f"{POOL}.container_spec.env"
    assert violation.description.startswith("DOCKER_AUTH_CONFIG has a line break.")
