"""The code is replaced by a later version while jobs run and wait: the database is migrated, and every job goes on."""

from __future__ import annotations

import subprocess

import pytest

from tests.flows.running_jobs import LongJob
from tests.flows.test_several_machines import FAIL_OVER_S, holders
from tests.flows.two_machines_before import Kept
from tests.harness.hosts import Fleet
from tests.harness.product import Product, job_spec
from tests.harness.product.product import ROOT
from tests.harness.product.second_machine import SecondMachine
from tests.harness.wait_and_processes import wait_for

pytestmark = pytest.mark.slow
# A version whose database has only the first migration of each app. From 0.2 on it is the release before this one.
BEFORE = "74acfc5d7b9d"
# One that has landed and has studies, stored files, recordings and logins of projects.
LATELY = "9ed7d477f513"
HOSTS = 2


@pytest.fixture(scope="module")
def older_tree(tmp_path_factory):
    return tree_of(BEFORE, tmp_path_factory.mktemp("older"))


def tree_of(commit, tree):
    """The code of that version, from the history of this clone."""
    made = subprocess.run(["git", "-C", ROOT, "archive", commit], capture_output=True)
    if made.returncode:
        cure = "the upgrade is tested from this commit: get the history with `git fetch --unshallow`"
        pytest.fail(f"{commit}: {cure}. {made.stderr.decode()}")
    subprocess.run(["tar", "-x", "-C", tree], input=made.stdout, check=True)
    (tree / "node_modules").symlink_to(ROOT / "node_modules")
    return tree


@pytest.mark.parametrize("shape, how", [("embedded", "kill"), ("apart", "stop")])
def test_jobs_that_run_and_wait_survive_an_upgrade(older_tree, shape, how):
    """Killed as by a machine that is switched off, with SQLite's journal as it was then; or stopped as Ctrl-C does.

    Each is done in one shape: how the older version ends is the older version's, and no longer changes.
    """
    with Fleet(HOSTS) as fleet:
        product = Product(shape)
        try:
            product.root = older_tree
            product.start().with_admin().with_hosts(fleet)
            client = product.client
            runs = LongJob(product, replicas=2, name="runs").running()
            ends = LongJob(product, gpus=1, name="is cancelled after the upgrade").running()
            waits = product.submit(job_spec({"command": ["true"], "gpus": 8}, name="waits"))
            before = {run["id"] for run in product.runs(runs.id)}
            applied = migrations(product)
            getattr(product, how)()
            product.root = ROOT
            product.start().wait_for_hosts("up")
            assert migrations(product) > applied, "there was something to migrate"
            for replica in ("workerpool0-0", "workerpool1-0"):
                runs.grows(replica, what="the log to go on after the upgrade")
            assert client.state(waits) == "QUEUED"
            client.cancel(ends.id)
            client.wait(ends.id, "CANCELLED")
            runs.succeeded()
            client.wait(waits, "SUCCEEDED")
            product.check()
            assert {run["id"] for run in product.runs(runs.id)} == before, "no run was started again"
            assert len(runs.starts()) == 2
        finally:
            product.close()


@pytest.mark.needs_namespaces
def test_two_machines_are_upgraded_and_keep_all_that_people_have(tmp_path):
    """As docs/operating.md says: both are stopped, one is started and migrates, then the other."""
    with Fleet(HOSTS) as fleet:
        first, second = Product("apart"), None
        try:
            first.root = tree_of(LATELY, tmp_path)
            first.start().with_admin().with_hosts(fleet)
            first.keep_extras(dispatcher=0, worker=0)
            second = SecondMachine(first).start()
            both_hold(first)
            kept = Kept(first, second).made()
            applied = migrations(first)
            second.stop()
            first.stop()
            first.root = ROOT
            first.start()
            first.keep_extras(dispatcher=0, worker=0)
            assert migrations(first) > applied, "there was something to migrate"
            second.start()
            both_hold(first)
            kept.is_there()
            kept.goes_on()
        finally:
            if second:
                second.close()
            first.close()


def both_hold(first):
    wait_for(lambda: len(holders(first)) == 2, "each machine to have a host", FAIL_OVER_S, dump=first.tail)


def migrations(product):
    return len(product.query("SELECT id FROM django_migrations"))
