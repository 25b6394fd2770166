"""The code is replaced by a later version while jobs run and wait: the database is migrated, and every job goes on."""

from __future__ import annotations

import io
import subprocess
import tarfile

import pytest

from tests.flows.running_jobs import LongJob
from tests.harness.hosts import Fleet
from tests.harness.product import Product, job_spec
from tests.harness.product.product import ROOT

pytestmark = pytest.mark.slow
# A version whose database has only the first migration of each app. From 0.2 on it is the release before this one.
BEFORE = "74acfc5d7b9d"
HOSTS = 2


@pytest.fixture(scope="module")
def older_tree(tmp_path_factory):
    """The code of that version, from the history of this clone."""
    made = subprocess.run(["git", "-C", ROOT, "archive", BEFORE], capture_output=True)
    if made.returncode:
        cure = "the upgrade is tested from this commit: get the history with `git fetch --unshallow`"
        pytest.fail(f"{BEFORE}: {cure}. {made.stderr.decode()}")
    tree = tmp_path_factory.mktemp("older")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(tree, filter="data")
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


def migrations(product):
    return len(product.query("SELECT id FROM django_migrations"))
