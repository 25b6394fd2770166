"""The one socket of a page: its parts and the notes, as the page itself has them."""

from __future__ import annotations

import contextlib
import re
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from django.test import Client
from django.utils import timezone

from agents.hosts import recovery
from agents.models import Gpu, Host
from agents.ssh.host_keys import fingerprint
from console.auth import tokens
from console.consumers import live_pages
from console.consumers.socket_lifecycle import GONE, Closed
from console.parts.part import place_of
from console.parts.registry import parts_of
from console.presenters import live
from console.runtime.database_threads import in_database_thread
from jobs.maintenance.remove_host import remove_host
from jobs.models import GpuClaim, Membership, Replica, Run, Trial
from tests.unit.console.consumers.test_live_pages import to_state
from tests.unit.console.views.example_rows import KEY, OTHER_KEY, a_host, a_tuning_job, one_line
from tests.unit.console.views.test_job_tabs import many

PAGES = (
    *("/jobs/", "/jobs/?state=RUNNING", "/jobs/{job}/", "/jobs/{job}/?replica=workerpool0-0"),
    *("/jobs/{job}/log", "/jobs/{job}/log/workerpool0-0", "/jobs/{job}/metrics", "/jobs/{job}/spec"),
    *("/jobs/{job}/events", "/jobs/{job}/events?kind=state"),
    *("/hosts/", "/hosts/{host}/", "/hosts/gpus", "/projects/", "/projects/default/"),
    *("/studies/", "/studies/{study}/", "/studies/{study}/?sort=-number"),
    *("/studies/{study}/curves", "/studies/{study}/spec"),
    *("/hosts/?sort=-runs", "/usage/", "/account/security", "/account/notifications"),
)
OF_ADMINS = (
    "/hosts/keys",
    "/audit/",
    "/audit/?kind=host",
    "/admin/people/",
    "/projects/default/notifications",
)


USE = (("/projects/default/", "vera"), ("/projects/", "bob"), ("/projects/", "root"))


def at(page):
    return f"/ws/live?at={quote(page, safe='')}"


def ids(html):
    """The ids of the elements at the top of a message, which the page's script looks for."""
    depth, found = 0, []
    for end, tag, rest in re.findall(r"<(/?)([a-z0-9]+)((?:\"[^\"]*\"|[^>\"])*)>", html):
        if tag in ("input", "br", "hr", "img", "use", "meta", "link"):
            continue
        if not end and depth == 0:
            found.append(re.search(r'\bid="([^"]+)"', rest)[1])
        depth += -1 if end else 1
    return found


def number_of_parts(page):
    return len(parts_of(place_of(page)))


def without_times(html):
    """Relative times are those of the moment, and white space says nothing."""
    html = re.sub(r'(<[^>]* data-(?:ago|since|until)="[^"]*"[^>]*>)[^<]*', r"\1", html)
    return re.sub(r"\s+", " ", html)


def page_of(user, address):
    client = Client()
    client.force_login(user)
    return client.get(address, headers={"accept": "text/html"}).content.decode()


@pytest.mark.parametrize(
    ("who", "page"),
    [(who, page) for page in PAGES for who in ("root", "bob", "vera")]
    + [("root", page) for page in OF_ADMINS],
)
async def test_page_and_push_have_the_same_bytes(visit, cast, job, run, page, who):
    study = await in_database_thread(a_tuning_job, job)
    page = page.format(job=job.pk, host=run.host_id, study=study.pk)
    whole = await in_database_thread(page_of, getattr(cast, who), page)
    socket = await visit(at(page), who)
    await socket.until(lambda v: len(v.html) == number_of_parts(page))
    pushed = [name for html in socket.html for name in ids(html)]
    assert "notes" in pushed and len(set(pushed)) == len(pushed) == len(socket.html)
    for part in socket.html:
        assert without_times(part).strip() in without_times(whole), page
    await socket.leave()


