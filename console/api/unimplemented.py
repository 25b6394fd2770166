"""Answers for addresses that no view has: 501 for what is Google's and not ours, 404 for the rest."""

from __future__ import annotations

from typing import Any

from django.http import Http404
from rest_framework.request import Request

from console.api import errors
from console.api.views import GoogleView

VERTEX, LOGGING, STORAGE = "the Vertex AI API", "the Cloud Logging API", "the Cloud Storage API"
SERVICES = {
    ("v1",): VERTEX,
    ("v1beta1",): VERTEX,
    ("ui",): VERTEX,
    ("v2",): LOGGING,
    ("storage", "v1"): STORAGE,
    ("upload", "storage", "v1"): STORAGE,
    ("resumable", "upload", "storage", "v1"): STORAGE,
    ("download", "storage", "v1"): STORAGE,
    ("batch", "storage", "v1"): STORAGE,
}
OURS = ("customJobs", "hyperparameterTuningJobs", "trainingPipelines", "models", "operations")
MAX_SHOWN = 80
HERE = (
    "Of Google's APIs it has custom jobs (customJobs), hyperparameter tuning jobs (hyperparameterTuningJobs), training "
    "pipelines of custom tasks (trainingPipelines), the models that these leave (models), their operations, the logs "
    "of jobs (entries:list), and buckets with their objects. "
    "See docs/using.md."
)


class UnknownAddress(GoogleView):
    """An address below /api/, or below one of Google's APIs. It needs no login, because the answer reveals nothing."""

    permission_classes: list[Any] = []

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        named = google_resource(request.path)
        if named:
            raise errors.Unimplemented(f"Trainyard does not have {named}. {HERE}")
        raise Http404


def google_resource(path: str) -> str:
    """What an address asks of one of Google's APIs, in words; empty for what this API could have.

    Such an address is a list of pairs (`projects/p/locations/l/models/7`), with a verb after a colon.
    """
    parts = [part for part in path.split("/") if part]
    prefix = next((one for one in SERVICES if tuple(parts[: len(one)]) == one), None)
    if prefix is None:
        return ""
    service, rest = SERVICES[prefix], parts[len(prefix) :]
    parents = 2 * sum(
        rest[place : place + 1] == [word] for place, word in ((0, "projects"), (2, "locations"))
    )
    collection = rest[parents] if len(rest) > parents else ""
    if service == VERTEX and collection in OURS:
        return ""
    kind = collection.partition(":")[0]
    if service == STORAGE and kind == "b":
        # What belongs to a bucket or to an object, which are here.
        kind = rest[2] if len(rest) > 2 else "buckets"
    verb = path.rpartition("/")[2].partition(":")[2]
    shown = "".join(letter for letter in f"{kind}:{verb}" if letter.isalnum() or letter in ":._-").strip(":")
    return f"{shown[:MAX_SHOWN]} of {service}" if shown else service
