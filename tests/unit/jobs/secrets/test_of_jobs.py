"""The secrets of a job: who may use which, that values reach the host's order and nothing else, and when they go."""

from __future__ import annotations

import json
import logging

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from jobs import services
from jobs.models import Job, JobSecret, Membership, Project, Role, Run, Secret
from jobs.rules.spec.parse import InvalidDocument
from jobs.scheduling import machine_types
from jobs.secrets import of_jobs, store
from tests.unit.jobs.conftest import gang, pool_of, spec
from tests.unit.jobs.fake_hosts import settle

CANARY = "canary-51e0c7a9"
INLINE = {"name": "HF_TOKEN", "value": CANARY, "secret": True}


def with_env(*env, document=None):
    document = document or spec()
    document["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["env"] = list(env)
    return document


def refers(name="HF", of=None):
    return {"name": "HF_TOKEN", "valueFrom": {"secret": name, **({"of": of} if of else {})}}


def put(owner, name="HF", value=CANARY):
    return store.put(owner, name, value, "alice", timezone.now())


def refusal(submit, *env):
    with pytest.raises(InvalidDocument) as refused:
        submit(with_env(*env))
    assert CANARY not in str(refused.value) and not Job.every.exists()
    [violation] = refused.value.violations
    return violation.field.rpartition("env[0].")[2], violation.description


def columns_with(text):
    """The columns of all tables in which the text is, as the database holds them."""
    found = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT * FROM "{table}"')
            names = [column[0] for column in cursor.description]
            for row in cursor.fetchall():
                for name, value in zip(names, row, strict=True):
                    raw = (
                        bytes(value)
                        if isinstance(value, bytes | memoryview)
                        else (value if isinstance(value, str) else json.dumps(value, default=str)).encode()
                    )
                    if text.encode() in raw:
                        found.append(f"{table}.{name}")
    return found


def started(host):
    """The environment with which the host was told to start its only run."""
    [run] = host.runs.values()
    return run.order["env"]


def test_a_value_reaches_the_order_of_its_pool_and_no_column(add_host, submit, control_plane):
    host = add_host()
    submit(with_env(INLINE, document=gang(pool_of(), pool_of())))
    assert columns_with("HF_TOKEN") and columns_with(CANARY) == []
    settle(control_plane, host)
    orders = {run: fake.order for run, fake in host.runs.items()}
    assert {run.split("-")[1]: order["env"].get("HF_TOKEN") for run, order in orders.items()} == {
        "workerpool0": CANARY,
        "workerpool1": None,
    }
    first = next(order for run, order in orders.items() if "workerpool0" in run)
    assert first["secrets"] == ["HF_TOKEN"] and CANARY not in first["env"]["CLUSTER_SPEC"]
    assert columns_with(CANARY) == []


def test_a_persons_secret_comes_first_and_of_decides(add_host, submit, control_plane, project, alice):
    put(project, value="of the project")
    put(alice, value="of alice")
    for refer, expected in (
        (refers(), "of alice"),
        (refers(of="project"), "of the project"),
        (refers(of="person"), "of alice"),
    ):
        job = submit(with_env(refer), place=False)
        assert of_jobs.values_of(job.pk) == [expected]
    assert all(row.used_at for row in Secret.objects.all())
    store.remove(alice, "HF", "alice", timezone.now())
    assert of_jobs.values_of(submit(with_env(refers()), place=False).pk) == ["of the project"]


def test_a_person_uses_only_secrets_of_their_own_and_of_the_project(submit, project):
    """An admin of the project, too, cannot use what belongs to somebody else."""
    bob = User.objects.create_user("bob")
    Membership.objects.create(project=project, user=bob, role=Role.ADMIN)
    put(bob)
    elsewhere = Project.objects.create(name="elsewhere", created_at=timezone.now())
    put(elsewhere)
    put(project, "OTHER")
    field, said = refusal(submit, refers())
    assert field == "value_from.secret" and "There is no secret HF of yours or of project default." in said
    assert "There are OTHER." in said and "PUT /api/v1/projects/default/secrets/HF" in said
    field, said = refusal(submit, refers(of="person"))
    assert "of yours. There is none yet. Set it with PUT /api/v1/secrets/HF." in said


def test_a_clone_asks_for_inline_values_again(submit):
    job = submit(with_env(INLINE), place=False)
    with pytest.raises(InvalidDocument) as refused:
        submit({"displayName": "again", "jobSpec": job.spec})
    [violation] = refused.value.violations
    assert (
        violation.field.endswith("env[0].value")
        and "the value of HF_TOKEN is secret" in violation.description
    )


def test_what_linux_would_refuse_is_refused_at_submit(submit, project):
    for number in range(9):
        put(project, f"S{number}", "x" * 60_000)
    env = [{"name": f"V{number}", "valueFrom": {"secret": f"S{number}"}} for number in range(9)]
    with pytest.raises(InvalidDocument, match="together; at most"):
        submit(with_env(*env))
    submit(with_env(*env[:5]), place=False)


@pytest.mark.parametrize(("name", "fits"), [("GOOGLE_CREDENTIALS", True), ("DOCKER_AUTH_CONFIG", False)])
def test_what_the_engine_would_read_itself_is_refused_at_submit(submit, project, alice, name, fits):
    put(project, value=f"{{\n{CANARY}\n}}")
    document = with_env({**refers(), "name": name})
    document["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["imageUri"] = "ghcr.io/lab/train"
    if fits:
        assert submit(document, place=False)
        return
    with pytest.raises(InvalidDocument) as refused:
        submit(document)
    asked, _types = machine_types.read(document, "default")
    with pytest.raises(InvalidDocument) as looked_at:
        services.check_brought(asked, project, alice, "default", None)
    (violation,) = refused.value.violations
    assert violation.field == "job_spec.worker_pool_specs[0].container_spec.env"
    assert name in violation.description and CANARY not in violation.description
    assert looked_at.value.violations == refused.value.violations


def test_the_same_request_with_another_value_is_another_document(submit):
    job = submit(with_env(INLINE), request_id="once", place=False)
    assert submit(with_env(INLINE), request_id="once", place=False).pk == job.pk
    with pytest.raises(services.Conflict):
        submit(with_env({**INLINE, "value": "another"}), request_id="once")
    of_jobs.forget([job.pk])
    assert submit(with_env({**INLINE, "value": "another"}), request_id="once", place=False).pk == job.pk


def test_a_retry_runs_with_what_was_submitted(add_host, submit, control_plane, project):
    put(project)
    host = add_host()
    submit(with_env(refers()))
    put(project, value="later")
    store.remove(project, "HF", "alice", timezone.now())
    settle(control_plane, host)
    assert started(host)["HF_TOKEN"] == CANARY


def test_no_program_starts_without_its_secrets(add_host, submit, control_plane, caplog):
    host = add_host()
    job = submit(with_env(INLINE))
    JobSecret.objects.filter(job=job).update(sealed=b"damaged")
    with caplog.at_level(logging.ERROR):
        settle(control_plane, host)
    assert not host.runs and "HF_TOKEN" in caplog.text and CANARY not in caplog.text


def test_jobs_without_secrets_cost_nothing(submit, add_host, django_assert_num_queries):
    add_host()
    submit()
    orders = dict(Run.objects.values_list("pk", "order"))
    assert orders and "secrets" not in next(iter(orders.values()))
    with django_assert_num_queries(0):
        assert of_jobs.with_values(orders) == orders


def test_a_deleted_job_keeps_no_value(submit, control_plane):
    job = submit(with_env(INLINE), place=False)
    services.cancel(job, "alice", timezone.now())
    job.refresh_from_db()
    services.delete(job, "alice", timezone.now())
    assert JobSecret.objects.get(job=job).sealed is None and of_jobs.values_of(job.pk) == []


def test_a_copy_belongs_to_one_job_and_one_pool(submit):
    first, second = (submit(with_env(INLINE), place=False) for _ in range(2))
    sealed = JobSecret.objects.get(job=first).sealed
    JobSecret.objects.filter(job=second).update(sealed=sealed)
    assert of_jobs.values_of(first.pk) == [CANARY] and of_jobs.values_of(second.pk) == []
