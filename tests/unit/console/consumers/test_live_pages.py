"""Live pages stay up to date, with the channel layer and without it."""

from __future__ import annotations

import asyncio
import logging

from channels.layers import InMemoryChannelLayer, get_channel_layer
from django.utils import timezone

from console.live import registry
from console.presenters.jobs import job_parts
from console.runtime.database_threads import in_database_thread
from jobs.models import Job, Membership, Transition
from tests.unit.console.log_rows import write
from tests.unit.console.views.example_rows import a_job, moved


def to_state(job, state):
    Job.objects.filter(pk=job.pk).update(state=state, version=job.version + 1, updated_at=timezone.now())
    moved(job, "RUNNING", state, cause="because")


async def test_a_job_page_is_sent_again_when_it_changed(visit, job):
    page = await visit(f"/ws/jobs/{job.pk}")
    await page.until(lambda v: v.told)
    first = page.told[0]
    assert 'id="job-live"' in first["html"] and "Running" in first["html"]
    await in_database_thread(to_state, job, "CANCELLING")
    await page.until(lambda v: len(v.told) == 2)
    assert page.told[1]["stamp"] != first["stamp"] and "Cancelling" in page.told[1]["html"]
    assert await page.quiet(1.5)
    await page.leave()


async def test_a_change_while_the_page_is_rendered_is_shown_as_well(visit, job, monkeypatch):
    """The job changes after the fragment was read and before it is sent. After that nothing changes any more."""
    draw, changed = job_parts.job_live, []

    def and_then_it_changes(*asked):
        html = draw(*asked)
        if not changed:
            changed.append(to_state(job, "CANCELLING"))
        return html

    monkeypatch.setattr(job_parts, "job_live", and_then_it_changes)
    page = await visit(f"/ws/jobs/{job.pk}")
    await page.until(lambda v: v.told and "Cancelling" in v.told[-1]["html"])
    assert "Cancelling" not in page.told[0]["html"]
    await page.leave()


async def test_lists_and_hosts_are_live(visit, cast, project, job, run):
    for path, root in (
        ("/ws/jobs?state=RUNNING", "jobs-live"),
        ("/ws/hosts", "hosts-live"),
        (f"/ws/hosts/{run.host_id}", "host-live"),
    ):
        page = await visit(path)
        await page.until(lambda v: v.told)
        assert f'id="{root}"' in page.told[0]["html"]
        if root == "jobs-live":
            await in_database_thread(a_job, project, cast.bob, name="fresh-arrival")
            await page.until(lambda v: "fresh-arrival" in v.told[-1]["html"])
        await page.leave()


async def test_jobs_of_a_project_appear_when_membership_is_given_and_go_when_it_is_removed(
    visit, cast, project, job
):
    """Nothing else happens: there is no hint and no change of a job."""
    for who in ("loner", "charlie"):
        user = getattr(cast, who)
        page = await visit("/ws/jobs", who)
        await page.until(lambda v: v.told)
        assert str(job.pk) not in page.told[0]["html"]
        await in_database_thread(Membership.objects.create, project=project, user=user, role="viewer")
        await page.until(lambda v: str(job.pk) in v.told[-1]["html"])
        await in_database_thread(Membership.objects.filter(user=user, project=project).delete)
        await page.until(lambda v: str(job.pk) not in v.told[-1]["html"])
        await page.leave()


async def test_each_group_of_the_channel_layer_is_joined_once_and_left(job):
    layer = get_channel_layer()
    here = registry.of_this_loop()
    topic, name = f"job:{job.pk}", f"job.{job.pk}"

    async def until(true):
        async with asyncio.timeout(30):
            while not true():
                await asyncio.sleep(0.01)

    async with here.watch(topic) as first, here.watch(topic, "hosts") as second:
        await until(lambda: {name, "hosts"} <= set(layer.groups))
        assert len(layer.groups[name]) == 1
        await first.wait(0), await second.wait(0)
        for _ in range(50):
            await layer.group_send(name, {"type": "hint", "topic": topic})
        assert await first.wait(30) and await second.wait(30)
        looks = 1
        while await first.wait(0.3):
            looks += 1
        assert looks < 50
    await until(lambda: not layer.groups.get(name))


