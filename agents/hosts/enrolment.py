"""Bring an added host into service: fetch its host key, have a person accept the key, check the host.

Nothing is sent to a machine whose key no person has accepted: `fetch_host_key` ends at the key exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import paramiko
from django.db import transaction

from agents.hosts import (
    checklist,
    data_address,
    host_history,
    inventory,
    login_checks,
    misbehaviour,
    offered_key,
    probe,
)
from agents.hosts.checklist import CheckItem
from agents.infra import clock
from agents.infra.refusals import Refused
from agents.infra.texts import join, said
from agents.models import Host, HostStatus
from agents.ssh import install_runner, keys
from agents.ssh.dial import (
    AuthFailed,
    Connection,
    DialError,
    HostKeyChanged,
    HostKeyUnknown,
    HostMisbehaves,
    dial,
    run_command,
)
from agents.ssh.host_keys import fingerprint
from agents.ssh.targets import Target

PROBE_TIMEOUT_S = 30.0
RECHECK = timedelta(minutes=30)
RETRY_CHECK = timedelta(minutes=1)
# A check that is lost with its process is due again after so long.
CHECK_LOST = timedelta(minutes=2)
MISBEHAVES_CURE = "Find out what answers there, and who uses the login. Then check the host again."
# A dispatcher records three times in each lease that a host answers.
HEARD_WITHIN = timedelta(seconds=20)


def no_listener() -> None:
    """Do nothing: the default for callers that do not follow a check."""


def fetch_host_key(host_id: int, now: datetime) -> str:
    """Dial as far as the key exchange and store a key that is not accepted yet.

    Returns the fingerprint of that key, or "" when no key waits to be accepted.
    """
    host = Host.objects.get(pk=host_id)
    try:
        dial(Target.of(host), keys.private_key()).close()
    except (HostKeyUnknown, HostKeyChanged) as waiting:
        if not _save_offered_key(host, waiting, now):
            return ""
        return fingerprint(waiting.offered)
    except AuthFailed as refused:
        _forget_offered_key(host, refused, now)
        return ""  # the key is the pinned one; the checklist reports the refused login
    except DialError as error:
        items = [CheckItem("Reachable", False, str(error), _unreachable_cure(host))]
        _save_checklist(host.pk, items)
        Host.every.filter(pk=host.pk).update(last_error=str(error)[:2000], due_at=now + timedelta(seconds=30))
        raise
    offered_key.forget(host, now)
    return ""


@dataclass(frozen=True, slots=True)
class AcceptedKey:
    """The fingerprints of the key that was pinned before, "" for none, and of the one that is pinned now."""

    machine: str
    before: str
    after: str


def accept_host_key(host_id: int, expected: str, actor: str, now: datetime) -> AcceptedKey:
    """Pin the offered key: a person says that it is this machine's. A check is due then. Raises Refused."""
    with transaction.atomic():
        host = Host.objects.select_for_update().get(pk=host_id)
        if not host.offered_key:
            raise Refused("fingerprint", said("No key is waiting to be accepted. Connect to the host first."))
        offered = fingerprint(host.offered_key)
        if expected.strip() != offered:
            raise Refused(
                "fingerprint",
                said(
                    "The host offers {offered} now, not {expected}. Compare again.",
                    offered=offered,
                    expected=expected.strip(),
                ),
            )
        machine = host.offered_at or host.address
        before = host.jump_keys.get(host.offered_at, "") if host.offered_at else host.pinned_key
        if host.offered_at:
            host.jump_keys = {**host.jump_keys, host.offered_at: host.offered_key}
        else:
            host.pinned_key = host.offered_key
        host.offered_key = host.offered_at = ""
        host.key_accepted_by, host.key_accepted_at = actor, now
        host.status, host.status_since = HostStatus.CHECKING, now
        host.last_error, host.due_at = "", now
        host.save()
        _accept_for_logins(host, actor, now)
        host_history.record(host.pk, "key_accepted", f"{offered} of {machine}", actor, now)
    return AcceptedKey(machine, fingerprint(before) if before else "", offered)


def _accept_for_logins(host: Host, actor: str, now: datetime) -> None:
    """The further logins of a machine have its key."""
    host.logins.filter(retired_at=None).update(
        pinned_key=host.pinned_key,
        jump_keys=host.jump_keys,
        offered_key="",
        offered_at="",
        key_accepted_by=actor,
        key_accepted_at=now,
        due_at=now,
    )