async def test_the_page_of_a_host_says_that_it_was_removed(visit, run):
    def remove():
        now = timezone.now()
        over = {"released_at": now, "phase": "closed", "log_complete_at": now, "metrics_proof": "none"}
        Run.objects.filter(pk=run.pk).update(**over)
        remove_host(run.host, "root", now)

    page = f"/hosts/{run.host_id}/"
    socket = await visit(at(page), "bob")
    await socket.until(lambda v: len(v.html) == number_of_parts(page))
    await in_database_thread(remove)
    await socket.until(lambda v: any("Removed" in part for part in v.html))
    await socket.leave()
    again = await visit(at(page), "bob")
    assert again.accepted
    await again.until(lambda v: len(v.html) == number_of_parts(page))
    await again.leave()


async def test_the_page_of_a_study_changes_with_its_trials(visit, job):
    study = await in_database_thread(a_tuning_job, job)
    page = await visit(at(f"/studies/{study.pk}/"), "bob")
    await page.until(lambda v: len(v.html) == 3)

    def change(**columns):
        Trial.objects.filter(tuning_job=study).update(**columns)

    final = {"step": 1, "elapsed": 1.0, "metrics": {"loss": 0.125}}
    await in_database_thread(lambda: change(state="SUCCEEDED", final=final, ended_at=timezone.now()))
    await page.until(lambda v: any("1 of 1 trials" in one_line(html) for html in v.html[3:]))
    await page.until(lambda v: any("--x=0.5" in html and "0.125" in html for html in v.html[3:]))
    await page.leave()


async def test_the_answer_to_htmx_has_the_same_parts(visit, cast, job, run):
    def asked(page):
        client = Client()
        client.force_login(cast.bob)
        return client.get(page, headers={"HX-Request": "true"}).content.decode()

    for page in ("/jobs/", f"/jobs/{job.pk}/metrics", f"/jobs/{job.pk}/events", "/hosts/"):
        answer = await in_database_thread(asked, page)
        socket = await visit(at(page), "bob")
        await socket.until(lambda v, page=page: len(v.html) == number_of_parts(page))
        # What is exchanged stands below the charts.
        around = ('id="notes"', 'id="job-head"', 'id="job-points"', 'id="job-reports"')
        for part in socket.html:
            if not any(name in part for name in around):
                assert without_times(part).strip() in without_times(answer), page
        await socket.leave()


@pytest.mark.parametrize(
    ("who", "page"),
    [
        ("", "/jobs/"),
        ("charlie", "/jobs/{job}/"),
        ("loner", "/jobs/{job}/"),
        ("loner", "/hosts/"),
        ("loner", "/hosts/{host}/"),
        ("loner", "/hosts/gpus"),
        ("charlie", "/projects/default/"),
        ("bob", "/jobs/99999/"),
        ("bob", "/nothing/here"),
        ("bob", "//evil.example/jobs/"),
        ("bob", "https://evil.example/jobs/"),
        ("bob", ""),
        ("bob", "/jobs/?" + "x" * 5000),
        ("bob", "http://[/"),
    ],
)
async def test_a_stranger_is_refused_and_so_is_an_address_that_is_no_page(visit, cast, job, run, who, page):
    socket = await visit(at(page.format(job=job.pk, host=run.host_id)), who)
    assert not socket.accepted


async def test_every_page_has_the_notes(visit, job):
    for page in (
        "/account",
        "/usage/",
        "/help/training",
    ):
        socket = await visit(at(page), "vera")
        await socket.until(lambda v: ["notes"] in map(ids, v.html))
        await socket.leave()