class Broken:
    """A channel layer whose server does not answer."""

    def __init__(self):
        self.calls = 0

    async def new_channel(self):
        self.calls += 1
        raise ConnectionError("no redis")


async def test_without_the_channel_layer_pages_look_once_a_second(visit, job, monkeypatch, caplog):
    broken = Broken()
    monkeypatch.setattr(registry, "get_channel_layer", lambda: broken)
    monkeypatch.setattr(registry, "RETRY_S", (0.01, 0.02))
    page = await visit(f"/ws/jobs/{job.pk}")
    await page.until(lambda v: v.told)
    await in_database_thread(to_state, job, "CANCELLING")
    await page.until(lambda v: len(v.told) == 2)
    while broken.calls < 5:
        await asyncio.sleep(0.01)
    assert [record.name for record in caplog.records].count("console.live.registry") == 1
    await page.leave()


class Full(InMemoryChannelLayer):
    """A channel layer with room for one message, which nobody takes."""

    async def receive(self, channel):
        await asyncio.Event().wait()


async def test_hints_that_a_full_channel_layer_drops_cost_a_second_and_no_byte(visit, job, run, monkeypatch):
    layer = Full(capacity=1)
    monkeypatch.setattr(registry, "get_channel_layer", lambda: layer)
    page, viewer = await visit(f"/ws/jobs/{job.pk}"), await visit(f"/ws/jobs/{job.pk}/log/workerpool0-0")
    await viewer.tell(**{"from": 0})
    await page.until(lambda v: v.told)
    async with asyncio.timeout(30):
        while not layer.groups.get(f"log.{run.pk}"):
            await asyncio.sleep(0.01)
    printed = b""
    for number in range(2):
        await in_database_thread(moved, job, "RUNNING", "RUNNING", "workerpool0-0", cause=f"step {number}.")
        await in_database_thread(write, run, b"line %d\n" % number)
        printed += b"line %d\n" % number
        for topic in (f"job.{job.pk}", f"log.{run.pk}") * 3:
            await layer.group_send(topic, {"type": "hint", "topic": topic.replace(".", ":")})
        await page.until(lambda v, number=number: f"step {number}." in v.told[-1]["html"])
        await viewer.until(lambda v, printed=printed: v.bytes == printed)
    assert [waiting.qsize() for waiting in layer.channels.values()] == [1]
    await page.leave(), await viewer.leave()


async def test_a_page_never_goes_back_to_an_older_state(visit, job):
    page = await visit(f"/ws/jobs/{job.pk}")
    for number in range(15):
        await in_database_thread(
            lambda number=number: moved(
                job, "RUNNING", "RUNNING", subject="workerpool0-0", cause=f"n{number:02}."
            )
        )
        registry.of_this_loop().hint(f"job:{job.pk}")
        await asyncio.sleep(0.02)
    count = await in_database_thread(Transition.objects.filter(job=job).count)
    await page.until(lambda v: "n14." in v.told[-1]["html"] if v.told else False)
    seen = [sum(f"n{number:02}." in told["html"] for number in range(15)) for told in page.told]
    assert seen == sorted(seen) and seen[-1] == 15 and count == 16
    # A burst of changes is sent as one fragment.
    assert len(seen) <= 15
    await page.leave()


def test_the_driver_of_the_channel_layer_logs_once_a_minute(caplog):
    driver = logging.getLogger("channels_redis.pubsub")
    (once,) = [each for each in driver.filters if isinstance(each, registry.OncePerMinute)]
    once._next = 0.0
    for _ in range(5):
        try:
            raise ConnectionError("no redis")
        except ConnectionError:
            driver.exception("Unexpected exception in receive task")
    (record,) = caplog.records
    assert record.getMessage() == "Unexpected exception in receive task: no redis" and not record.exc_info
