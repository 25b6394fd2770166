"""Advice about trials whose programs would never see their parameters.

Parameters follow the arguments of a pool. What follows the script of `sh -c` becomes `$0`, `$1` of the shell, and
reaches the program only where the script passes it on. Vertex's SDK makes such commands, so they are accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agents.infra.texts import said
from jobs.rules.spec.custom_job import CustomJobSpec, Pool
from jobs.rules.spec.tasks import Container

_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})
_PASSED_ON = ("$@", "$*", "${@", "${*", "$0", "${0", "$1", "${1")


def lost_arguments(spec: CustomJobSpec) -> Iterator[str]:
    """A warning for each pool that loses them."""
    for place, pool in enumerate(spec.pools):
        if pool is not None and _loses(pool):
            yield said(
                "The parameters of trials do not reach the program of workerpool{place}: they follow the script of "
                '"{name} -c", and the shell keeps them. Write "$@" behind the program in the script, and "trial" as '
                "one more argument after the script; or start the program without a shell.",
                place=place,
                name=_name(pool.task.argv[0]),
            )


def _loses(pool: Pool) -> bool:
    argv = pool.task.argv
    if not isinstance(pool.task, Container) or not argv or _name(argv[0]) not in _SHELLS:
        return False
    script = _script(argv[1:])
    return script is not None and not any(each in script for each in _PASSED_ON)


def _script(words: Sequence[str]) -> str | None:
    """The word after the option that ends in `c` (-c, -ec, -lc). None: the shell runs a file, which gets arguments."""
    for place, word in enumerate(words):
        if not word.startswith(("-", "+")):
            return None
        if not word.startswith("--") and word.endswith("c"):
            return words[place + 1] if place + 1 < len(words) else None
    return None


def _name(path: str) -> str:
    return path.rpartition("/")[2]
