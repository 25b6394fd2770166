"""Secrets in logs: masked wherever frames, reads and gaps cut them, also after their values are deleted."""

from __future__ import annotations

import base64
import json
import random
from urllib.parse import quote

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.runner.logs.mask_patterns import MaskPatterns, blank, merged
from jobs import sweep
from jobs.logs import entries, live_end, mask_places, masking, reader, segments, stored_bytes, verify
from jobs.logs.run_search import search_run
from jobs.logs.search_pattern import SearchPattern
from jobs.models import Job, JobSecret, LogSegment, MaskedLog, MaskedRange, Run
from jobs.rules.lifecycle.states import JobState
from jobs.secrets import of_jobs
from tests.harness.examples import examples_here
from tests.unit.console.log_rows import complete, lose, undone, write
from tests.unit.jobs.secrets.test_of_jobs import with_env

SECRET = "hf_Ab3dEf9hIjKl"
RAW = SECRET.encode()
STARS = b"*" * len(RAW)


@pytest.fixture(autouse=True)
def nothing_is_remembered():
    masking._without.clear()
    masking._with_secrets.clear()


def submit_with(submit, *values):
    env = [{"name": f"S{number}", "value": value, "secret": True} for number, value in enumerate(values)]
    submit(with_env(*env))
    return Run.objects.get()


@pytest.fixture
def run(add_host, submit):
    add_host()
    return submit_with(submit, SECRET)


def whole(run, size=1 << 20):
    """All that can be read, by reads of this size."""
    data, at = b"", 0
    while True:
        chunk = reader.read(run, at, size)
        data += chunk.data
        if chunk.end == at:
            return data
        at = chunk.end


def over(run):
    """The job is over, and its logs are complete and verified."""
    complete(run)
    Job.every.filter(pk=run.job_id).update(
        state=JobState.SUCCEEDED, ended_at=timezone.now(), outcome=JobState.SUCCEEDED
    )
    return Run.objects.get(pk=run.pk)


def forget_values(run):
    over(run)
    mask_places.find_places(mask_places.due())
    masking._with_secrets.clear()
    assert not JobSecret.objects.exclude(sealed=None).exists()


# What is masked: pure.


@pytest.mark.parametrize(
    "printed",
    [
        SECRET.encode(),
        json.dumps({"token": SECRET}).encode(),
        base64.b64encode(f"user:{SECRET}".encode()),
        base64.b64encode(f"me:{SECRET}\n".encode()),
        base64.b64encode(f"x{SECRET}".encode()),
        base64.urlsafe_b64encode(SECRET.encode()),
        f"https://u:{quote(SECRET)}@host/".encode(),
    ],
)
def test_the_forms_in_which_programs_print_a_secret(printed):
    data = bytearray(b"before " + printed + b" behind")
    blank(data, MaskPatterns([SECRET]).spans(bytes(data)))
    assert data.startswith(b"before ") and data.endswith(b" behind") and len(data) == len(printed) + 14
    assert RAW not in data and b"*******" in data
    shown = data.replace(b"*", b"")
    for size in range(6, len(RAW)):
        assert RAW[:size] not in shown and base64.b64encode(RAW)[2:size] not in shown


def test_quotes_and_control_characters_of_a_value():
    value = 'a"b\\c/d é\te'
    for printed in (
        json.dumps(value),
        json.dumps(value, ensure_ascii=False),
        repr(value),
        quote(value, safe=""),
    ):
        data = bytearray(f"<{printed}>".encode())
        blank(data, MaskPatterns([value]).spans(bytes(data)))
        assert set(data.strip(b"<>").strip(b"\"'")) == {ord("*")}, printed


def test_a_key_of_several_lines_is_masked_line_by_line():
    lines = [f"{number}{'abcdef' * 10}" for number in range(5)]
    value = "\n".join(["-----BEGIN KEY-----", *lines, "-----END KEY-----", ""])
    patterns = MaskPatterns([value])
    printed = "\r\n".join(f"   {line}" for line in lines).encode()
    data = bytearray(printed)
    blank(data, patterns.spans(printed))
    assert not any(line.encode() in data for line in lines) and data.count(b"\r\n") == 4
    data = bytearray(value.replace("\n", "\r\n").encode())
    blank(data, patterns.spans(bytes(data)))
    assert b"abc" not in data and data.count(b"\r\n") == value.count("\n"), "line numbers stay"


def test_short_values_are_not_masked():
    assert MaskPatterns(["12345", ""]).spans(b"12345 of 12345") == []


def test_overlapping_secrets_are_masked_together():
    data = bytearray(b"..abcdefghijkl..")
    blank(data, MaskPatterns(["abcdefgh", "efghijkl"]).spans(bytes(data)))
    assert data == b"..************.."
    assert merged([(5, 9), (0, 3), (2, 6)]) == [(0, 9)]


