"""Masks the secrets that a host was given for a preparation in what it reports, before that is stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agents.runner.logs.mask_patterns import MaskPatterns, blank, parts_of

# They name an account, and are no secrets.
_NAMES = frozenset({"registry", "username"})
# Of a longer output the host may have sent the end only (agents/runner/preparations/long_programs.py:TAIL_BYTES).
_LONG = 1000


class Mask:
    """`secrets`: what the host was told beside what is stored (need.py:Kind.secrets)."""

    def __init__(self, secrets: Mapping[str, Any]) -> None:
        self._patterns = MaskPatterns(_values(secrets))

    def text(self, text: str) -> str:
        if not self._patterns.needles:
            return text
        whole = text.encode()
        rest = self._patterns.unfinished(whole)
        data = bytearray(whole)
        blank(data, [*self._patterns.spans(whole), (len(whole) - rest, len(whole))])
        return data.decode(errors="replace")

    def tail(self, tail: str) -> str:
        """The same for the end of an output, which may begin within a secret: then without its first line."""
        is_cut = bool(self._patterns.needles) and len(tail) >= _LONG
        return self.text(tail.partition("\n")[2] if is_cut else tail)


def _values(secrets: Mapping[str, Any]) -> Iterator[str]:
    for name, value in secrets.items():
        if isinstance(value, Mapping):
            yield from _values(value)
        elif name not in _NAMES and value:
            yield from parts_of(str(value))