async def test_a_note_comes_when_it_is_true_and_goes_when_it_is_not(visit, cast, job, run):
    def change_key(offered):
        Host.objects.filter(pk=run.host_id).update(offered_key=offered)

    root, vera, loner = [await visit(at("/help/training"), who) for who in ("root", "vera", "loner")]
    for socket in (root, vera, loner):
        await socket.until(lambda v: v.html)
        assert "has changed" not in socket.html[0]
    await in_database_thread(change_key, OTHER_KEY)
    for socket, way in ((root, True), (vera, False)):
        await socket.until(lambda v: len(v.html) == 2)
        assert fingerprint(KEY) in socket.html[1] and fingerprint(OTHER_KEY) in socket.html[1]
        assert (f'formaction="/hosts/{run.host_id}/accept"' in socket.html[1]) is way
    assert await loner.quiet(1.5), "a person who may not see the host is told nothing"
    await in_database_thread(change_key, "")
    for socket in (root, vera):
        await socket.until(lambda v: len(v.html) == 3)
        assert "has changed" not in socket.html[2]
    for socket in (root, vera, loner):
        await socket.leave()


async def test_one_rendering_of_the_notes_serves_all_pages_of_people_with_the_same_rights(
    visit, job, monkeypatch
):
    drawn, draw = [], live.notes_live
    monkeypatch.setattr(live, "notes_live", lambda user: drawn.append(user.username) or draw(user))
    sockets = [
        await visit(at(page), "vera") for page in ("/account", "/usage/", "/jobs/", "/projects/", "/hosts/")
    ]
    for socket in sockets:
        await socket.until(lambda v: any('id="notes"' in html for html in v.html))
    assert drawn == ["vera"]
    for socket in sockets:
        await socket.leave()


async def test_a_page_shows_what_is_left_of_lost_rights_and_is_closed_without_any(visit, cast, project, job):
    page = await visit(at(f"/jobs/{job.pk}/"), "bob")
    await page.until(lambda v: len(v.html) == number_of_parts(f"/jobs/{job.pk}/"))
    assert "Cancel the job" in "".join(page.html)
    await in_database_thread(Membership.objects.filter(user=cast.bob, project=project).update, role="viewer")
    seen = len(page.html)
    await page.until(
        lambda v: any('"job-head"' in html and "Cancel the job" not in html for html in v.html[seen:])
    )
    await in_database_thread(Membership.objects.filter(user=cast.bob, project=project).delete)
    assert (await page.until_closed())[0] == 4404


async def test_of_a_thousand_cells_only_those_are_sent_that_changed(visit, cast, project):
    def begin():
        return many(project, cast, 1000, a_host("gpu-of-many"))

    def change(job):
        Replica.objects.filter(job=job, name="workerpool1-3").update(state="FAILED")
        to_state(job, job.state)

    def cells(html):
        return re.findall(r'<a data-piece id="cell-([^"]+)"', html)

    job = await in_database_thread(begin)
    address = f"/jobs/{job.pk}/"
    early = await visit(at(address), "bob")
    await early.until(lambda v: len(v.html) == number_of_parts(address))
    [whole] = [html for html in early.html if cells(html)]
    assert len(cells(whole)) == 1000
    shown = len(early.html)
    await in_database_thread(change, job)
    await early.until(lambda v: any(cells(html) for html in v.html[shown:]))
    [changed] = [html for html in early.html[shown:] if cells(html)]
    assert ids(changed) == ["cells-tally", "cell-workerpool1-3"]
    assert len(changed) < 2000 < 200_000 < len(whole)
    # The pieces are those of the page as it is now; and a page that is opened later gets all of it.
    page = await in_database_thread(page_of, cast.bob, address)
    late = await visit(at(address), "bob")
    await late.until(lambda v: len(v.html) == number_of_parts(address))
    [other] = [html for html in late.html if cells(html)]
    for piece in re.split(r"(?<=</ul>)", changed):
        assert piece in page and piece in other
    assert len(cells(other)) == 1000
    for socket in (early, late):
        await socket.leave()


async def test_recovery_mode_is_told_without_a_reload(visit, job):
    socket = await visit(at("/jobs/"), "vera")
    await socket.until(lambda v: len(v.html) == 2)
    await in_database_thread(recovery.begin, "The test says so.", timezone.now())
    await socket.until(lambda v: "only observes" in " ".join(v.html[-1].split()))
    assert "/recovery/" not in socket.html[-1]
    await socket.leave()


