"""The aliases of images that hold for a job: those of its location."""

from __future__ import annotations

from jobs.models import ImageAlias
from jobs.projects import locations
from jobs.rules.spec import image_aliases
from jobs.rules.spec.custom_job import CustomJobSpec
from jobs.rules.spec.image_aliases import Aliases
from jobs.rules.spec.tasks import HOST_IMAGE


def images_used(spec: CustomJobSpec, named: str) -> dict[int, str]:
    """By the number of the pool, the image that is used in place of its own. Raises InvalidDocument."""
    if all(pool is None or pool.task.image == HOST_IMAGE for pool in spec.pools):
        return {}
    location = locations.resolved(named, locations.names())
    rows = ImageAlias.objects.filter(location__name=location).order_by().values_list("name", "image")
    return image_aliases.images_used(spec, Aliases(location, dict(rows)))
