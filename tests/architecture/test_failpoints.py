"""Every failpoint in the code has a name, every name has a failpoint, and the flows go through every one."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from agents.infra import failpoints
from agents.runner.failpoints import RUNNER_FAILPOINTS
from tests.architecture.parsing import parsed
from tests.flows import test_crash_points as console_walks
from tests.flows import test_crash_points_on_hosts as runner_walks

ROOT = Path(__file__).resolve().parents[2]


@cache
def sources(runner):
    """Parse the modules that go to hosts, or all others."""
    return list(trees_of(runner))


def trees_of(runner):
    for room in ("agents", "jobs", "console"):
        for path in sorted((ROOT / room).rglob("*.py")):
            if (
                path.relative_to(ROOT).parts[1].startswith("runner") == runner
                and "migrations" not in path.parts
            ):
                yield parsed(path.read_text())


def calls(trees, *names):
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = (
                    node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                )
                if called in names:
                    yield node


def points(trees):
    """Return the arguments of failpoint(): a name, or `send.*.before` where a frame's type is in the middle."""
    found = set()
    for call in calls(trees, "failpoint"):
        said = call.args[0]
        if isinstance(said, ast.Constant):
            found.add(said.value)
        elif isinstance(said, ast.JoinedStr):
            found.add(
                "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in said.values)
            )
    return found


def kinds(trees):
    """Return the types of frames that these modules write out: {"t": "start", ...} and dict(facts, t="fact")."""
    found = set()
    for tree in trees:
        for node in ast.walk(tree):
            pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
            found |= {
                value.value
                for key, value in pairs
                if isinstance(key, ast.Constant) and key.value == "t" and isinstance(value, ast.Constant)
            }
    for call in calls(trees, "dict"):
        found |= {
            word.value.value
            for word in call.keywords
            if word.arg == "t" and isinstance(word.value, ast.Constant)
        }
    return found


def test_every_name_has_a_place_and_every_place_a_name():
    spelt = {"send.*.before": "send", "send.*.after": "send", "receive.*": "receive"}
    told = points(sources(runner=False))
    assert told - set(spelt) == {
        name for name in failpoints.NAMES if name.partition(".")[0] not in spelt.values()
    }
    assert set(spelt) <= told
    assert points(sources(runner=True)) == set(RUNNER_FAILPOINTS)


def test_every_frame_that_either_end_says_is_a_point():
    trees = list(sources(runner=False))
    assert kinds(trees) == set(failpoints.SENT)
    assert kinds(list(sources(runner=True))) == set(failpoints.RECEIVED)


def test_every_name_is_walked():
    """A flow ends only when a process has reached each failpoint that it armed, and was killed or suspended there."""
    walked = (
        *console_walks.POINTS,
        *console_walks.RARE,
        *console_walks.STRANGE,
        *console_walks.RECORDED,
        *console_walks.PREPARED,
        *console_walks.KEPT,
        *console_walks.REPORTED,
        *console_walks.OF_STUDIES,
        *console_walks.IN_WEB,
    )
    assert sorted(walked) == sorted(failpoints.NAMES) and len(set(walked)) == len(walked)
    assert runner_walks.POINTS == RUNNER_FAILPOINTS
