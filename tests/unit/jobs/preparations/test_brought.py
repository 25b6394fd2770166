"""What jobs bring: resolved at submit in their own project, shipped to hosts that need it, recorded with the job."""

from __future__ import annotations

import hashlib
import json

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agents.links.control_plane import PreparationName
from agents.models import Host
from agents.ssh.dial import DialError
from agents.ssh.put import PutRefused
from jobs import services
from jobs.artifacts import artifacts, blobs, buckets, objects
from jobs.host_sync import prepared, shipping
from jobs.lifecycle import snapshot
from jobs.lifecycle.claims import restart_run
from jobs.models import (
    BlobHold,
    Job,
    JobSecret,
    Membership,
    Preparation,
    PreparationNeed,
    Project,
    Role,
    Run,
)
from jobs.preparations import brought, cache_entries
from jobs.rules.lifecycle.states import JobState
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.spec.parse import parse_custom_job
from jobs.scheduling import scheduler
from jobs.secrets import of_jobs, store
from tests.unit.jobs.conftest import gang, pool_of
from tests.unit.jobs.fake_hosts import settle

pytestmark = pytest.mark.django_db(transaction=True)

DATA = b"an archive"
SHA = hashlib.sha256(DATA).hexdigest()
COMMIT = "c" * 40


@pytest.fixture
def artifact(project):
    return artifacts.add_artifact(project, "archive", "code.tar.gz", [DATA], "alice")


@pytest.fixture
def bucket(project):
    return buckets.create(project, "lab-bucket", "alice", timezone.now())


@pytest.fixture
def hosts(add_host):
    return add_host("h1", cpus=4), add_host("h2", cpus=4)


def with_code(*, count=1, directory="", **code):
    code |= {"directory": directory} if directory else {}
    return {**pool_of(count=count, machine="n1-standard-4"), "trainyard": {"code": code}}


