"""What is read from a running product for I7 and I10 to I12 is really there: each of them is seen to fail once."""

from __future__ import annotations

import re

import pytest

from tests.harness import invariants
from tests.harness.hosts import Fleet
from tests.harness.product import Product, job_spec, observers
from tests.harness.product.observers import JobWatcher
from tests.harness.wait_and_processes import wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["embedded", "apart"])
def product(request):
    with Fleet(1) as fleet, Product(request.param) as product:
        yield product.with_admin().with_hosts(fleet)


def found(product, name):
    violations = invariants.violations(product.evidence(logs=False))
    return [violation for violation in violations if violation.startswith(f"{name}:")]


def test_a_secret_is_found_in_the_database_and_on_the_host(product):
    token = product.secrets["token"]
    assert found(product, "I12") == []
    job_id = product.submit(job_spec({"command": ["sleep", "600"], "env": {"LOOSE": token}}, name="loose"))
    product.client.wait(job_id, "RUNNING")
    with product.output.open("a") as output:
        output.write(f"a careless line with {token}\n")
    said = "\n".join(found(product, "I12"))
    assert "the token is in the database" in said and "the token is in the output" in said
    assert "order.json" in said, said
    product.client.cancel(job_id)


def test_a_stranger_who_is_let_in_is_noticed(product):
    job_id = product.submit(job_spec(["true"], name="private"))
    assert found(product, "I11") == []
    product.commands(("member", "set", "eve", "viewer"))
    said = "\n".join(found(product, "I11"))
    assert f"answered 200 at /api/v1/jobs/{job_id}" in said and "read '\"private\"'" in said
    product.commands(("member", "set", "eve", "none"))
    assert found(product, "I11") == []


def test_a_process_that_holds_too_much_is_noticed(product, monkeypatch):
    assert found(product, "I10") == []
    monkeypatch.setitem(invariants.BOUNDS, "rss_mb", 20)
    monkeypatch.setattr(invariants, "SESSIONS", 0)
    said = "\n".join(found(product, "I10"))
    assert all(f"{role} " in said for role in ("web", "worker", "dispatcher"))
    assert ("connections" in said) == (product.shape == "apart")


def test_a_watcher_sees_a_job_by_both_doors(product):
    with JobWatcher(product, seed=1):
        job_id = product.submit(job_spec(["sleep", "3"], name="watched"))
        product.client.wait(job_id, "SUCCEEDED")
        wait_for(
            lambda: (
                {each["viewer"] for each in product.sightings if each["state"] == "SUCCEEDED"}
                == {"a script", "a page"}
            ),
            "both to see the end",
        )
    assert found(product, "I7") == []
    product.sightings.append({**product.sightings[0], "viewer": "a page", "state": "PENDING"})
    assert len(found(product, "I7")) == 1
    product.sightings.pop()


def test_a_watcher_that_sees_nothing_says_so(product, monkeypatch):
    product.submit(job_spec(["true"], name="unseen"))
    monkeypatch.setattr(observers, "STATE", re.compile("never shown"))
    blind = pytest.raises(AssertionError, match=r"\['a page'\] saw nothing in [1-9]")
    with blind, JobWatcher(product, seed=1) as watcher:
        wait_for(lambda: watcher.seen["a script"], "a look")
