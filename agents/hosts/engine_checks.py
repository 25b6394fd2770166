"""The line of the checklist about container engines: what is there, whether it works, and what helps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agents.infra.text import clean_text
from agents.infra.texts import join, said
from agents.infra.untrusted import boolean

PODMAN = "podman"
OLDEST = (4, 3)
# How long the probe waits for it (agents/runner/host/engine_probe.py).
ANSWER_S = 8
# What podman may lack on a host, as the probe names it.
NEWUIDMAP, SUBUID, CGROUP = "newuidmap", "subuid", "cgroup"
PARTS = (NEWUIDMAP, SUBUID, CGROUP)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What the probe found out about podman, or the one before it if podman has not `answered`. `missing`: of PARTS."""

    works: bool
    error: str
    rootless: bool
    cgroup: str
    missing: tuple[str, ...]
    answered: bool = True


def read_engine(found: object) -> EngineFacts | None:
    """None where there is no podman, or the runner is too old to say how it is."""
    if not isinstance(found, Mapping):
        return None
    missing = found.get("missing")
    parts = missing if isinstance(missing, list) else []
    return EngineFacts(
        works=boolean(found.get("works")) is True,
        error=clean_text(found.get("error") or "", 300),
        rootless=boolean(found.get("rootless")) is True,
        cgroup=clean_text(found.get("cgroup") or "", 10),
        missing=tuple(part for part in PARTS if part in parts),
        answered=boolean(found.get("answered")) is not False,
    )


def with_known(engine: EngineFacts | None, before: object) -> EngineFacts | None:
    """A busy host does not lose its containers because podman was slow once. `before`: the engine of the facts that are
    stored."""
    known = read_engine(before)
    if engine is None or engine.answered or known is None:
        return engine
    return replace(known, answered=False)


def version_of(runtimes: Sequence[str]) -> str:
    """The version of podman, or ""."""
    return next((each.partition(" ")[2] for each in runtimes if each.partition(" ")[0] == PODMAN), "")


def is_too_old(version: str) -> bool:
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    return len(numbers) == len(OLDEST) and tuple(numbers) < OLDEST


def usable_runtimes(runtimes: Sequence[str], engine: EngineFacts | None) -> tuple[str, ...]:
    """Those by which jobs may run: without a podman that does not work."""
    broken = is_too_old(version_of(runtimes)) or (engine is not None and not engine.works)
    return tuple(each for each in runtimes if not (broken and each.partition(" ")[0] == PODMAN))


def judge(found: Sequence[str], engine: EngineFacts | None, user: str) -> tuple[bool | None, str, str]:
    """(right, text, cure) of the line. Without podman a host is right too: it runs jobs without images."""
    listed, version = ", ".join(["host", *found]), version_of(found)
    if not any(each.partition(" ")[0] == PODMAN for each in found):
        return None, listed, said("For jobs with images, install podman 4.3 or newer, and uidmap.")
    if is_too_old(version):
        old = said(
            "{runtimes}; podman {version} is too old for jobs with images", runtimes=listed, version=version
        )
        return False, old, said("Install podman 4.3 or newer.")
    if engine is None:
        return None, listed, ""
    cures = [_cure(part, user) for part in engine.missing]
    if not engine.works:
        text = said("{runtimes}; podman does not work: {error}", runtimes=listed, error=engine.error)
        cures.append(said("“podman info” must work for the login {user}.", user=user))
        return False, text, join(" ", cures)
    mode = said("without root") if engine.rootless else said("as root")
    text = said(
        "{runtimes}; podman runs {mode}, cgroup {cgroup}", runtimes=listed, mode=mode, cgroup=engine.cgroup
    )
    if not engine.answered:
        text = said(
            "{text}, as the last check found: this time it did not answer within {seconds} s",
            text=text,
            seconds=ANSWER_S,
        )
        cures.append(said("Look what makes “podman info” slow for the login {user}.", user=user))
    return (None if cures else True), text, join(" ", cures) if cures else ""


def _cure(part: str, user: str) -> str:
    if part == NEWUIDMAP:
        return said("newuidmap is missing: install uidmap.")
    if part == SUBUID:
        return said(
            "The login has no ids of its own: add {line} to /etc/subuid and /etc/subgid, and run podman system "
            "migrate.",
            line=f"{user}:100000:65536",
        )
    return said(
        "Memory and CPUs of containers cannot be limited: the login needs cgroup v2 with the memory controller, which "
        "systemd delegates to its sessions."
    )