@given(st.binary(max_size=30), st.integers(0, len(RAW) - 1))
def test_the_beginning_of_a_secret_at_the_end(before, size):
    patterns = MaskPatterns([SECRET])
    data = before + RAW[:size]
    found = patterns.unfinished(data)
    assert found >= size or (found == 0 and size == 0)
    assert any(needle.startswith(data[len(data) - found :]) for needle in patterns.needles) or found == 0


# What is read.


@pytest.mark.django_db
def test_a_secret_is_masked_wherever_frames_cut_it(run):
    """Every cut of a frame within the secret, and reads of many sizes."""
    expected = b""
    for cut in range(len(RAW) + 1):
        write(run, b"line " + RAW[:cut])
        write(run, RAW[cut:] + b"\n")
        expected += b"line " + STARS + b"\n"
    for size in (1, 2, 5, 13, 14, 1000):
        assert whole(run, size) == expected
    assert RAW in stored_bytes.read(run, 0, 1000).data
    for start in range(0, len(expected), 3):
        assert reader.read(run, start, 40).data == expected[start : start + 40]


def roll_in_small_segments(run):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "size", lambda: 10)
        while segments.roll(run.pk):
            pass


PARTS = st.lists(
    st.sampled_from([b"abc\n", RAW, RAW[:5], RAW[5:], RAW[:-1], b"hf_", b"x" * 40, base64.b64encode(RAW)]),
    min_size=1,
    max_size=12,
)


