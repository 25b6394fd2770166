"""Placement by container engine: a job with an image goes only to hosts whose check found one."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.infra import shared_answers
from agents.models import Host
from jobs.models import Job, Run
from jobs.preparations import images
from jobs.rules.scheduling import placement
from jobs.rules.scheduling.views import engines_in, is_within, location_of, scope_of
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.scheduling import capacity, machine_types, start_forecast
from jobs.scheduling.machine_types import read
from jobs.scheduling.scheduler import schedule_quietly
from tests.unit.jobs.conftest import gang, pool_of

pytestmark = pytest.mark.django_db

IMAGE = "ghcr.io/lab/train:1"


def found(host, *runtimes):
    """What the check of this host has found."""
    Host.every.filter(pk=host.row.pk).update(facts={"runtimes": list(runtimes)})
    shared_answers.forget_all()


@pytest.fixture
def hosts(add_host):
    bare, able = add_host("bare", cpus=4), add_host("able", cpus=4)
    found(bare, "docker 24.0.7")
    found(able, "podman 4.3.1")
    return bare, able


def asking(image=IMAGE, pools=1, engine=""):
    document = gang(*[pool_of(machine="n1-standard-4") for _ in range(pools)])
    for pool in document["jobSpec"]["workerPoolSpecs"]:
        if image != "host":
            pool["containerSpec"] = {"imageUri": image}
        if engine:
            pool["trainyard"] = {"runtime": engine}
    return document


def place_again():
    schedule_quietly(timezone.now())


def places():
    return sorted(Run.objects.values_list("host__name", flat=True))


def test_a_job_with_an_image_goes_where_an_engine_is_and_says_where_none_is(hosts, submit):
    first, second = submit(asking()), submit(asking())
    assert places() == ["able"] and Run.objects.get().job == first
    second.refresh_from_db()
    assert second.state == "QUEUED"
    assert "Its image needs podman, which is not on bare." in second.reason
    assert "4 CPUs free" not in second.reason, "what is free where it cannot run does not count"


def test_a_job_that_names_docker_goes_where_docker_is(hosts, submit):
    first, second = submit(asking(engine="docker")), submit(asking(engine="docker"))
    assert places() == ["bare"] and Run.objects.get().job == first
    assert Run.objects.get().order["runtime"]["kind"] == "docker"
    second.refresh_from_db()
    assert "Its image needs docker, which is not on able." in second.reason


def test_a_job_that_names_apptainer_goes_where_apptainer_is(hosts, submit):
    bare, able = hosts
    found(able, "podman 4.3.1", "apptainer 1.4.5")
    first, second = submit(asking(engine="apptainer")), submit(asking(engine="apptainer"))
    assert places() == ["able"] and Run.objects.get().job == first
    assert Run.objects.get().order["runtime"]["kind"] == "apptainer"
    second.refresh_from_db()
    assert "Its image needs apptainer, which is not on bare." in second.reason


@pytest.mark.parametrize(
    ("of_bare", "of_able", "engine", "where"),
    [
        (["docker 24.0.7"], ["podman 4.3.1"], "podman", "able"),
        (["docker 24.0.7"], ["apptainer 1.4.5"], "docker", "bare"),
        (["apptainer 1.4.5"], [], "apptainer", "bare"),
    ],
)
def test_a_job_that_names_no_engine_gets_the_first_one_that_hosts_have(
    hosts, submit, of_bare, of_able, engine, where
):
    bare, able = hosts
    found(bare, *of_bare)
    found(able, *of_able)
    first, second = submit(asking()), submit(asking())
    run = Run.objects.get()
    assert (places(), run.job, run.order["runtime"]["kind"]) == ([where], first, engine)
    other = next(host.row.name for host in hosts if host.row.name != where)
    second.refresh_from_db()
    assert f"Its image needs {engine}, which is not on {other}." in second.reason
    assert first.resolved.get("engine", "podman") == engine
    assert "runtime" not in str(first.spec), "the document stays as it was sent"


def test_a_job_keeps_the_engine_that_it_got(hosts, submit):
    """Also if hosts have a better one by the time at which it starts, for a retry or a move is to run the same."""
    bare, able = hosts
    found(bare)
    found(able, "apptainer 1.4.5")
    first, second = submit(asking()), submit(asking())
    found(bare, "podman 5.0")
    found(able, "podman 5.0")
    place_again()
    second.refresh_from_db()
    assert places() == ["able"] and "Its image needs apptainer, which is not on able, bare." in second.reason
    found(bare, "podman 5.0", "apptainer 1.4.5")
    place_again()
    assert {run.order["runtime"]["kind"] for run in Run.objects.all()} == {"apptainer"}
    assert first.resolved["engine"] == "apptainer" and Run.objects.count() == 2


def test_a_submit_looks_once_at_what_hosts_run_containers_with(hosts, submit, monkeypatch):
    found(hosts[0], "docker 24.0.7")
    found(hosts[1], "docker 24.0.7")
    looks, offer_of = [], machine_types.offer_of
    monkeypatch.setattr(machine_types, "offer_of", lambda *asked: looks.append(1) or offer_of(*asked))
    assert submit(asking()).resolved["engine"] == "docker"
    assert len(looks) == 1


def test_the_form_forecasts_by_the_engine_that_the_job_would_get(hosts, project):
    found(hosts[0])
    found(hosts[1], "apptainer 1.4.5")
    asked, types = read(asking(), "default")
    seen = start_forecast.forecast(asked.job_spec, "default", types, project.pk, timezone.now())
    assert seen.hosts == ("able",)


def test_a_job_without_an_image_goes_anywhere(hosts, submit):
    for _ in range(3):
        submit(asking("host"))
    assert places() == ["able", "bare"]
    (waiting,) = Job.objects.filter(state="QUEUED")
    assert "podman" not in waiting.reason


def test_an_engine_that_a_later_check_finds_counts(hosts, submit):
    submit(asking())
    second = submit(asking())
    found(hosts[0], "docker 24.0.7", "podman 5.0")
    place_again()
    assert places() == ["able", "bare"]
    second.refresh_from_db()
    assert second.state == "PENDING"


def test_a_host_that_was_not_checked_could_have_one(add_host, submit, hosts):
    Host.every.filter(name="bare").update(facts={})
    shared_answers.forget_all()
    submit(asking())
    submit(asking())
    assert places() == ["able", "bare"]


def test_a_location_without_any_engine_refuses_with_the_cure(hosts, submit):
    found(hosts[0])
    found(hosts[1])
    with pytest.raises(InvalidDocument) as refused:
        submit(asking())
    (violation,) = refused.value.violations
    assert violation.field.endswith("container_spec.image_uri")
    assert "no host of the location can run it: able, bare. Install podman" in violation.description


def test_a_gang_that_fits_only_with_hosts_that_cannot_run_it_is_refused(hosts, submit):
    with pytest.raises(Exception, match="Can never be placed") as refused:
        submit(asking(pools=2))
    assert refused.value.field == "job_spec.worker_pool_specs" and not Job.objects.exists()


def test_the_form_tells_where_it_could_start(hosts, submit, project):
    def seen(image):
        asked, types = read(asking(image), "default")
        return start_forecast.forecast(asked.job_spec, "default", types, project.pk, timezone.now())

    assert seen(IMAGE).hosts == ("able",)
    submit(asking())
    shared_answers.forget_all()
    waiting = seen(IMAGE)
    assert not waiting.hosts and "Its image needs podman" in waiting.waits and waiting.at is not None
    assert seen("host").hosts == ("bare",)


def test_many_forms_sort_the_hosts_once_and_take_nothing(hosts, submit, project, monkeypatch):
    sorted_ = []
    index = placement.CapacityIndex
    monkeypatch.setattr(placement, "CapacityIndex", lambda hosts: sorted_.append(1) or index(hosts))

    def seen():
        asked, types = read(asking("host"), "default")
        return start_forecast.forecast(asked.job_spec, "default", types, project.pk, timezone.now()).hosts

    assert [seen() for _ in range(5)] == [("bare",)] * 5 and len(sorted_) == 1
    shared_answers.forget_all()
    assert seen() == ("bare",) and len(sorted_) == 2


def test_a_drained_replica_moves_to_no_host_that_cannot_run_it(hosts, add_host, submit, control_plane):
    from jobs.maintenance import cordon_and_drain
    from tests.unit.jobs.fake_hosts import settle

    bare, able = hosts
    job = submit(asking())
    settle(control_plane, able)
    (name,) = able.asked
    able.prepare(control_plane, name, result={"id": "1" * 64, "digest": ""})
    settle(control_plane, able)
    cordon_and_drain.drain(able.row, "", None, False, "alice", timezone.now())
    place_again()
    job.refresh_from_db()
    assert not Run.objects.filter(host__name="bare").exists()
    found(add_host("other", cpus=4), "podman 4.3.1")
    place_again()
    assert Run.objects.filter(host__name="other", held=True).exists()
    assert name.kind == images.IMAGE


def test_scopes_and_places():
    assert scope_of("lab") == "lab" and scope_of("lab", 7) == "lab@7"
    scope = scope_of("lab", 7, ["podman"])
    assert (location_of(scope), engines_in(scope)) == ("lab", ["podman"]) and engines_in("lab@7") == []
    assert is_within("lab", scope) and is_within("lab@7,8", scope) and is_within("lab+podman", scope)
    assert not is_within("lab+", scope) and not is_within("lab@7+docker", scope)
    assert not is_within("lab@8", scope) and not is_within("annex", scope)
    assert is_within("lab+", "lab") and is_within("lab@7+", "lab@7")
    assert is_within("annex", scope_of("any", None, ["podman"]))
    assert not is_within("annex+", scope_of("any", None, ["podman"]))


def test_requests_of_before_have_no_engine():
    from jobs.rules.scheduling.resource_requests import decode_request

    assert decode_request('[[0,1,4.0,0,"",0]]').engines == frozenset()
    assert decode_request('[[0,1,4.0,0,"",0,"podman"],[1,1,4.0,0,"",0]]').engines == {"podman"}
    assert capacity.ports()
