"""A webhook reaches no address that an admin did not allow, whatever its name resolves to now or a moment later."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from ipaddress import ip_network

import pytest

from agents.infra import name_lookup
from jobs.notifications import webhook
from jobs.rules.notifications import DELAYS_S, address_refusal, delay_s, event_of
from tests.unit.jobs.notifications.receivers import Hook, serving

LOOPBACK = (ip_network("127.0.0.0/8"),)
LOCAL = [
    *("127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.9.9", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
    *("255.255.255.255", "224.0.0.1", "::1", "fe80::1%eth0", "fc00::1", "::ffff:127.0.0.1", "::", "ff02::1"),
    *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:0001::", "240.0.0.1", "192.0.2.1"),
]


@pytest.mark.parametrize("address", LOCAL)
def test_local_addresses_are_refused(address):
    assert address_refusal(address, ())


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808"])
def test_public_addresses_are_allowed(address):
    assert address_refusal(address, ()) == ""


def test_only_networks_that_an_admin_allows_are_allowed():
    allowed = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
    assert address_refusal("10.9.9.9", allowed) == address_refusal("fd00::5", allowed) == ""
    assert address_refusal("192.168.0.1", allowed) and address_refusal("::1", allowed)


@pytest.fixture
def names(monkeypatch):
    """What names resolve to: a list of answers for each name, of which the last is given for ever."""
    known, real = {}, socket.getaddrinfo

    def resolve(host, port, *args, **options):
        if host not in known:
            return real(host, port, *args, **options)
        answers = known[host]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return known


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://127.0.0.1:{port}/",
            "http://localhost:{port}/",
            "http://[::1]:{port}/",
            "http://0x7f.1:{port}/",
        ),
        *("http://2130706433:{port}/", "http://inside.example:{port}/", "https://mixed.example:{port}/"),
    ],
)
def test_every_way_to_this_machine_is_closed(url, names):
    names["inside.example"] = [["127.0.0.1"]]
    names["mixed.example"] = [["8.8.8.8", "127.0.0.1"]]
    with serving(Hook()) as hook:
        answer = webhook.post(url.format(port=hook.port), b"{}", {}, ())
        assert answer.final and not answer.taken and not hook.heard
        assert "local address" in answer.text


def test_the_answer_hides_what_an_internal_name_resolves_to(names):
    names["inside.example"] = [["10.7.7.7"]]
    answer = webhook.post("https://inside.example/", b"{}", {}, ())
    assert "inside.example" in answer.text and "10.7" not in answer.text


def test_a_name_that_resolves_differently_later_has_no_effect(names):
    """DNS rebinding: the name resolves to an allowed address first, and to this machine when it is resolved again."""
    names["rebind.example"] = [["127.0.0.2"], ["127.0.0.1"]]
    with serving(Hook()) as hook:
        answer = webhook.post(hook.url("rebind.example"), b"{}", {}, (ip_network("127.0.0.2/32"),))
        assert answer.text.startswith("No answer") and not hook.heard
    assert len(names["rebind.example"]) == 1  # it was resolved once


@pytest.mark.parametrize(
    ("url", "allowed", "words"),
    [
        ("https://localhost/hook", (), "local address"),
        ("https://here.localhost/hook", (), "local address"),
        ("https://0x7f.1/hook", (), "local address"),
        ("https://[::1]/hook", (), "local address"),
        ("https://10.1.2.3/hook", LOOPBACK, "local address"),
        ("http://hooks.example/x", (), "begins with https://"),
        ("http://8.8.8.8/x", LOOPBACK, "begins with https://"),
        (f"https://{'a' * 64}.example/x", (), "not the name of a host"),
        (f"https://{'a.' * 130}example/x", (), "not the name of a host"),
    ],
)
def test_what_can_be_refused_without_a_name_server_is_refused_at_once(url, allowed, words):
    with pytest.raises(webhook.WebhookRefused, match=words):
        webhook.check_before_storing(url, allowed)


@pytest.mark.parametrize(
    "url", ["https://hooks.example/x", "https://8.8.8.8/", "http://127.0.0.1:9/", "https://a.b./"]
)
def test_other_addresses_are_stored_without_a_look_up(url):
    webhook.check_before_storing(url, LOOPBACK)


def test_a_name_server_that_does_not_answer_is_left_after_the_deadline(monkeypatch):
    answered = threading.Event()
    monkeypatch.setattr(webhook, "LOOKUP_S", 0.2)
    monkeypatch.setattr(name_lookup, "_resolve", lambda host, port, flags=0: not flags and answered.wait(30))
    began = time.monotonic()
    answer = webhook.post("https://hooks.example/", b"{}", {}, ())
    answered.set()
    assert time.monotonic() - began < 10 and not answer.taken and not answer.final
    assert "the name server has not answered" in answer.text


def test_a_redirect_is_not_followed(names):
    with serving(Hook()) as hook, serving(Hook()) as inside:
        hook.answers = [(307, {"Location": inside.url()}, b"")]
        answer = webhook.post(hook.url(), b"{}", {}, LOOPBACK)
        assert answer.final and "not followed" in answer.text and len(hook.heard) == 1 and not inside.heard


def test_the_request_still_names_the_host(names):
    names["hooks.example"] = [["127.0.0.1"]]
    with serving(Hook()) as hook:
        assert webhook.post(hook.url("hooks.example", "/a?b=c"), b"{}", {}, LOOPBACK).taken
        [(path, headers, _)] = hook.heard
        assert path == "/a?b=c" and headers["Host"] == f"hooks.example:{hook.port}"


@pytest.mark.parametrize(
    "url",
    [
        *(
            "ftp://example.org/",
            "https:///x",
            "https://user:secret@example.org/",
            "https://example.org:99999/",
        ),
        *(
            "https://exa mple.org/",
            "https://example.org/\r\nX: y",
            "file:///etc/passwd",
            "",
            "https://exämple.org/",
        ),
    ],
)
def test_an_invalid_webhook_address_is_refused(url):
    with pytest.raises(webhook.WebhookRefused):
        webhook.parse_address(url)


def test_a_receiver_that_does_not_answer_is_left_after_the_timeout(monkeypatch):
    monkeypatch.setattr(webhook, "TOTAL_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        answer = webhook.post(f"http://127.0.0.1:{silent.getsockname()[1]}/", b"{}", {}, LOOPBACK)
    assert not answer.taken and not answer.final and answer.text.startswith("No answer")


class Dripping(threading.Thread):
    """Accepts one connection and sends a byte of an endless answer each 50 ms, until the peer closes or 30 s pass."""

    def __init__(self, begin):
        super().__init__(daemon=True)
        self.listener, self.begin, self.left = socket.create_server(("127.0.0.1", 0)), begin, False
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        line, _ = self.listener.accept()
        with self.listener, line, suppress(OSError):
            line.sendall(self.begin)
            for _ in range(600):
                line.sendall(b"x")
                time.sleep(0.05)
            return
        self.left = True


@pytest.mark.parametrize("late", [False, True], ids=["at once", "when the time is over"])
def test_a_receiver_that_answers_byte_by_byte_is_left_after_the_timeout(monkeypatch, late):
    monkeypatch.setattr(webhook, "TOTAL_S", 0.3)
    connect, receiver = socket.create_connection, Dripping(b"HTTP/1.1 ")

    def slowly(address, timeout):
        line = connect(address, timeout)
        time.sleep(0.6 if late else 0)
        return line

    monkeypatch.setattr(socket, "create_connection", slowly)
    answer = webhook.post(f"http://127.0.0.1:{receiver.port}/", b"{}", {}, LOOPBACK)
    receiver.join(60)
    assert receiver.left and not answer.taken and not answer.final and answer.text.startswith("No answer")


def test_a_name_with_a_hundred_dead_addresses_takes_no_longer_than_one(monkeypatch, names):
    monkeypatch.setattr(webhook, "TOTAL_S", 0.1)
    names["many.example"] = [[f"127.0.1.{n}" for n in range(1, 101)]]
    tried = []

    def dead(address, timeout):
        tried.append(address)
        time.sleep(0.05)
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", dead)
    answer = webhook.post("http://many.example:9/", b"{}", {}, LOOPBACK)
    assert not answer.final and 0 < len(tried) < 100


@pytest.mark.parametrize("said", [b"HTTP/1.1 200 o\0k\r\nContent-Length: 2\r\n\r\n\0!", b"\0what?\r\n\r\n"])
def test_whatever_is_answered_can_be_stored(said):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak():
            line, _ = listener.accept()
            asked = b""
            with line:
                while not asked.endswith(b"{}"):
                    asked += line.recv(65536)
                line.sendall(said)

        threading.Thread(target=speak, daemon=True).start()
        answer = webhook.post(f"http://127.0.0.1:{listener.getsockname()[1]}/", b"{}", {}, LOOPBACK)
    assert "\0" not in answer.text and "\ufffd" in answer.text


def test_the_back_off_grows_and_ends():
    waits = [delay_s(tries) for tries in range(1, len(DELAYS_S) + 2)]
    assert waits[-1] is None and waits[:-1] == sorted(DELAYS_S) and sum(DELAYS_S) > 8 * 3600


@pytest.mark.parametrize(
    ("kind", "subject", "to_state", "event"),
    [
        ("state", "job", "SUCCEEDED", "succeeded"),
        ("cancel", "job", "CANCELLED", "cancelled"),
        ("cancel", "job", "CANCELLING", ""),
        ("run", "workerpool0-0", "FAILED", ""),
        ("restart", "workerpool0-0", "STARTING", "restarted"),
        ("retry", "job", "QUEUED", "retried"),
        ("preempt", "job", "QUEUED", "preempted"),
        ("drain", "workerpool0-0", "STARTING", "moved"),
        ("flag", "flag", "STALLED", "stalled"),
        ("flag", "flag", "", ""),
        ("flag", "flag", "CLEANING", ""),
        ("notice", "notice", "told", ""),
    ],
)
def test_each_line_of_history_is_its_event(kind, subject, to_state, event):
    assert event_of(kind, subject, to_state) == event
