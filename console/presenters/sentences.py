"""Shows sentences that workers wrote (agents/infra/texts.py) in the language of the page."""

from __future__ import annotations

from django.utils import translation

from agents.infra import texts


def shown(text: str) -> str:
    """The sentence in the language of this page. Words of people and of hosts stay as they are."""
    return texts.in_language(text, translation)
