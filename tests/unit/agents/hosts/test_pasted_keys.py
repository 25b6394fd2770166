"""What an admin pastes beside the keys that hosts show."""

from __future__ import annotations

import subprocess

import pytest

from agents.hosts.pasted_keys import MAX_LINES, Offer, Verdict, compare, kind_of, names_of, parse
from agents.infra.refusals import Refused
from agents.ssh.host_keys import fingerprint
from tests.unit.console.views.example_rows import KEY, OTHER_KEY

OURS, OTHER = fingerprint(KEY), fingerprint(OTHER_KEY)
RSA = "SHA256:" + "r" * 43
# gpu-01 at 10.0.0.1, gpu-02 at 10.0.0.2.
PLACES = {"gpu-01": ["one"], "10.0.0.1": ["one"], "[10.0.0.1]:2222": ["one"], "gpu-02": ["two"]}


def verdict(text, place="one", shown=OURS, others=()):
    offers = [Offer(place, shown, "ED25519"), *(Offer(each, shown, "ED25519") for each in others)]
    return compare(offers, parse(text).keys, PLACES)[0].verdict


@pytest.mark.parametrize(
    "text",
    [
        f"gpu-01 {KEY}",
        f"10.0.0.1 {KEY}",
        f"[10.0.0.1]:2222 {KEY}",
        f"elsewhere,gpu-01 {KEY} comment",
        f"256 {OURS} root@gpu-01 (ED25519)",
        f"256 {OURS} no comment (ED25519)",
        f"gpu-01: 256 {OURS} root@gpu-02 (ED25519)",
        f"256 {OURS} root@image-builder (ED25519)",
        OURS,
        f"{OURS}=",
        f"{OURS} gpu-01",
        f"GPU-01 = {OURS},",
        KEY,
        f"|1|Zm9v|YmFy {KEY}",
        f"gpu-01 {KEY}\ngpu-01 SHA256:{'r' * 43}  (RSA)",
        f"# gpu-01:22 SSH-2.0\n\ngpu-01 {KEY}\ngpu-01 {KEY}\nssh: connect to host gpu-09: refused",
    ],
)
def test_a_key_that_is_pasted_for_this_host_or_for_none_is_equal(text):
    assert verdict(text) == Verdict.EQUAL


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"gpu-01 {OTHER_KEY}", Verdict.DIFFERS),
        (f"gpu-01 {OTHER}", Verdict.DIFFERS),
        (f"256 {OTHER} root@gpu-01 (ED25519)", Verdict.DIFFERS),
        # It is the key of another host of ours: two addresses may be mixed up.
        (f"gpu-02 {KEY}", Verdict.DIFFERS),
        (f"gpu-01 {OTHER_KEY}\n{OURS}", Verdict.AMBIGUOUS),
        (f"gpu-01 {KEY}\ngpu-01 {OTHER_KEY}", Verdict.AMBIGUOUS),
        # Without its kind, the second may be another ED25519 key.
        (f"gpu-01 {OURS}\ngpu-01 {RSA}", Verdict.AMBIGUOUS),
        (OTHER, Verdict.MISSING),
        (f"3072 {RSA} root@gpu-01 (RSA)", Verdict.MISSING),
        (f"gpu-02 {OTHER_KEY}", Verdict.MISSING),
    ],
)
def test_a_key_that_the_text_does_not_clearly_give_to_this_host_is_not_equal(text, found):
    assert verdict(text) == found


def test_one_key_of_two_hosts_is_equal_only_where_the_lines_name_them():
    assert verdict(OURS, others=["two"]) == Verdict.AMBIGUOUS
    assert verdict(f"gpu-01 {OURS}\ngpu-02 {OURS}", others=["two"]) == Verdict.EQUAL
    # Several hosts behind one jump host wait for the key of that one machine.
    assert verdict(OURS, others=["one"]) == Verdict.EQUAL


def test_what_ssh_keygen_prints_is_understood(tmp_path):
    for kind, bits in (("ed25519", 256), ("rsa", 2048), ("ecdsa", 256)):
        path = tmp_path / kind
        subprocess.run(
            ["ssh-keygen", "-q", "-t", kind, "-b", str(bits), "-N", "", "-C", "root@gpu-01", "-f", path],
            check=True,
        )
        line = path.with_suffix(".pub").read_text()
        printed = subprocess.run(["ssh-keygen", "-lf", path], check=True, capture_output=True, text=True)
        (key,) = parse(printed.stdout).keys
        assert (key.fingerprint, key.kind, key.after) == (fingerprint(line), kind.upper(), ("gpu-01",))
        assert kind_of(line) == kind.upper()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no key"),
        ("hello there", "Line 1"),
        ("256 MD5:" + ":".join(["ab"] * 16) + " root@gpu-01 (ED25519)", "MD5"),
        ("gpu-01 ssh-ed25519 AAAA=x", "not whole"),
        (f"@revoked gpu-01 {KEY}\n{KEY}", "@revoked"),
        ("\n" * (MAX_LINES + 1), "too long"),
    ],
)
def test_a_text_without_a_usable_key_is_refused_with_the_reason(text, words):
    with pytest.raises(Refused) as refused:
        parse(text)
    assert refused.value.field == "keys" and words in refused.value.message


def test_a_line_without_a_key_is_named_and_the_others_count():
    found = parse(f"gpu-01 {KEY}\ngetaddrinfo gpu-02: Name or service not known")
    assert len(found.keys) == 1 and found.problems[0].startswith("Line 2:")


def test_a_machine_on_another_port_is_named_with_it():
    assert names_of("10.0.0.1", 22) == ("10.0.0.1", "10.0.0.1:22", "[10.0.0.1]:22")
    assert names_of("10.0.0.1", 2222) == ("10.0.0.1:2222", "[10.0.0.1]:2222")
