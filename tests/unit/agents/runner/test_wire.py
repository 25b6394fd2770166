"""The framing: whole messages whatever the pieces, WireError for everything else, and bounded memory."""

from __future__ import annotations

import os
import select
import subprocess

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from agents.runner.outbox import Outbox
from agents.runner.wire import MAX_HEADER, MAX_JUNK, MAX_PAYLOAD, PREFACE, Decoder, WireError, encode
from tests.unit.agents.runner.protocol_client import PYTHON, RUNNER, wait_for

SOME = [
    ({"t": "a", "x": "é\n"}, b""),
    ({"t": "b"}, b"\n{}\x00" * 50),
    ({"t": "c", "list": [1, 2.5, None]}, b"x"),
]
STREAM = b"".join(encode(message, payload) for message, payload in SOME)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
messages = st.tuples(
    st.dictionaries(st.text(min_size=2, max_size=8), json_values, max_size=4),
    st.text(max_size=6),
    st.binary(max_size=300),
)


@given(st.lists(messages, max_size=6), st.data())
@settings(max_examples=80)
def test_encoded_messages_are_decoded_whole_however_the_stream_is_split(found, data):
    sent = [({**fields, "t": kind}, payload) for fields, kind, payload in found]
    stream = b"".join(encode(message, payload) for message, payload in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    decoder = Decoder()
    got = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += decoder.feed(stream[start:end])
    assert got == sent


def test_a_stream_cut_at_any_byte_gives_the_complete_messages_and_waits():
    for cut in range(len(STREAM) + 1):
        decoder = Decoder()
        got = decoder.feed(STREAM[:cut]) + decoder.feed(STREAM[cut:])
        assert got == SOME


@pytest.mark.parametrize(
    "line",
    [
        b"hello",
        b"[]",
        b"7",
        b"{}",
        b'{"t":7}',
        b'{"t":"a","n":-1}',
        b'{"t":"a","n":true}',
        b'{"t":"a","n":1.5}',
        b'{"t":"a","n":"1"}',
        b'{"t":"a","n":%d}' % (MAX_PAYLOAD + 1),
        b'{"t":"a","x":NaN}',
        b'{"t":"a","x":-Infinity}',
        b'{"t":"a","x":1e999}',
        b'{"t":"a","x":%s}' % (b"9" * 5000),
        b'{"t":"a","x":%s%s}' % (b"[" * 30000, b"]" * 30000),
        b"\xff\xfe",
        b"x" * MAX_HEADER,
        b"",
    ],
)
def test_a_broken_line_raises_a_wire_error_now_and_at_each_later_feed(line):
    decoder = Decoder()
    for _ in range(2):
        with pytest.raises(WireError):
            decoder.feed(line + b"\n" + STREAM)


@given(st.binary(max_size=400))
@settings(max_examples=300)
def test_random_bytes_only_raise_a_wire_error(junk):
    for preface in (False, True):
        decoder = Decoder(preface=preface)
        try:
            for message, _ in decoder.feed(junk):
                assert type(message["t"]) is str
        except WireError:
            pass


def test_a_line_without_end_is_refused_before_it_fills_the_memory():
    decoder = Decoder()
    with pytest.raises(WireError):
        for _ in range(MAX_HEADER // 1000 + 2):
            decoder.feed(b"x" * 1000)
    with pytest.raises(WireError):
        encode({"t": "x" * MAX_HEADER})
    with pytest.raises(WireError):
        encode({"t": "x"}, bytes(MAX_PAYLOAD + 1))


@pytest.mark.parametrize("banner", [b"", b"Welcome!\n\x1b[31mmotd\xff\n", b"x\n" * 20000, b"no newline$ "])
def test_what_a_login_shell_prints_is_skipped(banner):
    stream = banner + PREFACE + STREAM
    decoder = Decoder(preface=True)
    got = []
    for at in range(0, len(stream), 977):
        got += decoder.feed(stream[at : at + 977])
    assert got == SOME and decoder.greeted


def test_another_program_is_not_taken_for_a_runner():
    with pytest.raises(WireError):
        Decoder(preface=True).feed(b"yes\n" * (MAX_JUNK // 4 + 1))


def answer_of(host, data, patience=40):
    """What a fresh serve answers to these bytes before it hangs up, and its exit status."""
    process = subprocess.Popen(
        [host.python, str(RUNNER), "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=host.env,
        cwd=host.home,
    )
    out, _ = process.communicate(data, timeout=patience)
    return Decoder(preface=True).feed(out), process.returncode


def hello(**change):
    return encode({"t": "hello", "v": 1, "deployment": "dep", "epoch": 1, "console": "x", **change})


@pytest.mark.parametrize(
    ("data", "about"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "wire"),
        (hello() + b"\x00" * 100 + b"\n", "wire"),
        (hello() + b'{"t":"start","run":"r","n":99999999}\n', "wire"),
        (encode({"t": "start", "run": "r1"}), "start"),
        (hello(v=2), "hello"),
        (hello(epoch="1"), "hello"),
        (hello(epoch=True), "hello"),
        (encode({"t": "hello"}), "hello"),
        (hello() + hello(), "hello"),
    ],
)
def test_a_serve_reports_a_broken_stream_and_ends(host, data, about):
    answers, status = answer_of(host, data)
    assert answers[-1][0]["t"] == "error" and answers[-1][0]["about"] == about
    assert status == 0


def test_an_unknown_or_incomplete_frame_is_answered_and_the_stream_goes_on(console):
    for fields in (
        {"t": "nonsense"},
        {"t": "ack", "run": "r1"},
        {"t": "stop", "run": "r1"},
        {"t": "pull", "run": "r9"},
    ):
        console.say(fields.pop("t"), **fields)
        assert console.hear("error")["message"]
    console.say("stop", run="r1", grace_s="soon")
    assert console.hear("error")["about"] == "stop"
    console.say("ping", id="still there")
    assert console.hear("pong")["id"] == "still there"


frames = st.lists(
    st.tuples(
        st.sampled_from(["start", "stop", "pull", "ack", "forget", "ping", "hello", "x"]),
        st.dictionaries(
            st.sampled_from(["run", "from", "to", "grace_s", "id", "z"]),
            json_values | st.just("r1"),
            max_size=4,
        ),
        st.binary(max_size=60),
    ),
    max_size=25,
)


@given(frames, st.binary(max_size=80))
# Shrinking takes minutes.
@settings(max_examples=25, derandomize=True, phases=[Phase.generate])
def test_after_well_framed_nonsense_a_serve_lives_or_ends_in_order(tmp_path_factory, found, junk):
    from_here = tmp_path_factory.mktemp("fuzz")
    env = {"HOME": str(from_here), "PATH": os.environ["PATH"]}
    data = (
        hello() + b"".join(encode({**fields, "t": kind}, payload) for kind, fields, payload in found) + junk
    )
    process = subprocess.run(
        [PYTHON, str(RUNNER), "serve"], input=data, capture_output=True, env=env,
        timeout=60, check=False,
    )  # fmt: skip
    assert (process.returncode, process.stderr) == (0, b"")
    answers = Decoder(preface=True).feed(process.stdout)
    assert answers[0][0]["t"] == "hello"
    assert set(os.listdir(from_here)) == {".trainyard"}


def test_a_console_that_never_reads_costs_bounded_memory(host):
    console = host.connect()
    console.hello()
    pings = encode({"t": "ping", "id": "x" * 3000}) * 1000
    pipe = console.process.stdin.fileno()
    os.set_blocking(pipe, False)
    sent = 0
    while select.select([], [pipe], [], 2.0)[1]:  # until it reads no more: that is the bound
        sent += os.write(pipe, pings[sent % len(pings) :])
        assert sent < 64 << 20
    assert console.peak_mb() < 80
    wait_for(lambda: console.read(0.1) or any(m["t"] == "pong" for m in console.heard), "an answer after all")


def test_control_messages_go_first_but_never_into_the_middle_of_a_frame():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    out = Outbox(writer)
    first, second, fact = b"a" * 200_000, b"b" * 10, b"fact"
    out.bulk(first)
    out.bulk(second)
    out.flush()  # the pipe takes a part of the first frame only
    out.control(fact)
    got = b""
    while out.waiting() or len(got) < len(first + second + fact):
        got += os.read(reader, 65536)
        out.flush()
    assert got == first + fact + second
    assert (out.bulk_bytes, out.control_bytes) == (0, 0)
    os.close(reader)
    os.close(writer)


def test_a_host_remembers_the_highest_mark_that_it_received(host):
    first = host.connect()
    assert first.hello()["mark"] == 0
    for mark in (1_000, 1_005, 1_011, 500, "2000", True):
        first.say("ping", id=str(mark), mark=mark)
    first.say("ping", id="last")
    while first.hear("pong")["id"] != "last":
        pass
    second = host.connect()
    assert second.hello()["mark"] == 1_011, "written down every ten, and never back"
