"""Text from elsewhere for people to read: without control characters, and cut with "…". See also untrusted.py."""

from __future__ import annotations


def clean_text(text: object, limit: int = 2000) -> str:
    """The text without NUL, control characters and lone surrogates; newlines and tabs stay. "…" marks a cut."""
    kept = "".join(c for c in str(text) if c in "\n\t" or (c.isprintable() and not "\ud800" <= c <= "\udfff"))
    kept = kept.strip()
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"