def package(*uris):
    spec = {
        "executorImageUri": "host",
        "packageUris": list(uris),
        "pythonModule": "trainer.task",
        "args": ["--x"],
    }
    return {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": "1", "pythonPackageSpec": spec}


def other_project():
    return Project.objects.create(name="other", created_at=timezone.now())


def the(kind):
    return Preparation.objects.get(kind=kind)


def order(job):
    return Run.objects.filter(job=job).first().order


def test_an_artifact_is_shipped_unpacked_and_copied_into_the_work_directory(
    submit, hosts, artifact, control_plane
):
    job = submit(gang(with_code(artifact=SHA, directory="src")))
    tree = the("tree")
    assert tree.what == {"key": tree.key, "blob": SHA, "blobs": [{"sha256": SHA, "size": len(DATA)}]}
    assert order(job)["code"] == {"tree": tree.key, "directory": "src"}
    settle(control_plane, *hosts)
    (shipment,) = control_plane._shipping.wanted[tree.host_id]
    assert shipment.blob.sha256 == SHA and b"".join(shipment.read(3)) == DATA[3:]
    assert BlobHold.objects.get(job=job).blob.sha256 == SHA
    host = next(host for host in hosts if host.row.pk == tree.host_id)
    (name,) = host.asked
    host.prepare(control_plane, name)
    settle(control_plane, *hosts)
    assert len(host.started_runs) == 1 and not control_plane._shipping.wanted[tree.host_id]


def test_two_jobs_of_one_artifact_share_what_a_host_has(submit, hosts, artifact, control_plane):
    submit(gang(with_code(artifact=SHA), with_code(artifact=SHA)))
    assert Preparation.objects.count() == 2, "one for each host"
    settle(control_plane, *hosts)
    for host in hosts:
        for name in host.asked:
            host.prepare(control_plane, name)
    settle(control_plane, *hosts)
    for host in hosts:
        for run in list(host.runs):
            host.end(control_plane, run, exit_code=0)
    settle(control_plane, *hosts)
    again = submit(gang(with_code(artifact=SHA)))
    assert Preparation.objects.count() == 2 and not Run.objects.filter(job=again, preparing=True).exists()


def test_nothing_of_another_project_is_found(submit, hosts, artifact):
    """Neither by its digest nor by the name of an object: as if it were not there."""
    other = other_project()
    theirs = artifacts.add_artifact(other, "archive", "x.tar.gz", [b"secret code"], "eve")
    bucket = buckets.create(other, "their-bucket", "eve", timezone.now())
    objects.put_object(other, bucket.name, "x.tar.gz", [b"secret code"])
    with pytest.raises(InvalidDocument) as refused:
        submit(
            gang(
                with_code(artifact=theirs.sha256),
                with_code(archiveUri="gs://their-bucket/x.tar.gz"),
                package("gs://their-bucket/x.tar.gz"),
            )
        )
    path = "job_spec.worker_pool_specs"
    assert [each.field for each in refused.value.violations] == [
        f"{path}[0].trainyard.code.artifact",
        f"{path}[1].trainyard.code.archive_uri",
        f"{path}[2].python_package_spec.package_uris[0]",
    ]
    assert "default has no artifact" in str(refused.value) and not Job.objects.exists()


def test_an_object_is_resolved_once_and_a_later_one_changes_no_job(submit, hosts, project, bucket):
    objects.put_object(project, bucket.name, "code.tar.gz", [DATA])
    job = submit(gang(with_code(archiveUri="gs://lab-bucket/code.tar.gz")))
    objects.put_object(project, bucket.name, "code.tar.gz", [b"another archive"])
    assert the("tree").what["blob"] == SHA
    assert job.resolved["pools"]["0"]["code"] == {"sha256": SHA, "size": len(DATA), "directory": ""}
    assert b"".join(blobs.read(BlobHold.objects.get(job=job).blob)) == DATA, "kept as long as the job"


GOOGLES = "aiplatform-2026-11-23-16:47:45.123-aiplatform_custom_trainer_script-0.1.tar.gz"


def test_packages_become_an_environment_and_a_module_is_run_in_it(submit, hosts, project, bucket, settings):
    settings.TRAINYARD = settings.TRAINYARD.__class__(
        python_index={"": "none", "lab": "https://u:p@index/simple"}
    )
    objects.put_object(project, bucket.name, GOOGLES, [DATA])
    job = submit(gang(package(f"gs://lab-bucket/{GOOGLES}")))
    row = the("environment")
    assert row.what["packages"] == [{"sha256": SHA, "name": GOOGLES.replace(":", "_")}]
    assert order(job)["runtime"] == {"kind": "python", "environment": row.key}
    assert order(job)["command"] == ["python3", "-m", "trainer.task", "--x"]
    assert control_plane_orders(row) == {**row.what, "index": "none"}


@pytest.mark.parametrize(
    ("result", "shown"), [({"made": "now"}, True), ({"made": "earlier"}, False), ({}, False)]
)
def test_the_log_of_a_run_begins_with_an_install_only_if_there_was_one(
    submit, hosts, project, bucket, control_plane, result, shown
):
    """A host that was asked anew may have had the environment."""
    objects.put_object(project, bucket.name, "train-1.0.whl", [DATA])
    job = submit(gang(package("gs://lab-bucket/train-1.0.whl")))
    settle(control_plane, *hosts)
    for host in hosts:
        for name in host.asked:
            host.prepare(control_plane, name, result=result)
    settle(control_plane, *hosts)
    assert not Run.objects.get(job=job).preparing and order(job).get("install_log", False) is shown


def test_the_log_of_a_run_begins_with_the_install_that_it_waited_for(
    submit, hosts, project, bucket, artifact, control_plane, monkeypatch
):
    """Of every replica of the job; not of a restart, nor of a later job, for which nothing is installed."""
    objects.put_object(project, bucket.name, "train-1.0.whl", [DATA])
    monkeypatch.setattr(cache_entries, "BATCH", 1)
    job = submit(gang(*[package("gs://lab-bucket/train-1.0.whl")] * 2))
    settle(control_plane, *hosts)
    for host in hosts:
        for name in host.asked:
            host.prepare(control_plane, name, result={"made": "now"})
    settle(control_plane, *hosts)
    first = Run.objects.filter(job=job)
    assert [run.order.get("install_log") for run in first] == [True] * 2
    for host in hosts:
        for run in list(host.runs):
            host.end(control_plane, run, exit_code=0)
    settle(control_plane, *hosts)
    # This one waits too, but for its code.
    again = submit(
        gang({**package("gs://lab-bucket/train-1.0.whl"), "trainyard": {"code": {"artifact": SHA}}})
    )
    settle(control_plane, *hosts)
    assert Run.objects.get(job=again).preparing
    for host in hosts:
        for name in host.asked:
            if name.kind == "tree":
                host.prepare(control_plane, name)
    settle(control_plane, *hosts)
    assert not Run.objects.get(job=again).preparing and "install_log" not in order(again)
    old = first.get(replica__name="workerpool0-0")
    restarted = restart_run(job, snapshot.spec_of(job), old, 1, timezone.now())
    assert "install_log" not in restarted.order and restarted.order["runtime"] == old.order["runtime"]


def control_plane_orders(row):
    name = PreparationName(row.kind, row.key, row.asked)
    return prepared.orders(row.host_id, [name])[name]


@pytest.mark.parametrize("name", ["task.py", "a b.whl", "trainer", "x.rpm"])
def test_a_package_is_a_wheel_or_a_source_archive(submit, hosts, project, bucket, name):
    objects.put_object(project, bucket.name, name, [DATA])
    with pytest.raises(InvalidDocument, match="must be a wheel or a source archive"):
        submit(gang(package(f"gs://lab-bucket/{name}")))


GIT = {"url": "https://git.example.com/lab/train.git", "revision": "main"}


def test_the_commit_of_a_branch_is_recorded_and_used_from_then_on(submit, hosts, control_plane):
    job = submit(gang(with_code(git=GIT), with_code(git=GIT)))
    settle(control_plane, *hosts)
    for host in hosts:
        (name,) = host.asked
        host.prepare(control_plane, name, result={"commit": COMMIT})
    settle(control_plane, *hosts)
    assert len(hosts[0].started_runs) == len(hosts[1].started_runs) == 1
    job.refresh_from_db()
    assert [job.resolved["pools"][pool]["code"]["commit"] for pool in "01"] == [COMMIT, COMMIT]
    later = brought.tree_of(job, 0)
    assert later["git"] == {"url": GIT["url"], "revision": COMMIT} and later["key"] != the_key(job)


def the_key(job):
    return order(job)["code"]["tree"]


@pytest.fixture
def again(alice):
    """again(job, …changes of its pools) → a copy of it, as **Run again** and the form make one."""

    def again(job, document=None):
        now = timezone.now()
        if document is None:
            return services.rerun(job, alice, None, now)
        return services.submit(job.project, alice, document, "default", None, now, cloned_from=job.pk)

    return again


def test_a_copy_runs_the_commit_that_its_job_ran(submit, again, hosts):
    job = submit(gang(with_code(git=GIT), with_code(git=GIT)), place=False)
    assert "commit" not in str(again(job).resolved), "no host had checked it out: it is the branch still"
    for pool in "01":
        job.resolved["pools"][pool]["code"]["commit"] = COMMIT
    job.save()
    copy = again(job)
    assert copy.spec == job.spec and copy.resolved == job.resolved
    tree = brought.tree_of(copy, 0)
    assert tree["git"]["revision"] == COMMIT and tree == brought.tree_of(job, 1)
    named = again(job, gang(with_code(git=GIT, directory="src"), with_code(git={**GIT, "revision": "dev"})))
    first, second = (named.resolved["pools"][pool]["code"] for pool in "01")
    assert first["commit"] == COMMIT and first["directory"] == "src" and "commit" not in second
    assert submit(job_document(job), place=False).resolved != job.resolved, "a new job takes the branch anew"


def job_document(job):
    return {"displayName": job.display_name, "jobSpec": job.spec}


def test_a_copy_runs_the_archive_and_the_packages_that_its_job_ran(submit, again, hosts, project, bucket):
    names = ("code.tar.gz", "train-1.0.whl", "more-1.0.whl")
    code, *packages = (f"gs://lab-bucket/{name}" for name in names)
    for name in names:
        objects.put_object(project, bucket.name, name, [name.encode()])
    job = submit(gang(with_code(archiveUri=code), package(*packages)), place=False)
    objects.put_object(project, bucket.name, names[0], [b"another archive"])
    objects.put_object(project, bucket.name, names[1], [b"another package"])
    objects.delete_object(objects.find_object(project, packages[1]), "alice", timezone.now())
    copy = again(job)
    assert copy.resolved == job.resolved
    held = BlobHold.objects.filter(job=copy).values_list("blob__sha256", flat=True)
    assert set(held) == {hashlib.sha256(name.encode()).hexdigest() for name in names}
    with pytest.raises(InvalidDocument, match="no such object"):
        submit(job_document(job), place=False)


def test_a_copy_in_another_project_finds_nothing_of_the_first(submit, hosts, project, bucket, alice):
    objects.put_object(project, bucket.name, "code.tar.gz", [DATA])
    job = submit(gang(with_code(archiveUri="gs://lab-bucket/code.tar.gz")), place=False)
    with pytest.raises(InvalidDocument, match="other has no such object"):
        services.submit(
            other_project(), alice, job_document(job), "default", None, timezone.now(), cloned_from=job.pk
        )


def test_a_branch_that_moved_between_two_hosts_fails_the_job(submit, hosts, control_plane):
    job = submit(gang(with_code(git=GIT), with_code(git=GIT)))
    settle(control_plane, *hosts)
    for host, commit in zip(hosts, (COMMIT, "d" * 40), strict=True):
        (name,) = host.asked
        host.prepare(control_plane, name, result={"commit": commit})
    settle(control_plane, *hosts)
    job.refresh_from_db()
    assert job.state == "FAILED" and "the branch moved while it was fetched" in job.error_message
    assert not hosts[0].started_runs and not hosts[1].started_runs


def test_jobs_of_one_branch_fetch_it_anew_and_those_of_one_commit_do_not(submit, hosts):
    def key(revision):
        job = submit(gang(with_code(git={**GIT, "revision": revision})), place=False)
        return brought.tree_of(job, 0)["key"]

    assert key("main") != key("main") and key(COMMIT) == key(COMMIT)


def test_a_credential_is_kept_as_secrets_are_and_given_with_the_order_only(submit, hosts, project, alice):
    store.put(project, "deploy-token", "hunter22", "alice", timezone.now())
    job = submit(gang(with_code(git={**GIT, "credentialSecret": "deploy-token"})))
    row = the("tree")
    assert "hunter22" not in str(row.what) + str(order(job)) + str(job.spec) + str(job.resolved)
    assert JobSecret.objects.get(job=job).name == "git credential"
    assert control_plane_orders(row)["credential"] == "hunter22"


def test_what_a_credential_opens_is_for_jobs_of_its_person_alone(submit, add_host, project, alice):
    """A wrong one fails no other person's job, and nobody without one gets what it has opened."""
    add_host("h1", cpus=32)
    Host.objects.update(memory_mb=640_000)
    exactly = {**GIT, "revision": COMMIT}
    secret = {**exactly, "credentialSecret": "token"}
    bob = User.objects.create_user("bob")
    Membership.objects.create(project=project, user=bob, role=Role.SUBMITTER)
    for person, value in ((alice, "right"), (bob, "wrong")):
        store.put(person, "token", value, person.username, timezone.now())
    jobs = [
        services.submit(project, person, gang(with_code(git=git)), "default", None, timezone.now())
        for person, git in ((alice, secret), (bob, secret), (bob, exactly), (alice, secret), (alice, exactly))
    ]
    scheduler.schedule(timezone.now())
    trees = {
        job: (need.preparation_id, control_plane_orders(need.preparation).get("credential"))
        for job, need in ((job, PreparationNeed.objects.get(run__job=job)) for job in jobs)
    }
    told = [trees[job][1] for job in jobs]
    assert told == ["right", "wrong", None, "right", None]
    assert trees[jobs[0]] == trees[jobs[3]] and trees[jobs[2]] == trees[jobs[4]]
    assert len({tree for tree, _ in trees.values()}) == 3
    copy = services.submit(
        project, bob, gang(with_code(git=exactly)), "default", None, timezone.now(), cloned_from=jobs[0].pk
    )
    assert "credential" not in copy.resolved["pools"]["0"]["code"]


def test_what_hosts_have_under_the_keys_of_before_is_not_used_again(submit, add_host, project, alice):
    """They had no person in them: one that is named like that may be what anybody's credential has opened."""
    add_host("h1", cpus=32)
    Host.objects.update(memory_mb=640_000)
    store.put(alice, "token", "right", "alice", timezone.now())
    before = hashlib.sha256(json.dumps(["tree", GIT["url"], COMMIT, None]).encode()).hexdigest()
    exactly = {**GIT, "revision": COMMIT}
    for git in (exactly, {**exactly, "credentialSecret": "token"}):
        job = submit(gang(with_code(git=git)), place=False)
        # As an earlier version has resolved it.
        job.resolved["pools"]["0"]["code"] = {"git": exactly, "directory": ""}
        Job.every.filter(pk=job.pk).update(resolved=job.resolved)
    scheduler.schedule(timezone.now())
    keys = set(Preparation.objects.filter(kind="tree").values_list("key", flat=True))
    assert len(keys) == 2 and before not in keys
    ordered = {run.order["code"]["tree"] for run in Run.objects.all()}
    assert ordered == keys


def test_a_job_that_waits_has_its_credential_however_many_others_are_over(submit, add_host, project, alice):
    add_host("h1", cpus=400)
    Host.objects.update(memory_mb=10**6)
    store.put(alice, "token", "right", "alice", timezone.now())
    document = gang(with_code(git={**GIT, "revision": COMMIT, "credentialSecret": "token"}))
    waits, *others = [submit(document, place=False) for _ in range(22)]
    scheduler.schedule(timezone.now())
    over = [job.pk for job in others]
    Job.every.filter(pk__in=over).update(state=JobState.CANCELLED)
    of_jobs.forget(over)
    assert PreparationNeed.objects.filter(preparation=the("tree")).count() == 22
    assert control_plane_orders(the("tree"))["credential"] == "right"
    of_jobs.forget([waits.pk])
    assert "credential" not in control_plane_orders(the("tree"))


def test_a_credential_that_is_not_there_is_named(submit, hosts):
    with pytest.raises(InvalidDocument) as refused:
        submit(gang(with_code(git={**GIT, "credentialSecret": "deploy-token"})))
    (violation,) = refused.value.violations
    assert violation.field == "job_spec.worker_pool_specs[0].trainyard.code.git.credential_secret"


def test_a_disk_that_cannot_take_the_file_is_a_fault_of_the_host(submit, hosts, artifact, control_plane):
    job = submit(gang(with_code(artifact=SHA)))
    settle(control_plane, *hosts)
    tree = the("tree")
    (shipment,) = control_plane._shipping.wanted[tree.host_id]
    control_plane._shipping._failed(shipment, DialError("the connection ended"))
    tree.refresh_from_db()
    assert tree.phase in ("WANTED", "WORKING"), "it is tried again"
    control_plane._shipping._failed(shipment, PutRefused("disk_full", "the disk of this host is full"))
    tree.refresh_from_db()
    job.refresh_from_db()
    assert (job.state, job.internal_tries) == ("PENDING", 1), "another try, perhaps on another host"
    assert "the disk of this host is full" in str(list(job.transitions.values_list("cause", flat=True)))


def test_what_a_host_threw_away_is_prepared_again(submit, hosts, artifact, control_plane):
    submit(gang(with_code(artifact=SHA)))
    settle(control_plane, *hosts)
    row = the("tree")
    host = next(host for host in hosts if host.row.pk == row.host_id)
    (name,) = host.asked
    host.prepare(control_plane, name)
    settle(control_plane, *hosts)
    (run,) = host.started_runs
    host.runs[run].never_started = True
    host.end(control_plane, run, why="refused", refusal="unprepared", message="not on this host any more")
    settle(control_plane, *hosts)
    Job.objects.update(rests_until=None, due_at=timezone.now())
    settle(control_plane, *hosts)
    again = [row for row in Preparation.objects.all() if row.asked == 2 or row.host_id != host.row.pk]
    assert again, "asked for again"


def test_shippings_are_looked_up_again_only_when_others_are_wanted(
    submit, hosts, artifact, django_assert_num_queries
):
    submit(gang(with_code(artifact=SHA)))
    row = the("tree")
    made = shipping.Shipping(lambda host: None)
    with django_assert_num_queries(0):
        made.update(row.host_id, ())


def test_a_document_without_code_asks_nothing(project, django_assert_num_queries):
    spec = parse_custom_job(gang(pool_of(machine="n1-standard-4")), {}).job_spec
    with django_assert_num_queries(0):
        assert brought.resolve(spec, project, "default") == {}
