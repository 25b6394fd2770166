"""The checklist of a further login on a machine: above all, whether it is separated from the other logins there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from django.db.models import Q

from agents.hosts import checklist, data_address
from agents.hosts.checklist import SEPARATION, CheckItem
from agents.hosts.probe import HostFacts
from agents.infra.texts import said
from agents.models import Gpu, Host

# Who is in one of these becomes root without a password.
ROOT_GROUPS = frozenset({"disk", "docker", "lxd", "incus", "incus-admin", "root", "shadow"})
# Who is in one of these may have to give a password.
ADMIN_GROUPS = frozenset({"sudo", "wheel", "admin", "libvirt"})
OTHERS_MAY_LOOK = 0o055
SHARED = (
    "Separated: environment, files in the home directory, logs, signals. Shared with all logins of the machine: /tmp, "
    "/dev/shm, the list of processes with their arguments, the network, and the GPUs: a job can use those of others "
    "on purpose, and an idle process that another login left on one is not seen before a start."
)


def check(login: Host, facts: HostFacts, clock_offset_s: float) -> list[CheckItem]:
    """All lines that need the login."""
    address = data_address.address_for_data(login)
    judged = [i for i in checklist.check_facts(facts, clock_offset_s, address) if i.name != "GPUs"]
    return [*judged, _gpus(login, facts), _separation(login, facts)]


def _gpus(login: Host, facts: HostFacts) -> CheckItem:
    wanted = set(Gpu.objects.filter(host=login.machine_id, present=True).values_list("uuid", flat=True))
    missing = wanted - {device.uuid for device in facts.gpus}
    if not missing:
        return CheckItem(
            "GPUs",
            True,
            said("sees the machine's {number} GPUs", number=len(wanted)) if wanted else said("none"),
        )
    cure = said(
        "Let {login} use /dev/nvidia* and nvidia-smi as the machine's own login may, then check again.",
        login=facts.user,
    )
    return CheckItem(
        "GPUs",
        False,
        said("does not see {number} of the machine's {all} GPUs", number=len(missing), all=len(wanted)),
        cure,
    )


def _separation(login: Host, facts: HostFacts) -> CheckItem:
    """The first thing that breaks the separation; else what is worth knowing."""
    broken = next(_broken(login, facts), None)
    if broken is not None:
        return broken
    item = CheckItem(
        SEPARATION,
        True,
        said("user id {uid}, {home}. {shared}", uid=facts.uid, home=facts.home, shared=SHARED),
    )
    if facts.uid is None:
        return CheckItem(
            SEPARATION, None, said("The runner there is too old to tell."), said("Check the host again.")
        )
    if facts.home_mode is not None and facts.home_mode & OTHERS_MAY_LOOK:
        return replace(
            item,
            ok=None,
            fix=said(
                "Others can look into {home}. As {login}: chmod 700 ~", home=facts.home, login=facts.user
            ),
        )
    if admin := sorted(ADMIN_GROUPS & set(facts.groups)):
        cure = said(
            "{login} is in the group {group}: who knows its password, or needs none, becomes root.",
            login=facts.user,
            group=admin[0],
        )
        return replace(item, ok=None, fix=cure)
    return item


def _broken(login: Host, facts: HostFacts) -> Iterator[CheckItem]:
    if facts.uid == 0:
        yield _wrong(
            said("It is root: it reads what all others have."), said("Use a login that is not root.")
        )
    for group in sorted(ROOT_GROUPS & set(facts.groups)):
        yield _wrong(
            said("It is in the group {group}: it can become root.", group=group),
            said("As root: gpasswd -d {login} {group}", login=facts.user, group=group),
        )
    for other in _others(login):
        known = other.facts
        if facts.uid is not None and known.get("uid") == facts.uid:
            yield _wrong(
                said(
                    "It has the same user id, {uid}, as {login}: each reads what the other has.",
                    uid=facts.uid,
                    login=other.user,
                ),
                said("Give {login} a user id of its own.", login=facts.user),
            )
        if facts.home and known.get("home") == facts.home:
            yield _wrong(
                said(
                    "It has the same home directory, {home}, as {login}.", home=facts.home, login=other.user
                ),
                said("Give {login} a home directory of its own.", login=facts.user),
            )


def _wrong(text: str, cure: str) -> CheckItem:
    return CheckItem(SEPARATION, False, text, cure)


def _others(login: Host) -> Iterable[Host]:
    """The machine's own login, and its other further logins."""
    rows = Host.objects.filter(Q(machine=login.machine) | Q(logins=login.pk))
    return rows.exclude(pk=login.pk).only("user", "facts").order_by("pk")
