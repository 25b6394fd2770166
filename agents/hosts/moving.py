"""A host that is reached in another way from now on: under a new address, port or login, or through other jump hosts.

The new way is tried before anything is changed: it must lead to a machine with the accepted host key. The person waits
for it, for at most a minute, in threads of their own (console/runtime/requests/waiting_requests.py).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import paramiko

from agents.hosts import probe
from agents.hosts.enrolment import PROBE_TIMEOUT_S
from agents.infra.refusals import Refused
from agents.infra.texts import said
from agents.models import Gpu, Host
from agents.ssh import install_runner, keys
from agents.ssh.deadlines import closing_at
from agents.ssh.dial import (
    AuthFailed,
    Connection,
    DialError,
    HostKeyChanged,
    HostKeyUnknown,
    dial,
    run_command,
)
from agents.ssh.host_keys import fingerprint
from agents.ssh.targets import Target, address_text

# The most jump hosts whose keys are accepted on the way to one host.
MAX_JUMPS = 8
# From the look-up of the first name to the end of the check.
WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Way:
    """How a host is reached."""

    address: str
    port: int
    user: str
    jump: str

    @classmethod
    def of(cls, host: Host) -> Way:
        return cls(host.address, host.port, host.user, host.jump)


@dataclass(frozen=True, slots=True)
class Tried:
    """What is at the end of a new way. `same`: it is known to be the machine of the row, not only one with its key."""

    jump_keys: Mapping[str, str]
    same: bool


def try_way(host: Host, way: Way, accepted: Collection[str]) -> Tried:
    """Log in by the new way. `accepted`: fingerprints of keys of new jump hosts. Raises Refused, with the field."""
    found = Host(name=host.name, address=way.address, port=way.port, user=way.user, jump=way.jump)
    found.pinned_key, found.jump_keys = host.pinned_key, dict(host.jump_keys)
    until = time.monotonic() + WITHIN_S
    transport = _dial(found, accepted, until)
    try:
        with closing_at(transport, until):
            facts = _probe(transport)
    except (DialError, probe.InvalidProbe, OSError, paramiko.SSHException) as error:
        raise _refused("address", said("The check failed there: {error}.", error=str(error)[:500])) from error
    finally:
        transport.close()
    return Tried(found.jump_keys, _is_same_machine(host, facts))


def _dial(host: Host, accepted: Collection[str], until: float) -> Connection:
    """Dial; a key of a jump host that a person has given is kept on the way."""
    for _ in range(MAX_JUMPS):
        try:
            return dial(Target.of(host), keys.private_key(), until=until)
        except HostKeyUnknown as unknown:
            if fingerprint(unknown.offered) not in accepted:
                raise Refused("jump_key", _unknown(unknown)) from unknown
            host.jump_keys = {**host.jump_keys, unknown.at: unknown.offered}
        except HostKeyChanged as changed:
            raise _refused("jump" if changed.at else "address", _changed(host, changed)) from changed
        except AuthFailed as error:
            cure = said(
                "Put this line into ~/.ssh/authorized_keys of the login: {key}",
                key=keys.public_line().strip(),
            )
            why = said("{error}. {cure}", error=error, cure=cure)
            raise _refused("jump" if error.at else "user", why) from error
        except DialError as error:
            raise _refused("jump" if error.at else "address", said("{error}.", error=error)) from error
    raise _refused("jump", said("These are too many jump hosts."))


def _unknown(unknown: HostKeyUnknown) -> str:
    return said(
        "Nothing was changed. The jump host {host} shows the key {key}, which nobody has accepted. Compare it, and "
        "give its fingerprint.",
        host=unknown.at,
        key=fingerprint(unknown.offered),
    )


def _changed(host: Host, changed: HostKeyChanged) -> str:
    return said(
        "{place} shows the key {offered}, not the accepted key {pinned}: it is another machine.",
        place=changed.at or address_text(host.address, host.port),
        offered=fingerprint(changed.offered),
        pinned=fingerprint(changed.pinned),
    )


def _refused(field: str, why: str) -> Refused:
    return Refused(field, said("Nothing was changed. {why}", why=why))


def _probe(transport: Connection) -> probe.HostFacts:
    sha = install_runner.put_runner(transport)
    answer = run_command(transport, install_runner.command(sha, "probe"), timeout=PROBE_TIMEOUT_S)
    return probe.parse(answer.stdout)


def _is_same_machine(host: Host, facts: probe.HostFacts) -> bool:
    """Machines that were made from one image share a host key. A boot and a GPU are in one machine only."""
    if host.boot_id and facts.boot_id == host.boot_id:
        return True
    reported = [device.uuid for device in facts.gpus]
    return Gpu.objects.filter(host=host, uuid__in=reported).exists()
