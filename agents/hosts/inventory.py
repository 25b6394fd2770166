"""Store what a check found on a host: its facts and its GPUs. A GPU is in one machine at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from django.db import transaction

from agents.hosts import data_address, host_history, probe
from agents.hosts.checklist import CheckItem
from agents.infra.texts import said
from agents.models import Gpu, Host


@transaction.atomic
def save_facts(host_id: int, facts: probe.HostFacts, offset: float, now: datetime) -> list[CheckItem]:
    """Store the facts; returns a checklist item for each GPU that another host reports too.

    The boot id is left out: a changed one is evidence of a reboot, so only the holder of the lease writes it, in order.
    """
    _save_columns(host_id, facts, offset)
    if facts.gpu_error:
        return []  # the host could not list its GPUs
    return [_claimed_elsewhere(gpu) for gpu in _save_gpus(host_id, facts.gpus, now)]


def save_login(login: Host, facts: probe.HostFacts, offset: float) -> None:
    """Store the facts of a further login on a machine. The GPUs are the machine's."""
    _save_columns(login.pk, facts, offset)


def _save_columns(host_id: int, facts: probe.HostFacts, offset: float) -> None:
    dialled = Host.every.values_list("address", flat=True).get(pk=host_id)
    Host.every.filter(pk=host_id).update(
        found_address=data_address.found_address(dialled, facts.network),
        facts=json.loads(json.dumps(asdict(facts))),
        cpus=facts.cpus,
        memory_mb=facts.memory_mb,
        free_disk_mb=facts.disk.free_mb,
        clock_offset_s=offset,
    )


def _save_gpus(host_id: int, devices: Sequence[probe.Device], now: datetime) -> list[Gpu]:
    """Store the host's GPUs; returns those that another host in service reports too: one device is in one machine.

    The row of a GPU that moved follows it after a check of the old host did not list it. No host takes over a GPU only
    by reporting it.
    """
    _record_missing(host_id, [d.uuid for d in devices], now)
    others = Gpu.objects.filter(uuid__in=[d.uuid for d in devices], present=True, host__retired_at=None)
    clashes = {gpu.uuid: gpu for gpu in others.exclude(host_id=host_id).select_related("host")}
    _record_moves(host_id, [d.uuid for d in devices if d.uuid not in clashes], now)
    for device in devices:
        if device.uuid not in clashes:
            Gpu.objects.update_or_create(uuid=device.uuid, defaults=_columns(host_id, device))
    return list(clashes.values())


def _record_missing(host_id: int, uuids: Sequence[str], now: datetime) -> None:
    """Take a card that fell off its bus, needs a reset or was removed out of use until it is listed again."""
    for gpu in Gpu.objects.filter(host_id=host_id, present=True).exclude(uuid__in=uuids):
        host_history.record(
            host_id,
            "gpu_missing",
            said("{gpu} cannot be used any more.", gpu=gpu_name(gpu)),
            "trainyard",
            now,
        )
    for gpu in Gpu.objects.filter(host_id=host_id, present=False, uuid__in=uuids):
        host_history.record(
            host_id, "gpu_back", said("{gpu} can be used again.", gpu=gpu_name(gpu)), "trainyard", now
        )
    Gpu.objects.filter(host_id=host_id).exclude(uuid__in=uuids).update(present=False)


def missing_gpus(host_id: int, facts: probe.HostFacts) -> list[str]:
    """The names of the GPUs that the host neither lists any more nor reports as unusable."""
    reported = {card.uuid for card in facts.gpus_out}
    return [
        gpu_name(gpu)
        for gpu in Gpu.objects.filter(host_id=host_id, present=False)
        if gpu.uuid not in reported
    ]


def gpu_name(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.uuid})"


def _record_moves(host_id: int, uuids: Sequence[str], now: datetime) -> None:
    """Record in the histories of both hosts that a GPU moved. Its row moves with it."""
    moved = Gpu.objects.filter(uuid__in=uuids).exclude(host_id=host_id).select_related("host")
    for gpu in moved:
        host_history.record(
            gpu.host_id,
            "gpu_left",
            said("{gpu} was found in another machine.", gpu=gpu.uuid),
            "trainyard",
            now,
        )
        came = said(
            "{gpu} came from host {host} (added {date}).",
            gpu=gpu.uuid,
            host=gpu.host.name,
            date=f"{gpu.host.created_at:%Y-%m-%d}",
        )
        host_history.record(host_id, "gpu_came", came, "trainyard", now)


def _columns(host_id: int, device: probe.Device) -> dict[str, object]:
    return {
        "host_id": host_id,
        "index": device.index,
        "model": device.model,
        "memory_mb": device.memory_mb,
        "accelerator_type": device.accelerator_type,
        "present": True,
    }


def _claimed_elsewhere(gpu: Gpu) -> CheckItem:
    text = said("{gpu} is reported by host {host} too.", gpu=gpu.uuid, host=gpu.host.name)
    return CheckItem(
        "GPUs", False, text, said("Check {host} again if the GPU was moved here.", host=gpu.host.name)
    )