@pytest.mark.django_db(transaction=False)
@settings(max_examples=examples_here(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=PARTS, seed=st.integers(0, 10_000), values_kept=st.booleans(), rolled=st.booleans())
def test_offsets_stay_and_no_cut_shows_a_secret(run, parts, seed, values_kept, rolled):
    """Whatever the frames and the reads: what is read is the masked whole, also when only the places are known."""
    with undone():
        reads_show_no_secret(run, parts, seed, values_kept, rolled)


def reads_show_no_secret(run, parts, seed, values_kept, rolled):
    dice, text = random.Random(seed), b"".join(parts) + b"."
    patterns = MaskPatterns([SECRET])
    at = 0
    while at < len(text):
        size = dice.randint(1, 15)
        write(run, text[at : at + size])
        at += size
    if rolled:
        roll_in_small_segments(run)
    expected = bytearray(text)
    blank(expected, patterns.spans(text))
    by_values, by_places = masking.MaskByValues(patterns), masking.MaskByPlaces()
    known, _ = MaskedLog.objects.get_or_create(run=run)
    fresh = Run.objects.get(pk=run.pk)
    while known.masked_to < len(text):
        mask_places._step(by_values, fresh, known)
    mask = by_values if values_kept else by_places
    for _ in range(10):
        start, size = dice.randint(0, len(text)), dice.randint(1, 30)
        chunk = mask.read(run, start, size)
        assert chunk.start == start and chunk.data == bytes(expected[start : chunk.end])
        assert chunk.end == min(start + size, len(text)) or chunk.end > len(text) - len(RAW) * 2


@pytest.mark.django_db
def test_at_the_live_end_the_beginning_of_a_secret_is_held_back(run):
    write(run, b"token: " + RAW[:6])
    assert whole(run) == b"token: " and reader.shown_end(run, 13) == 7
    write(run, b"other\n")
    assert whole(run) == b"token: " + RAW[:6] + b"other\n"
    write(run, RAW[:6])
    assert whole(run).endswith(b"other\n")
    complete(run)
    assert whole(run).endswith(b"other\n" + RAW[:6]), "the program printed no more of it"


@pytest.mark.django_db
def test_bytes_that_arrive_between_two_statements_show_nothing(run, monkeypatch):
    """The log grows after it was read and before its end is looked at."""
    write(run, b"token: " + RAW[:6])
    wide = stored_bytes.read(run, 0, 100)
    write(run, RAW[6:])
    mask = masking.of_run(run.pk)
    monkeypatch.setattr(mask, "wide_read", lambda *_: wide)
    assert mask.read(run, 0, 100).data == b"token: "


@pytest.mark.django_db
def test_a_secret_beside_a_gap(run):
    write(run, b"a " + RAW + b" b" + RAW[:8])
    lose(run, 50)
    write(run, RAW[8:] + b" c " + RAW)
    first = reader.read(run, 0, 1000)
    assert first.data == b"a " + STARS + b" b" + RAW[:8]
    second = reader.read(run, first.end, 1000)
    assert second.gaps == (reader.MissingRange(first.end, first.end + 50, "the host's log was cut"),)
    assert second.data == RAW[8:] + b" c " + STARS
    inside = reader.read(run, first.end + 20, 1000)
    assert (inside.start, inside.data, inside.gaps[0].start) == (second.start, second.data, first.end + 20)
    forget_values(run)
    assert whole(run) == first.data + second.data


@pytest.mark.django_db
def test_a_search_cannot_find_a_secret_letter_by_letter(run):
    write(run, b"the token is " + RAW + b" and\nnothing else\n")
    for needle in (SECRET, SECRET[:3], SECRET[3:7], SECRET[-4:]):
        assert search_run(run, SearchPattern(needle), 0, reader.size(run)).hits == ()
    [hit] = search_run(run, SearchPattern("token is"), 0, reader.size(run)).hits
    assert hit.text == b"the token is " + STARS + b" and"


@pytest.mark.django_db
def test_entries_and_the_live_end_are_masked(run):
    write(run, b"the token is " + RAW + b"\nnext\n", wall=1000.0)
    found = [entry.data for entry in entries.after(run, 0.0)]
    assert found == [b"the token is " + STARS, b"next"]
    status, blocks = live_end.read_live_end(run.pk, 0)
    assert status.stored == reader.size(run) and blocks == []
    assert b"".join(reader.stream(run, 0, 1000)).startswith(b"the token is " + STARS)


@pytest.mark.django_db
def test_ranges_are_kept_after_the_values_are_gone(run, small):
    for number in range(40):
        write(run, f"{number:03} ".encode() + RAW + b" " + RAW[:4] + b"\n")
    before = whole(run)
    forget_values(run)
    assert (
        of_jobs.values_of(run.job_id) == [] and MaskedLog.objects.get().ranges == MaskedRange.objects.count()
    )
    assert whole(run) == whole(run, 7) == before and RAW not in before and before.count(STARS) == 40
    segments.roll(run.pk)
    assert LogSegment.objects.exists() and whole(run, 100) == before
    assert reader.is_masked(run.pk)


@pytest.mark.django_db
def test_the_values_stay_until_every_log_is_here_and_verified(run):
    write(run, RAW)
    assert mask_places.due() == []
    over(run)
    for waits in ({"log_complete_at": None}, {"prove_due_at": timezone.now()}):
        kept = Run.objects.filter(pk=run.pk).values(*waits).get()
        Run.objects.filter(pk=run.pk).update(**waits)
        assert mask_places.due() == []
        Run.objects.filter(pk=run.pk).update(**kept)
    assert mask_places.due() == [run.job_id]
    sweep.sweep(timezone.now())
    assert mask_places.due() == [] and not JobSecret.objects.exclude(sealed=None).exists()


@pytest.mark.django_db
def test_looking_through_a_long_log_goes_on_where_it_ended(run, monkeypatch):
    monkeypatch.setattr(mask_places, "STEP", 50)
    monkeypatch.setattr(mask_places, "SLICE_S", -1.0)
    for _ in range(30):
        write(run, b"abc " + RAW + b"\n")
    before = whole(run)
    over(run)
    rounds = 0
    while mask_places.due():
        mask_places.find_places(mask_places.due())
        rounds += 1
    masking._with_secrets.clear()
    assert rounds > len(before) // 50 and whole(run) == before


@pytest.mark.django_db
def test_a_log_with_very_many_secrets_needs_few_rows(run, monkeypatch):
    monkeypatch.setattr(mask_places, "MAX_PLACES", 10)
    monkeypatch.setattr(mask_places, "STEP", 100)
    monkeypatch.setattr(mask_places, "BLOCK", 100)
    for number in range(100):
        write(run, f"{number:03} ".encode() + RAW + b"\n")
    forget_values(run)
    assert MaskedRange.objects.count() < 50
    shown = whole(run)
    assert RAW not in shown and len(shown) == 100 * (5 + len(RAW))
    assert shown.startswith(b"000 " + STARS + b"\n001 ")


@pytest.mark.django_db
def test_what_was_not_looked_through_is_masked_as_a_whole(run):
    """A value that nobody can read any more: its places cannot be found."""
    write(run, b"plain " + RAW)
    JobSecret.objects.update(sealed=b"damaged")
    assert whole(run) == b"*" * (6 + len(RAW))


@pytest.mark.django_db
def test_the_stored_bytes_and_their_digest_stay_those_of_the_program(run):
    write(run, b"the token is " + RAW)
    Run.objects.filter(pk=run.pk).update(prove_due_at=timezone.now(), phase="closed")
    verify.verify_logs([run.pk], timezone.now())
    assert (
        reader.status(run).digest_here
        == "sha256:" + verify.hashlib.sha256(b"the token is " + RAW).hexdigest()
    )


@pytest.mark.django_db
def test_a_job_without_secrets_pays_one_query_in_a_process(add_host, submit, django_assert_num_queries):
    add_host()
    submit()
    run = Run.objects.get()
    write(run, b"abc\n" * 100)
    with django_assert_num_queries(1):
        assert masking.of_run(run.pk) is None
    with django_assert_num_queries(0):
        assert masking.of_run(run.pk) is None
