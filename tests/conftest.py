"""The order of all tests, and signals and hints around them."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from dataclasses import replace
from importlib import import_module

import pytest
from hypothesis import HealthCheck, settings

from tests.harness import left_behind

# Files with these prefixes wait for whole products. They start first, so that they overlap with the quick ones: those
# with products of their own, then those that share one, with the shape "apart" before "embedded". So a file uses the
# product that the file before has started, and none stands idle beside a file that does not use it.
LONG = (
    "tests/flows/test_clocks.py",
    "tests/flows/test_upgrade.py",
    "tests/flows/test_several_machines.py",
    "tests/walks/",
    "tests/flows/test_nothing_leaks.py",
    "tests/flows/test_unconnected.py",
    "tests/flows/test_s3_storage.py",
    "tests/flows/test_containers.py",
    "tests/flows/test_apptainer.py",
    "tests/flows/test_docker_without_root.py",
    "tests/flows/test_gpus_in_containers.py",
    "tests/flows/test_training_in_containers.py",
    "tests/flows/test_large_outputs.py",
    "tests/flows/test_hostile_hosts.py",
    "tests/flows/test_google_sdk.py",
    "tests/flows/test_crash_points.py",
    "tests/flows/test_campaign.py",
    "tests/flows/test_crash_points_on_hosts.py",
    "tests/flows/test_services_die.py",
    "tests/flows/test_tuning.py",
    "tests/flows/test_tuning_through_faults.py",
    "tests/flows/test_tuning_at_crash_points.py",
    "tests/flows/test_large_study.py",
    "tests/flows/test_end_to_end.py",
    "tests/flows/",
    "tests/behaviour/",
    "tests/browser/test_first_run.py",
    "tests/unit/console/runtime/processes/test_up.py",
    "tests/unit/agents/runner/",
    "tests/unit/agents/",
    "tests/browser/",
    "tests/unit/console/runtime/",
)


# A red property means that the code is wrong, not that the machine was busy while an example ran.
settings.register_profile("at any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("at any speed")


def pytest_configure():
    """Undo what a shell does to jobs in the background: they, and all that they start, ignore SIGINT and SIGQUIT."""
    for name in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(name) is signal.SIG_IGN:
            signal.signal(name, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is collected stays to the end: no search for garbage looks at it, neither now nor in the tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # A request or a page makes thousands of objects, few of which are garbage that only a search finds.
        gc.set_threshold(10_000, *gc.get_threshold()[1:])
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if os.environ.get("TRAINYARD_TEST_DATABASE_URL"):
        # The others were run before, and know no database.
        leave_out(config, items, [item for item in items if not needs_database(item)])
    if not os.environ.get("EXHAUSTIVE"):
        leave_out(config, items, [item for item in items if item.get_closest_marker("exhaustive")])
    items.sort(key=place)
    if part := os.environ.get("TRAINYARD_TEST_PART"):
        dealt = files_of_part(items, *part_of(part))
        leave_out(config, items, [item for item in items if item.path not in dealt])


def part_of(words):
    found = re.fullmatch(r"([1-9])/([1-9])", words)
    if not found or found[1] > found[2]:
        raise pytest.UsageError(f"PART, TRAINYARD_TEST_PART: {words!r} is no part. Give one such as 2/3.")
    return int(found[1]), int(found[2])


def files_of_part(items, number, parts):
    """The files are dealt like cards, in the order in which they run: each part gets its share of the long ones."""
    files = list(dict.fromkeys(item.path for item in items))
    return set(files[number - 1 :: parts])


def leave_out(config, items, some):
    config.hook.pytest_deselected(items=some)
    left_out = set(some)
    items[:] = [item for item in items if item not in left_out]


def needs_database(item):
    return bool({"db", "transactional_db", "_django_db_helper"} & set(item.fixturenames)) or bool(
        item.get_closest_marker("django_db")
    )


def place(item):
    return next((place for place, start in enumerate(LONG) if item.nodeid.startswith(start)), len(LONG))


@pytest.fixture(scope="session")
def django_db_keepdb(django_db_modify_db_settings):
    """On SQLite, begin with a copy of a migrated database instead of going through all migrations."""
    # The tests of the runner run without Django, and never come here.
    settings = import_module("django.conf").settings.DATABASES["default"]
    if "sqlite" not in settings["ENGINE"]:
        return False
    import_module("tests.harness.new_database").put_sqlite(settings["TEST"]["NAME"])
    return True


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup):
    import_module("tests.harness.emptied_database").empty_after_tests()


@pytest.fixture(autouse=True)
def forget_shared_answers():
    """A process keeps some answers for a short while: a test must not get those of the test before."""
    if answers := sys.modules.get("agents.infra.shared_answers"):
        answers.forget_all()


@pytest.fixture(autouse=True)
def keep_the_time():
    """A command reads Trainyard's time from the database of its test, and with it since when that time is trusted. For
    the next test, that database has never been there."""
    clock = sys.modules.get("agents.infra.clock")
    before = clock and replace(clock._offset)
    yield
    if before:
        clock._offset = before


@pytest.fixture(autouse=True)
def nothing_left_behind(request):
    """A thread or process that goes on after its test would disturb others: the test that leaves it fails.

    Fixtures of a module or session are made before this one. Processes are looked at in unit tests only: flows share a
    product, which the first test of them starts.
    """
    looks = [left_behind.threads]
    if request.node.nodeid.startswith("tests/unit/"):
        looks.append(left_behind.children)
    before = [look() for look in looks]
    yield
    left = [left_behind.still_there(look, known) for look, known in zip(looks, before, strict=True)]
    if found := set().union(*left):
        pytest.fail(f"left behind, and still there after some seconds: {left_behind.described(found)}")


def pytest_unconfigure():
    """Let the hints' thread end while the stream of the log is still open: there may be no broker, which it logs.

    Looked up, not imported: the runner's tests also run without Django.
    """
    if hints := sys.modules.get("jobs.wake.hints"):
        hints._messages.finish()
