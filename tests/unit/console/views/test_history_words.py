"""Every kind of line in a host's history has words, and so has every flag of a job."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from django.conf import settings
from django.utils import translation

from agents.hosts.recovery import FORGED_MARK
from agents.models import HostStatus
from console.presenters import badges, words
from jobs.lifecycle.advance import JOB_ENDED
from jobs.rules.lifecycle.states import FlagName

ROOT = Path(__file__).resolve().parents[4]
NAMED = {"FORGED_MARK": FORGED_MARK, "JOB_ENDED": JOB_ENDED}
WRITERS = {"host_history.record", "host_history.record_once_a_day"}


def kinds_in_the_code():
    """Every kind that is written. A kind that is neither a text nor in NAMED fails here."""
    found = {"more", *HostStatus}
    for path in (*ROOT.glob("agents/**/*.py"), *ROOT.glob("jobs/**/*.py"), *ROOT.glob("console/**/*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call):
                continue
            if (name := ast.unparse(call.func)) in WRITERS:
                found.add(_text(call.args[1]))
            elif name == "HostEvent.objects.create" and path.name != "host_history.py":
                found |= {_text(each.value) for each in call.keywords if each.arg == "kind"}
    return found


def _text(node):
    return NAMED[node.id] if isinstance(node, ast.Name) else ast.literal_eval(node)


def test_every_kind_of_a_host_s_history_has_words():
    kinds = kinds_in_the_code()
    assert len(kinds) > 30 and {"edited", "retired", "login_refused"} <= kinds
    assert kinds - set(words._WORDS) == set()


@pytest.mark.parametrize("flag", FlagName)
def test_a_flag_in_the_events_of_a_job_has_a_word_in_each_language(flag):
    found = {}
    for code, _ in settings.LANGUAGES:
        with translation.override(code):
            found[code] = badges.word(flag)
    assert found.pop("en") == flag.capitalize()
    assert all(word and word.lower() != flag.lower() for word in found.values()), found
