"""A GPU with a foreign process is in quarantine until it is seen free; the job is placed elsewhere at no cost."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.hosts import gpu_quarantine, host_history
from agents.infra.refusals import Refused
from agents.links.control_plane import Arrival, Fact
from agents.models import Gpu, HostEvent, HostStatus
from jobs.lifecycle.advance import JOB_ENDED
from jobs.lifecycle.snapshot import spec_of
from jobs.maintenance import gpus as service
from jobs.models import GpuClaim, HostMaintenance, Run, Transition
from jobs.scheduling import capacity
from jobs.scheduling.scheduler import schedule
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import settle
from tests.unit.jobs.lifecycle.test_starts import Refusing

pytestmark = pytest.mark.django_db

STRANGER = {
    "pid": 4711,
    "ticks": 9,
    "user": "mallory",
    "age_s": 7200,
    "name": "python3",
    "how": "compute",
    "run": "",
}


class Watched(Refusing):
    """Refuses a start on a GPU on which `there` says that somebody is, as the runner does."""

    there: dict

    def minds(self, document):
        return bool(self.there.keys() & set(document["gpus"]))

    def obey(self, order, control_plane):
        self.refusal = "gpu_busy"
        told = super().obey(order, control_plane)
        for arrival in told:
            if isinstance(arrival.what, Fact) and arrival.what.document.get("refusal"):
                arrival.what.document["busy"] = self.there
        return told


@pytest.fixture
def host(add_host):
    host = Watched(add_host(gpus=2).row)
    host.there = {}
    return host


def state(index=0):
    return Gpu.objects.get(uuid=f"GPU-h1-{index}").state


def report(host, held, free=(), error="", token=7):
    document = {"gpus": held, "free": list(free), "error": error, "unseen": 3}
    return gpu_quarantine.record_look(host.row.pk, token, document, timezone.now())


def test_the_gpu_is_quarantined_and_the_job_runs_elsewhere_at_no_cost(host, submit, control_plane):
    host.there = {"GPU-h1-0": [STRANGER]}
    job = submit(spec(gpus=1))
    settle(control_plane, host)
    job.refresh_from_db()
    assert (job.state, job.attempt, job.job_retries, job.internal_tries) == ("RUNNING", 2, 0, 0)
    assert [claim.gpu.uuid for claim in GpuClaim.objects.filter(released_at=None)] == ["GPU-h1-1"]
    gpu = Gpu.objects.get(uuid="GPU-h1-0")
    assert (gpu.state, gpu.holders[0]["pid"]) == ("quarantined", 4711)
    for words in ("PID 4711", "python3", "mallory", "since"):
        assert words in gpu.state_text and HostEvent.objects.filter(text__contains=words).exists()
    told = Transition.objects.filter(job=job, subject="job", cause__contains="gpu_busy").get().cause
    assert "gpu_busy" in told and "counts against nothing" in told and "h1" in told


def test_a_job_that_finds_no_other_place_waits_and_says_so(host, submit, control_plane):
    host.there = {f"GPU-h1-{index}": [STRANGER] for index in range(2)}
    job = submit(spec(gpus=1))
    settle(control_plane, host)
    job.refresh_from_db()
    assert (job.state, job.job_retries) == ("QUEUED", 0)
    assert "2 are quarantined" in job.reason
    assert capacity.refusal(spec_of(job), "default") is None, "they are there, and may be free one day"
    assert not report(host, {"GPU-h1-0": [STRANGER]}) and state() == "quarantined"
    assert not report(host, {"GPU-h1-0": []}), "free once may be chance"
    assert (
        not report(host, {"GPU-h1-0": []}, free=["GPU-h1-0"], error="no driver") and state() == "quarantined"
    )
    assert not report(host, {"GPU-h1-0": []}, free=["GPU-h1-0"], token=6), "by another's lease"
    host.there = {}
    assert report(host, {"GPU-h1-0": []}, free=["GPU-h1-0"]) and state() == "ok"
    schedule(timezone.now())
    settle(control_plane, host)
    job.refresh_from_db()
    assert (job.state, job.job_retries, state(1)) == ("RUNNING", 0, "quarantined")


def test_a_process_that_stays_on_a_gpu_after_a_run_puts_it_in_quarantine(host, submit, control_plane):
    submit(spec(gpus=1))
    settle(control_plane, host)
    run = Run.objects.get()
    host.runs[run.pk].exit = {}
    host.end(
        control_plane, run.pk, exit_code=0, busy={"GPU-h1-0": [STRANGER], "GPU-h1-1": [STRANGER], "x": 1}
    )
    assert (state(0), state(1)) == ("quarantined", "ok"), "a run speaks for its own GPUs only"
    gpu_quarantine.record_look(
        host.row.pk, 7, {"gpus": {"GPU-h1-0": []}, "free": ["GPU-h1-0"]}, timezone.now()
    )
    host.report(control_plane, [Arrival(run.pk, host.runs[run.pk].fact(host.boot_id))])
    assert state(0) == "ok", "an old fact that the next inventory reports again changes nothing"


@pytest.mark.parametrize(
    "busy", [None, {}, [], 7, {"GPU-h1-0": 7}, {"GPU-h1-0": [7, {"pid": "x", "age_s": -1}]}]
)
def test_a_refusal_without_names_or_with_nonsense_keeps_its_gpus_out_of_use(
    host, submit, control_plane, busy
):
    submit(spec(gpus=1))
    run = Run.objects.get()
    refused = {
        "phase": "closed",
        "why": "refused",
        "refusal": "gpu_busy",
        "message": "so it is",
        "busy": busy,
    }
    host.report(control_plane, [Arrival(run.pk, Fact(refused))])
    assert state() == "quarantined"


@pytest.mark.parametrize(
    "nonsense", [{}, {"gpus": 7}, {"gpus": {"GPU-h1-0": 7}, "free": 7}, {"gpus": {"é": []}}]
)
def test_a_report_of_nonsense_frees_nothing(host, nonsense):
    gpu_quarantine.quarantine(host.row.pk, {"GPU-h1-0": []}, "held by another run", timezone.now())
    assert (
        not gpu_quarantine.record_look(host.row.pk, 7, nonsense, timezone.now()) and state() == "quarantined"
    )


def test_a_host_gets_the_gpus_to_watch_and_the_processes_to_evict(host):
    now = timezone.now()
    assert gpu_quarantine.watched_gpus(host.row.pk) == gpu_quarantine.WatchedGpus()
    gpu_quarantine.quarantine(host.row.pk, {"GPU-h1-0": [STRANGER], "GPU-h1-1": []}, "why", now)
    service.act(Gpu.objects.get(uuid="GPU-h1-0"), "evict", "root", now)
    service.act(Gpu.objects.get(uuid="GPU-h1-1"), "recheck", "root", now)
    wanted = gpu_quarantine.watched_gpus(host.row.pk)
    assert wanted == gpu_quarantine.WatchedGpus(
        ("GPU-h1-0", "GPU-h1-1"), ("GPU-h1-1",), (("GPU-h1-0", ((4711, 9),)),)
    )
    gpu_quarantine.record_eviction(host.row.pk, 7, {"gpu": "GPU-h1-0", "words": ["PID 4711 was killed"]}, now)
    assert gpu_quarantine.watched_gpus(host.row.pk).evictions == ()
    event = HostEvent.objects.filter(kind="gpu_evicted").get()
    assert (event.actor, "was killed" in event.text) == ("root", True)


def test_an_admin_may_release_a_gpu_and_the_next_start_checks_it_again(host, submit, control_plane):
    now = timezone.now()
    gpu_quarantine.quarantine(host.row.pk, {"GPU-h1-0": [STRANGER]}, "why", now)
    gpu = Gpu.objects.get(uuid="GPU-h1-0")
    service.act(gpu, "use", "root", now + timedelta(seconds=1))
    assert state() == "ok" and gpu_quarantine.watched_gpus(host.row.pk) == gpu_quarantine.WatchedGpus()
    with pytest.raises(Refused, match="in use already"):
        service.act(gpu, "evict", "root", now)
    host.there = {"GPU-h1-0": [STRANGER]}
    submit(spec(gpus=1))
    settle(control_plane, host)
    assert state() == "quarantined" and not HostMaintenance.objects.exists()


def test_a_host_cannot_forge_an_answer_to_an_admin_nor_flood_its_history(host):
    """An eviction that nobody asked for is not recorded, and a host causes at most MAX_A_MINUTE lines in a minute."""
    now = timezone.now()
    gpu_quarantine.record_eviction(host.row.pk, 7, {"gpu": "GPU-h1-0", "words": ["PID 1 was killed"]}, now)
    assert not HostEvent.objects.exists()
    for _ in range(3 * host_history.MAX_A_MINUTE):
        host_history.record(host.row.pk, "gpu_free", "again", "trainyard", now)
    host_history.record(host.row.pk, "cordoned", "a person says so", "root", now)
    kinds = list(HostEvent.objects.order_by("id").values_list("kind", flat=True))
    assert kinds == ["gpu_free"] * (host_history.MAX_A_MINUTE - 1) + ["more", "cordoned"]
    # Others rely on these lines: no flood of other lines keeps them out.
    for number in range(2 * host_history.MAX_A_MINUTE):
        status = [HostStatus.UNREACHABLE, HostStatus.UP][number % 2]
        assert host_history.set_status(host.row.pk, status, "", now)
        host_history.record(
            host.row.pk, JOB_ENDED, "Ended without its proof.", host_history.TRAINYARD, now, limited=False
        )
    assert HostEvent.objects.filter(kind__in=(HostStatus.UNREACHABLE, HostStatus.UP)).count() == number + 1
    assert HostEvent.objects.filter(kind=JOB_ENDED).count() == number + 1
    host_history.record(host.row.pk, "gpu_free", "later", "trainyard", now + timedelta(minutes=1))
    assert HostEvent.objects.latest("id").text == "later"
