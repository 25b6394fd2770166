"""The network cards of the hosts that a job may use, as their checks found them: for advice about reducers."""

from __future__ import annotations

from agents.hosts.data_address import mbit
from agents.models import Host
from jobs.projects import locations
from jobs.rules.spec import reduction
from jobs.rules.spec.custom_job import CustomJobSpec
from jobs.rules.spec.reduction_advice import NO_CARDS, Cards


def of_job(spec: CustomJobSpec, location: str) -> Cards:
    """Of the hosts of this location. Only jobs with reducers ask."""
    if reduction.reducers(spec) is None:
        return NO_CARDS
    named = locations.resolved(location, locations.names())
    hosts = Host.machines.filter(location__name=named, cpus__gt=0).order_by("name")
    known = list(hosts.only("name", "facts", "address", "found_address", "data_address"))
    with_infiniband = [host.name for host in known if (host.facts.get("network") or {}).get("infiniband")]
    return Cards(tuple(sorted(filter(None, map(mbit, known)))), tuple(with_infiniband))