def check_host(host_id: int, now: datetime, on_change: Callable[[], None] = no_listener) -> list[CheckItem]:
    """Run the whole checklist and save it as it grows. Afterwards the host is UP only if it is usable.

    The host is not due meanwhile: else the sweep would start the same check a second time.
    """
    Host.every.filter(pk=host_id).update(due_at=now + CHECK_LOST)
    host = Host.objects.get(pk=host_id)
    items: list[CheckItem] = []
    try:
        transport = dial(Target.of(host), keys.private_key())
    except DialError as error:
        return _dial_failed(host, error, now, on_change)
    offered_key.forget(host, now)
    try:
        items = _connected_items(host)
        if not checklist.is_usable(host.checklist):
            # This shows the progress. A host in use keeps its last whole checklist until the next one is whole.
            _save_checklist(host.pk, items)
            on_change()
        items += _probe(host, transport, now)
    except HostMisbehaves as error:
        return _dial_failed(host, error, now, on_change)
    except (DialError, probe.InvalidProbe, OSError, paramiko.SSHException) as error:
        items.append(
            CheckItem(
                "Python", False, str(error)[:500], said("python3 must run for this login. See the error.")
            )
        )
    finally:
        transport.close()
    items = checklist.in_order(items)
    _finish(host, items, now)
    on_change()
    return items


@transaction.atomic
def _save_offered_key(
    host: Host, waiting: HostKeyUnknown | HostKeyChanged, now: datetime, unknown: HostStatus | None = None
) -> bool:
    """Store an offered key. False if a person has accepted it since this check began.

    The host's status goes with it, BLOCKED for a changed key and `unknown` for any other: written later, it would
    replace that of a key which a person accepts in between.
    """
    if not offered_key.store(host, waiting.at, waiting.offered, now):
        return False
    if isinstance(waiting, HostKeyChanged):
        host_history.set_status(host.pk, HostStatus.BLOCKED, _changed_text(waiting), now)
    elif unknown is not None:
        host_history.set_status(host.pk, unknown, "", now)
    return True


def _forget_offered_key(host: Host, refused: AuthFailed, now: datetime) -> None:
    """Keys come before logins: a machine that refuses the login has shown its accepted key, and so have those on the
    way to it."""
    if refused.at in ("", host.offered_at):
        offered_key.forget(host, now)


def _changed_text(changed: HostKeyChanged) -> str:
    return said(
        "The host key changed: {accepted} was accepted, {offered} is shown now. Nothing is "
        "sent until a person accepts it.",
        accepted=fingerprint(changed.pinned),
        offered=fingerprint(changed.offered),
    )


def _unreachable_cure(host: Host) -> str:
    return said(
        "From this machine, try: ssh -p {port} {login}@{address}",
        port=host.port,
        login=host.user,
        address=host.address,
    )


def _connected_items(host: Host) -> list[CheckItem]:
    return [
        CheckItem("Reachable", True, said("{address}:{port} answers.", address=host.address, port=host.port)),
        CheckItem(
            "Host key",
            True,
            said(
                "{fingerprint}, accepted by {person}",
                fingerprint=fingerprint(host.pinned_key),
                person=host.key_accepted_by,
            ),
        ),
        CheckItem("Login", True, said("as {login}", login=host.user)),
    ]


def _dial_failed(
    host: Host, error: DialError, now: datetime, on_change: Callable[[], None]
) -> list[CheckItem]:
    if isinstance(error, HostKeyUnknown | HostKeyChanged):
        return _key_offered(host, error, now, on_change)
    status = HostStatus.UNREACHABLE
    if isinstance(error, AuthFailed):
        _forget_offered_key(host, error, now)
        cure = "Put this line into ~/.ssh/authorized_keys of the login: " + keys.public_line()
        items = [*_connected_items(host)[:2], CheckItem("Login", False, str(error), cure)]
        status, error_text = HostStatus.AUTH_FAILED, str(error)
    elif isinstance(error, HostMisbehaves):
        _close(host.pk, str(error), now)
        on_change()
        return [CheckItem("Reachable", False, str(error), MISBEHAVES_CURE)]
    else:
        items = [CheckItem("Reachable", False, str(error), _unreachable_cure(host))]
        error_text = str(error)
        if _heard_lately(host.pk, now):
            # The host may be too busy for a second login. The dispatcher that holds its link knows whether it answers.
            Host.every.filter(pk=host.pk).update(due_at=now + RETRY_CHECK)
            return items
    _save_checklist(host.pk, items)
    host_history.set_status(host.pk, status, error_text, now)
    Host.every.filter(pk=host.pk).update(due_at=now + RETRY_CHECK)
    on_change()
    return items


