"""The stacks of a job as a person reads them: equal ones folded, those of the fewest replicas first.

Where 63 replicas wait in one place and one stands elsewhere, that one comes first. Whether a thread was idle or active
at that moment, and the numbers in its name, make no difference: a thread that spins is now the one and now the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from agents.hosts.checklist import DEBUGGERS_CURE
from agents.infra.texts import join, said, said_of
from agents.ssh.stacks import ProcessStacks, RunStacks, Thread
from jobs.stacks import Taken

Frames = tuple[str, ...]
Key = frozenset[tuple[str, Frames]]

_NUMBERS = re.compile(r"[0-9]+")
_NAME = re.compile(r"(.*-)([0-9]+)\Z")
MAIN = "MainThread"
# What a page shows: so many stacks and reasons, and so many characters of stacks. REST has all.
PAGE_GROUPS, PAGE_TEXT = 200, 1_000_000


@dataclass(frozen=True, slots=True)
class ThreadLine:
    """Equal threads of one process. `name`: of the first of them."""

    name: str
    state: str
    count: int
    frames: Frames

    @property
    def text(self) -> str:
        times = f" ×{self.count}" if self.count > 1 else ""
        name = f': "{self.name}"' if self.name else ""
        return "\n".join([f"Thread{times} ({self.state}){name}", *(f"    {frame}" for frame in self.frames)])


@dataclass(frozen=True, slots=True)
class StackGroup:
    """Processes that stand in the same place. `command`: of the first of them."""

    replicas: tuple[str, ...]
    processes: int
    command: str
    threads: tuple[ThreadLine, ...]
    left_out: int

    @property
    def names(self) -> str:
        return spans(self.replicas)

    @property
    def text(self) -> str:
        return "\n".join(thread.text for thread in self.threads)


@dataclass(frozen=True, slots=True)
class Unseen:
    """Replicas of which nothing is seen, or not all (`partly`), for the same reason. It is a sentence: pages show it in
    the language of their reader."""

    replicas: tuple[str, ...]
    reason: str
    partly: bool

    @property
    def names(self) -> str:
        return spans(self.replicas)


@dataclass(frozen=True, slots=True)
class JobStacks:
    """`more`: how many groups and reasons are left out."""

    job_id: int
    at: datetime
    replicas: int
    seen: int
    groups: tuple[StackGroup, ...]
    unseen: tuple[Unseen, ...]
    more: int = 0


def folded(job_id: int, taken: Taken) -> JobStacks:
    groups: dict[Key, list[tuple[str, ProcessStacks]]] = {}
    reasons: dict[tuple[str, bool], list[str]] = {}
    for replica, found in taken.replicas.items():
        if isinstance(found, str):
            reasons.setdefault((found, False), []).append(replica)
            continue
        standing = [process for process in found.processes if process.threads]
        for process in standing:
            groups.setdefault(_key(process.threads), []).append((replica, process))
        for reason in _reasons(found, bool(standing)):
            reasons.setdefault((reason, bool(standing)), []).append(replica)
    every = [_group(members) for members in groups.values()]
    return JobStacks(
        job_id=job_id,
        at=taken.at,
        replicas=len(taken.replicas),
        seen=len({name for group in every for name in group.replicas}),
        groups=tuple(sorted(every, key=lambda group: (len(group.replicas), group.processes, group.text))),
        unseen=tuple(Unseen(tuple(names), reason, partly) for (reason, partly), names in reasons.items()),
    )


def for_page(found: JobStacks) -> JobStacks:
    """The groups of the fewest replicas, as many as a browser shows."""
    groups: list[StackGroup] = []
    room = PAGE_TEXT
    for group in found.groups[:PAGE_GROUPS]:
        room -= len(group.text)
        if room < 0:
            break
        groups.append(group)
    unseen = found.unseen[:PAGE_GROUPS]
    more = len(found.groups) - len(groups) + len(found.unseen) - len(unseen)
    return replace(found, groups=tuple(groups), unseen=unseen, more=more)


def _key(threads: Iterable[Thread]) -> Key:
    return frozenset((_NUMBERS.sub("#", thread.name), thread.frames) for thread in threads)


def _group(members: Sequence[tuple[str, ProcessStacks]]) -> StackGroup:
    first = members[0][1]
    lines: dict[tuple[str, Frames], list[Thread]] = {}
    for thread in sorted(first.threads, key=lambda thread: thread.name not in (MAIN, "")):
        lines.setdefault((_NUMBERS.sub("#", thread.name), thread.frames), []).append(thread)
    return StackGroup(
        replicas=tuple(dict.fromkeys(replica for replica, _process in members)),
        processes=len(members),
        command=first.command,
        threads=tuple(
            ThreadLine(same[0].name, same[0].state, len(same), same[0].frames) for same in lines.values()
        ),
        left_out=first.left_out,
    )


def _reasons(found: RunStacks, is_seen: bool) -> list[str]:
    """Why nothing is seen of a replica, or what of it is not."""
    if found.error:
        return [found.error]
    problems = dict.fromkeys(
        _problem(process.problem, found) for process in found.processes if process.problem
    )
    if found.left_out:
        told = said_of(
            found.left_out, "{number} more process is not shown", "{number} more processes are not shown"
        )
        return [*problems, told]
    return list(problems) or ([] if is_seen else [said("no Python program runs in it")])


def _problem(problem: str, found: RunStacks) -> str:
    if problem == "slow":
        return said("py-spy did not answer in time")
    if problem != "denied":
        return problem
    if found.ptrace_scope:
        words = said(
            "py-spy may not attach to its programs (ptrace_scope is {number}).", number=found.ptrace_scope
        )
        return join(" ", [words, DEBUGGERS_CURE])
    if found.in_container:
        return said(
            "the programs in its container belong to another user than the login of Trainyard on the host, which may"
            " not look into them; a py-spy of the image, in a shell of the replica, may"
        )
    return said("its programs belong to another user than the login of Trainyard on the host")


def spans(names: Sequence[str]) -> str:
    """`workerpool0-0, workerpool1-0…62`."""
    found: list[tuple[str, int, int]] = []
    for name in names:
        match = _NAME.match(name)
        pool, number = (match[1], int(match[2])) if match else (name, -1)
        if found and match and found[-1][0] == pool and found[-1][2] == number - 1:
            found[-1] = (pool, found[-1][1], number)
        else:
            found.append((pool, number, number))
    return ", ".join(_span(*each) for each in found)


def _span(pool: str, first: int, last: int) -> str:
    if first < 0:
        return pool
    return f"{pool}{first}" if first == last else f"{pool}{first}…{last}"


def as_text(found: JobStacks) -> str:
    """All of it, for a file or a terminal. Programs read it, so it is English."""
    times = found.at.strftime("%Y-%m-%d %H:%M:%S UTC")
    lines = [f"Stacks of job {found.job_id}, {times}: {found.seen} of {found.replicas} replicas", ""]
    for group in found.groups:
        lines += [f"×{group.processes} in {len(group.replicas)}: {group.names}", f"Command: {group.command}"]
        lines += [group.text, *([f"({group.left_out} more threads)"] if group.left_out else []), ""]
    lines += [
        f"{each.names}: {'not all seen: ' if each.partly else ''}{each.reason}" for each in found.unseen
    ]
    if found.more:
        lines.append(f"{found.more} more {'is' if found.more == 1 else 'are'} not shown.")
    return "\n".join(lines).rstrip() + "\n"


def document(found: JobStacks) -> Mapping[str, object]:
    """The same for programs."""
    return {
        "takeTime": found.at,
        "replicas": found.replicas,
        "stacks": [
            {
                "replicas": list(group.replicas),
                "processes": group.processes,
                "command": group.command,
                "threads": [
                    {
                        "name": thread.name,
                        "state": thread.state,
                        "count": thread.count,
                        "frames": list(thread.frames),
                    }
                    for thread in group.threads
                ],
            }
            for group in found.groups
        ],
        "unseen": [
            {"replicas": list(each.replicas), "reason": each.reason, "partly": each.partly}
            for each in found.unseen
        ],
    }