def hold(run):
    known = {"model": "NVIDIA L4", "memory_mb": 24576, "accelerator_type": "NVIDIA_L4"}
    return GpuClaim.objects.create(
        gpu=Gpu.objects.create(host=run.host, uuid="GPU-x", index=0, **known), run=run
    )


def let_go(claim):
    GpuClaim.objects.filter(pk=claim.pk).update(released_at=timezone.now())


async def test_the_map_of_gpus_is_live_and_names_a_job_to_its_project_only(visit, cast, job, run):
    bob, other = [await visit(at("/hosts/gpus"), who) for who in ("bob", "charlie")]
    for socket in (bob, other):
        await socket.until(lambda v: len(v.html) == 2)
    claim = await in_database_thread(hold, run)
    for socket, named in ((bob, True), (other, False)):
        await socket.until(lambda v: "1 held by a job" in " ".join(v.html[-1].split()))
        assert (f"/jobs/{job.pk}/" in socket.html[-1]) is named
    await in_database_thread(let_go, claim)
    for socket in (bob, other):
        await socket.until(lambda v: "1 free" in " ".join(v.html[-1].split()))
        await socket.leave()


async def test_what_a_project_uses_is_live_and_each_person_sees_their_own_role(visit, cast, project, job):
    use, bob, root = [await visit(at(page), who) for page, who in USE]
    for socket in (use, bob, root):
        await socket.until(lambda v: len(v.html) == 2)
    roles = [re.findall(r'data-label="Your role">([^<]*)<', "".join(socket.html)) for socket in (bob, root)]
    assert roles == [["submitter"], ["–", "–"]]
    await in_database_thread(to_state, job, "QUEUED")
    await use.until(lambda v: re.search(r'Waiting jobs.*?nowrap">\s*1\b', v.html[-1], re.DOTALL))
    await bob.until(lambda v: '"Waiting">1<' in v.html[-1])
    for socket in (use, bob, root):
        await socket.leave()


async def test_a_host_is_added_to_the_list_by_push(visit, cast, job):
    socket = await visit(at("/hosts/"), "root")
    await socket.until(lambda v: len(v.html) == 2)
    await in_database_thread(a_host, "fresh-arrival")
    await socket.until(lambda v: "fresh-arrival" in v.html[-1])
    await socket.leave()


async def test_a_token_that_is_made_or_revoked_elsewhere_is_shown_to_its_owner_alone(visit, cast):
    mine, his = await visit(at("/account"), "bob"), await visit(at("/account"), "vera")
    for socket in (mine, his):
        await socket.until(lambda v: any('id="tokens-live"' in html for html in v.html))
    row, _ = await in_database_thread(tokens.create, cast.bob, "night-build", timezone.now())
    await mine.until(lambda v: "night-build" in v.html[-1])
    await in_database_thread(tokens.revoke, cast.bob, row.pk, timezone.now())
    await mine.until(lambda v: 'id="tokens-live"' in v.html[-1] and "night-build" not in v.html[-1])
    assert not any("night-build" in html for html in his.html)
    await mine.leave()
    await his.leave()


async def test_a_part_that_has_ended_does_not_mind_other_rights(monkeypatch):
    """A check may be under way when a socket ends: it must not replace the reason that people read."""

    @contextlib.asynccontextmanager
    async def gone(source):
        raise Closed(GONE, "It is not here any more.")
        yield

    monkeypatch.setattr(live_pages.fragments, "follow", gone)
    follower = live_pages._Follower(None, None, SimpleNamespace(rights="old"))
    monkeypatch.setattr(follower, "_source", lambda: None)
    with pytest.raises(Closed):
        await follower.follow()
    follower.may_see(SimpleNamespace(rights="new"))
