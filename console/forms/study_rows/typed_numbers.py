"""Numbers as people type them into rows of a study, and as these show them."""

from __future__ import annotations


def number_or_text(text: str) -> float | str:
    """Text that is no number stays text: the parser says what is wrong with it."""
    try:
        return float(text)
    except ValueError:
        return text


def text_of_number(value: object) -> str:
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value)
