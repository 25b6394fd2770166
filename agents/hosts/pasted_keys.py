"""Compare the host keys that machines show with a text that an admin pastes: the output of ssh-keyscan or of
ssh-keygen -l, or a list of fingerprints.

A line that names a machine holds for that machine alone. A line that names none holds for whoever shows its key.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agents.infra.refusals import Refused
from agents.infra.texts import join, said
from agents.ssh.host_keys import InvalidHostKey, fingerprint
from agents.ssh.targets import address_text

MAX_TEXT = 500_000
MAX_LINES = 5_000
_KIND = re.compile(r"^(?:sk-)?(?:ssh-(ed25519|rsa|dss)|(ecdsa)-sha2-nistp\d+)(?:@openssh\.com)?$")
_PRINT = re.compile(r"^SHA256:[A-Za-z0-9+/]{43}=?$")
_OLD_PRINT = re.compile(r"^(?:MD5:)?(?:[0-9a-f]{2}:){15}[0-9a-f]{2}$")
_AROUND = ":,;|=>\"'"


class Verdict(StrEnum):
    """What the pasted text says of a key that a machine shows."""

    EQUAL = "equal"
    DIFFERS = "differs"
    AMBIGUOUS = "ambiguous"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class PastedKey:
    """One line: its number, the words that may name a machine (those before the key count first), and its key."""

    line: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    fingerprint: str
    kind: str


@dataclass(frozen=True, slots=True)
class Pasted:
    """The keys of a text, and what is wrong with the lines that hold none."""

    keys: tuple[PastedKey, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """A key that waits to be accepted. `place` is the machine that shows it."""

    place: str
    fingerprint: str
    kind: str


@dataclass(frozen=True, slots=True)
class Compared:
    """`lines`: the pasted keys that led to the verdict."""

    verdict: Verdict
    lines: tuple[PastedKey, ...]


def kind_of(line: str) -> str:
    """The kind of a public key, as ssh-keygen -l names it: ED25519, RSA, ECDSA."""
    return _kind(line.split()[0]) if line.strip() else ""


def names_of(address: str, port: int) -> tuple[str, ...]:
    """The names under which ssh-keyscan, known_hosts and people write a machine."""
    alone = (address,) if port == 22 else ()
    return (*alone, address_text(address, port), f"[{address}]:{port}")


def parse(text: str) -> Pasted:
    """Read the keys of the text. Empty lines and comments are left out. Raises Refused if there is no key at all."""
    lines = text.splitlines()
    if len(text) > MAX_TEXT or len(lines) > MAX_LINES:
        raise Refused("keys", said("The text is too long. Paste at most {most} lines.", most=MAX_LINES))
    found, problems = [], []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if words and not words[0].startswith("#"):
            key = _parsed(number, words)
            if isinstance(key, PastedKey):
                found.append(key)
            else:
                problems.append(said("Line {number}: {message}", number=number, message=key))
    if not found:
        empty = said(
            "The text holds no key. Paste what ssh-keyscan or ssh-keygen -l prints, or fingerprints."
        )
        raise Refused("keys", join(" ", [empty, *problems[:1]]))
    return Pasted(tuple(found), tuple(problems))


def compare(
    offers: Sequence[Offer], pasted: Sequence[PastedKey], places: Mapping[str, Collection[str]]
) -> list[Compared]:
    """Judge each offer. `places`: each name that a line may have → the machines that are called so."""
    named = {key: _named(key, places) for key in pasted}
    by_print: dict[str, list[PastedKey]] = {}
    by_place: dict[str, list[PastedKey]] = {}
    shown_by: dict[str, set[str]] = {}
    for key, where in named.items():
        by_print.setdefault(key.fingerprint, []).append(key)
        for place in where:
            by_place.setdefault(place, []).append(key)
    for offer in offers:
        shown_by.setdefault(offer.fingerprint, set()).add(offer.place)
    return [
        _judge(
            offer,
            by_print.get(offer.fingerprint, []),
            by_place.get(offer.place, []),
            named,
            len(shown_by[offer.fingerprint]) > 1,
        )
        for offer in offers
    ]


def _judge(
    offer: Offer,
    same: Sequence[PastedKey],
    here: Sequence[PastedKey],
    named: Mapping[PastedKey, Collection[str]],
    shared: bool,
) -> Compared:
    """`same`: the lines with this key; `here`: the lines that name this machine; `shared`: others show the key too."""
    fitting = [key for key in same if not named[key] or offer.place in named[key]]
    # A machine has a key of each kind. A line that does not say its kind may be of any.
    rivals = [key for key in here if key.fingerprint != offer.fingerprint and key.kind in ("", offer.kind)]
    if rivals:
        return Compared(Verdict.AMBIGUOUS if fitting else Verdict.DIFFERS, (*fitting, *rivals))
    if not fitting:
        return Compared(Verdict.DIFFERS if same else Verdict.MISSING, tuple(same or here))
    if shared and not any(offer.place in named[key] for key in fitting):
        return Compared(Verdict.AMBIGUOUS, tuple(fitting))
    return Compared(Verdict.EQUAL, tuple(fitting))


def _named(key: PastedKey, places: Mapping[str, Collection[str]]) -> frozenset[str]:
    """The machines that a line names. Words that name no machine of ours count as a comment."""
    for words in (key.before, key.after):
        found = frozenset(place for word in words for place in places.get(word.lower(), ()))
        if found:
            return found
    return frozenset()


def _parsed(number: int, words: Sequence[str]) -> PastedKey | str:
    """The key of a line, or why there is none."""
    if words[0].startswith("@"):
        raise Refused(
            "keys",
            said("Line {number} begins with {word}. Such lines accept no key.", number=number, word=words[0]),
        )
    for at, word in enumerate(words):
        bare = word.strip(_AROUND)
        if _PRINT.match(bare):
            kind = words[-1].strip("()") if words[-1].startswith("(") else ""
            return PastedKey(number, _before(words[:at]), _after(words[at + 1 :]), bare.rstrip("="), kind)
        if _kind(word) and at + 1 < len(words):
            try:
                found = fingerprint(" ".join(words[at : at + 2]))
            except InvalidHostKey:
                return said("the key is not whole: its second word is not base64.")
            return PastedKey(number, _before(words[:at]), _after(words[at + 2 :]), found, _kind(word))
    if any(_OLD_PRINT.match(word.strip(_AROUND)) for word in words):
        return said("an MD5 fingerprint can be forged. Paste what ssh-keygen -l -E sha256 prints.")
    return said("there is no key and no fingerprint such as SHA256:… in it.")


def _kind(word: str) -> str:
    found = _KIND.match(word)
    return (found[1] or found[2]).upper().replace("DSS", "DSA") if found else ""


def _before(words: Sequence[str]) -> tuple[str, ...]:
    """ssh-keygen writes the number of bits before the fingerprint; ssh-keyscan several names with commas."""
    bare = [part.strip(_AROUND) for word in words for part in word.split(",")]
    return tuple(word for word in bare if word and not word.isdigit())


def _after(words: Sequence[str]) -> tuple[str, ...]:
    """The comment of a key is mostly the login and the machine where it was made: root@gpu-01."""
    return tuple(word.rpartition("@")[2] for word in words if not word.startswith("("))
