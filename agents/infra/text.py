"""Text from elsewhere for people to read: without control characters, and cut with "…". See also untrusted.py."""

from __future__ import annotations

from agents.infra.texts import HIDDEN_LETTER


def clean_text(text: object, limit: int = 2000) -> str:
    """The text without NUL, control characters and lone surrogates; newlines and tabs stay. "…" marks a cut.

    A sentence (texts.py) that is clean comes back as it is, and can still be shown in any language.
    """
    kept = "".join(c for c in str(text) if c in "\n\t" or (c.isprintable() and not "\ud800" <= c <= "\udfff"))
    kept = kept.strip()
    if isinstance(text, str) and kept == text and len(kept) <= limit:
        return text
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"


def visible(text: str) -> str:
    """The text with hidden letters written out, as JSON and most languages write them: `\\u202e`."""
    return HIDDEN_LETTER.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
