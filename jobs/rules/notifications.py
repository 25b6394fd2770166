"""Of which events people can be notified, when a failed one is sent again, and to which addresses nothing is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from types import MappingProxyType

from agents.infra.texts import said
from jobs.rules.lifecycle.history_kinds import JOB, HistoryKind, OutputEvent
from jobs.rules.lifecycle.states import TERMINAL, FlagName, JobState

# About a project, not about a job: it goes to the addresses of the project and of its admins.
LOG_STORAGE, FILE_STORAGE = "log_storage", "file_storage"
# About a study, which is no job. Its trials are jobs, and have messages of their own.
STUDY = "study"
EVENTS: Mapping[str, str] = MappingProxyType(
    {
        "succeeded": said("it succeeded"),
        "failed": said("it failed"),
        "cancelled": said("it was cancelled"),
        "restarted": said("a replica was restarted"),
        "retried": said("the whole job is run again"),
        "preempted": said("it made room for another job"),
        "moved": said("it was moved away from a host"),
        "stalled": said("it has stalled: no output, nothing in use"),
        "idle": said("all its GPUs are idle"),
        "unreachable": said("a host of it does not answer"),
        "waiting": said("it has waited for long"),
        "outputs": said("outputs of it are still on a host"),
        STUDY: said("a study has ended"),
        LOG_STORAGE: said("the logs of its project reach their limit"),
        FILE_STORAGE: said("the files of its project reach their limit"),
    }
)
USUAL = (
    "succeeded",
    "failed",
    "cancelled",
    "preempted",
    "stalled",
    "idle",
    "outputs",
    STUDY,
    LOG_STORAGE,
    FILE_STORAGE,
)
TEST = "test"
# About a person's account, not about a job: it goes to all addresses of the person, whatever events they chose.
ACCOUNT = "account"
# The only message to an e-mail address that is not confirmed yet.
CONFIRMATION = "confirmation"
_BY_KIND = {
    HistoryKind.RESTART: "restarted",
    HistoryKind.RETRY: "retried",
    HistoryKind.PREEMPT: "preempted",
    HistoryKind.DRAIN: "moved",
}
_BY_FLAG = {FlagName.STALLED: "stalled", FlagName.IDLE: "idle", FlagName.UNREACHABLE: "unreachable"}
KINDS = frozenset({*_BY_KIND, HistoryKind.OUTPUTS})
FLAGS = frozenset(_BY_FLAG)

# Sixteen hours in all: a receiver that is down for a night gets the notification in the morning.
DELAYS_S = (10, 30, 120, 600, 1800, 3600, 7200, 14400, 28800)
# HTTP answers that a later try does not change: the address is wrong, gone, or does not accept such messages.
FINAL_ANSWERS = frozenset({400, 401, 403, 404, 405, 410, 411, 413, 414, 415, 422})

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def event_of(kind: str, subject: str, to_state: str) -> str:
    """The event that a line of history stands for; empty if nobody is notified of it."""
    if subject == JOB and to_state in TERMINAL:
        return JobState(to_state).lower()
    if kind == HistoryKind.FLAG:
        return _BY_FLAG.get(FlagName(to_state), "") if to_state in FlagName.__members__ else ""
    if kind == HistoryKind.OUTPUTS:
        return "" if to_state == OutputEvent.STORED else "outputs"
    return _BY_KIND.get(HistoryKind(kind), "") if kind in KINDS else ""


def delay_s(tries: int) -> int | None:
    """How long to wait after so many failed tries; None: the notification is given up."""
    return DELAYS_S[tries - 1] if 0 < tries <= len(DELAYS_S) else None


def address_refusal(address: str, allowed: Iterable[Network]) -> str:
    """Why nothing is sent to this address; empty if it is allowed. For a name, ask about the addresses that it resolves
    to."""
    found = _inner(ip_address(address.partition("%")[0]))
    if any(found.version == network.version and found in network for network in allowed):
        return ""
    if found.is_global and not found.is_multicast and not found.is_reserved:
        return ""
    return f"{found} is a private, loopback or otherwise local address"


def _inner(address: Address) -> Address:
    """The IPv4 address inside a mapped, 6to4 or NAT64 address, which decides; any other address as it is."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped:
        return address.ipv4_mapped
    if address.sixtofour:
        return address.sixtofour
    if address.packed[:12] == b"\x00\x64\xff\x9b" + bytes(8):  # NAT64
        return IPv4Address(address.packed[12:])
    return address
