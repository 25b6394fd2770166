"""The line of the checklist about container engines: what is there, whether it works, and what helps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agents.infra.text import clean_text
from agents.infra.texts import join, said
from agents.infra.untrusted import boolean

PODMAN, DOCKER, APPTAINER = "podman", "docker", "apptainer"
# The oldest versions that take all options that a start gives them.
OLDEST = {PODMAN: (4, 3), DOCKER: (20, 10), APPTAINER: (1, 1)}
# How long the probe waits for it (agents/runner/host/engine_probe.py).
ANSWER_S = 8
# What an engine may lack on a host, as the probe names it.
NEWUIDMAP, SUBUID, CGROUP, INIT, SQUASHFS = "newuidmap", "subuid", "cgroup", "init", "squashfs"
PARTS = (NEWUIDMAP, SUBUID, CGROUP, INIT, SQUASHFS)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What the probe found out about an engine, or the one before it if the engine has not `answered`. `missing`: of
    PARTS. `cdi`: of Docker alone, whether it takes CDI specs; None: the runner is too old to say."""

    works: bool
    error: str
    rootless: bool
    cgroup: str
    missing: tuple[str, ...]
    answered: bool = True
    cdi: bool | None = None


def read_engine(found: object) -> EngineFacts | None:
    """None where there is no such engine, or the runner is too old to say how it is."""
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
        cdi=boolean(found.get("cdi")),
    )


def with_known(engine: EngineFacts | None, before: object) -> EngineFacts | None:
    """A busy host does not lose its containers because podman was slow once. `before`: the engine of the facts that are
    stored."""
    known = read_engine(before)
    if engine is None or engine.answered or known is None:
        return engine
    return replace(known, answered=False)


def version_of(runtimes: Sequence[str], name: str = PODMAN) -> str:
    """The version of an engine, or ""."""
    return next((each.partition(" ")[2] for each in runtimes if each.partition(" ")[0] == name), "")


def is_too_old(version: str, name: str = PODMAN) -> bool:
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    return len(numbers) == 2 and tuple(numbers) < OLDEST[name]


def usable_runtimes(
    runtimes: Sequence[str],
    engine: EngineFacts | None,
    docker: EngineFacts | None = None,
    apptainer: EngineFacts | None = None,
) -> tuple[str, ...]:
    """Those by which jobs may run: without an engine that does not work."""
    broken = {
        name
        for name, found in ((PODMAN, engine), (DOCKER, docker), (APPTAINER, apptainer))
        if is_too_old(version_of(runtimes, name), name) or (found is not None and not found.works)
    }
    return tuple(each for each in runtimes if each.partition(" ")[0] not in broken)


def judge(
    found: Sequence[str],
    engine: EngineFacts | None,
    user: str,
    docker: EngineFacts | None = None,
    apptainer: EngineFacts | None = None,
) -> tuple[bool | None, str, str]:
    """(right, text, cure) of the line. Docker and Apptainer make it neither right nor wrong: only jobs that name them
    need them, and all with images where nothing else runs them."""
    right, text, cure = _judge_podman(found, engine, user)
    if not version_of(found) and _runs_images(found, docker, apptainer):
        right, cure = True, ""
    texts, cures = [text], [cure]
    for name, facts, judge_other in (
        (DOCKER, docker, _judge_docker),
        (APPTAINER, apptainer, _judge_apptainer),
    ):
        if facts is not None and any(each.partition(" ")[0] == name for each in found):
            words, its_cure = judge_other(version_of(found, name), facts, user)
            texts.append(words)
            cures.append(its_cure)
    cures = [each for each in cures if each]
    return right, join("; ", texts), join(" ", cures) if cures else ""


def _runs_images(found: Sequence[str], docker: EngineFacts | None, apptainer: EngineFacts | None) -> bool:
    """Whether one of these works here, so that jobs with images run without podman."""
    known = {DOCKER: docker, APPTAINER: apptainer}
    usable = usable_runtimes(found, None, docker, apptainer)
    return any(facts is not None and version_of(usable, name) for name, facts in known.items())


def _judge_docker(version: str, docker: EngineFacts, user: str) -> tuple[str, str]:
    if is_too_old(version, DOCKER):
        old = said("docker {version} is too old for jobs with images", version=version)
        return old, said("Install Docker 20.10 or newer.")
    if not docker.works:
        cure = said(
            "Jobs with images need it where they name docker, or where the hosts have no podman. “docker info” must "
            "work for the login {user}: put it into the group docker, which makes it root on this host, or set up "
            "Docker without root.",
            user=user,
        )
        return said("docker cannot be used: {error}", error=docker.error), cure
    mode = said("without root") if docker.rootless else said("as root")
    text = said("docker runs {mode}, cgroup {cgroup}", mode=mode, cgroup=docker.cgroup)
    cures = [_cure(part, user, DOCKER) for part in docker.missing]
    return text, join(" ", cures) if cures else ""


def _judge_apptainer(version: str, apptainer: EngineFacts, user: str) -> tuple[str, str]:
    if is_too_old(version, APPTAINER):
        old = said("apptainer {version} is too old for jobs with images", version=version)
        return old, said("Install Apptainer 1.1 or newer.")
    if not apptainer.works:
        cure = said(
            "Jobs with images need it where they name apptainer, or where the hosts have neither podman nor Docker. "
            "The login {user} needs namespaces of users (user.max_user_namespaces above 0; on Ubuntu, the AppArmor "
            "profile of its package), and Linux 5.11 or newer, or fuse-overlayfs.",
            user=user,
        )
        return said("apptainer cannot be used: {error}", error=apptainer.error), cure
    if SQUASHFS in apptainer.missing:
        return said("apptainer works, without SIF files"), said("For SIF files install squashfs-tools.")
    return said("apptainer works"), ""


def _judge_podman(
    found: Sequence[str], engine: EngineFacts | None, user: str
) -> tuple[bool | None, str, str]:
    """Without podman a host is right too: it runs jobs without images."""
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


def _cure(part: str, user: str, engine: str = PODMAN) -> str:
    if part == INIT:
        return said(
            "A program that is process 1 of its container gets no signal that it does not handle, and may end with "
            "another exit status than its own: install {program}.",
            program="docker-init (tini)" if engine == DOCKER else "catatonit",
        )
    if part == NEWUIDMAP:
        return said("newuidmap is missing: install uidmap.")
    if part == SUBUID:
        return said(
            "The login has no ids of its own: add {line} to /etc/subuid and /etc/subgid, and run podman system "
            "migrate.",
            line=f"{user}:100000:65536",
        )
    if engine == DOCKER:
        return said(
            "Docker cannot limit the memory of containers: its kernel has no memory controller for it."
        )
    return said(
        "Memory and CPUs of containers cannot be limited: the login needs cgroup v2 with the memory controller, which "
        "systemd delegates to its sessions."
    )