def _key_offered(
    host: Host, error: HostKeyUnknown | HostKeyChanged, now: datetime, on_change: Callable[[], None]
) -> list[CheckItem]:
    # Waiting for a person is not an error.
    if not _save_offered_key(host, error, now, unknown=HostStatus.NEW):
        return check_host(host.pk, now, on_change)
    reached = CheckItem(
        "Reachable", True, said("{address}:{port} answers.", address=host.address, port=host.port)
    )
    text = (
        _changed_text(error) if isinstance(error, HostKeyChanged) else said("Its key waits to be accepted.")
    )
    items = [
        reached,
        CheckItem("Host key", False, text, said("Compare the fingerprint with the host's, then accept it.")),
    ]
    # Not where a person has accepted it meanwhile: then the next check is due now.
    waits = Host.every.filter(pk=host.pk, offered_key=error.offered)
    waits.update(checklist=[item.as_row() for item in items], due_at=now + RETRY_CHECK)
    on_change()
    return items


@transaction.atomic
def _close(host_id: int, why: str, now: datetime) -> None:
    host = Host.objects.select_for_update().filter(pk=host_id).first()
    if host is not None:
        misbehaviour.close(host, why, now)


def _heard_lately(host_id: int, now: datetime) -> bool:
    """Whether the host answered a dispatcher lately."""
    answering = Host.every.filter(
        status__in=(HostStatus.UP, HostStatus.CHECKING), seen_at__gte=now - HEARD_WITHIN
    )
    return answering.filter(pk=host_id).exists()


def _probe(host: Host, transport: Connection, now: datetime) -> list[CheckItem]:
    sha = install_runner.put_runner(transport)
    before = clock.now().timestamp()
    answer = run_command(transport, install_runner.command(sha, "probe"), timeout=PROBE_TIMEOUT_S)
    middle = (before + clock.now().timestamp()) / 2
    if not answer.stdout.strip():
        raise probe.InvalidProbe(
            answer.stderr.decode("utf-8", "replace").strip() or said("the probe printed nothing")
        )
    facts = probe.parse(answer.stdout, host.facts)
    offset = facts.wall - middle
    if host.machine_id is not None:
        inventory.save_login(host, facts, offset)
        host.refresh_from_db(fields=["address", "data_address", "found_address"])
        return login_checks.check(host, facts, offset)
    clashes = inventory.save_facts(host.pk, facts, offset, now)
    host.refresh_from_db(fields=["address", "data_address", "found_address"])
    address = data_address.address_for_data(host)
    judged = checklist.check_facts(facts, offset, address, inventory.missing_gpus(host.pk, facts))
    return [*(i for i in judged if not (clashes and i.name == "GPUs")), *clashes[:1]]


def _save_checklist(host_id: int, items: Sequence[CheckItem]) -> None:
    Host.every.filter(pk=host_id).update(checklist=[item.as_row() for item in items])


def _finish(host: Host, items: Sequence[CheckItem], now: datetime) -> None:
    rows = [item.as_row() for item in items]
    _save_checklist(host.pk, items)
    if misbehaviour.is_closed(Host.every.get(pk=host.pk), now):
        return  # its link was closed while it was checked
    fine = checklist.is_usable(rows)
    status = HostStatus.UP if fine else HostStatus.UNUSABLE
    host_history.set_status(host.pk, status, "" if fine else join("; ", checklist.failures(rows)), now)
    Host.every.filter(pk=host.pk).update(seen_at=now, due_at=now + _until_next(host.pk, fine, now))


def _until_next(host_id: int, fine: bool, now: datetime) -> timedelta:
    """The time until the next check. The longer a host has been wrong, the less often it is checked."""
    if fine:
        return RECHECK
    since = Host.every.values_list("status_since", flat=True).get(pk=host_id)
    return min(RECHECK, max(RETRY_CHECK, now - since))
