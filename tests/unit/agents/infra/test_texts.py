"""Sentences that are stored in English and shown in another language."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.infra import untrusted
from agents.infra.text import visible
from agents.infra.texts import Text, in_language, join, moment, read, said, said_of, stored

WORDS = st.text(max_size=20)


class Shouting:
    """A language whose texts are known by their capitals, and whose plural has a mark."""

    def gettext(self, message):
        return message.replace("The replica", "THE REPLICA").replace(" was lost", " WAS LOST")

    def ngettext(self, singular, plural, number):
        return f"<{singular if number == 1 else plural}>"


def test_a_sentence_is_its_english():
    text = said("The replica {replica} was lost with {host}.", replica="workerpool0-0", host="gpu-01")
    assert text == "The replica workerpool0-0 was lost with gpu-01."
    assert json.dumps({"cause": text}) == '{"cause": "The replica workerpool0-0 was lost with gpu-01."}'
    assert {text: 1}["The replica workerpool0-0 was lost with gpu-01."] == 1


def test_a_sentence_is_translated_and_its_values_are_not():
    text = said("The replica {replica} was lost.", replica="The replica was lost")
    assert in_language(text, Shouting()) == "THE REPLICA The replica was lost WAS LOST."


def test_sentences_within_sentences_are_translated():
    how = said("was lost with {host}", host="gpu-01")
    inner = said("The replica {replica} {how}", replica="a", how=how)
    whole = join("; ", [inner, "a word of the host", inner])
    assert in_language(whole, Shouting()) == (
        "THE REPLICA a was lost with gpu-01; a word of the host; THE REPLICA a was lost with gpu-01"
    )


@pytest.mark.parametrize(("number", "english"), [(1, "1 run"), (0, "0 runs"), (7, "7 runs")])
def test_a_number_of_things_chooses_the_form(number, english):
    text = said_of(number, "{number} run", "{number} runs")
    assert text == english and in_language(text, Shouting()) == f"<{english}>"


NOON = datetime(2026, 11, 22, 12, 1, 5, 250_000, tzinfo=UTC)


def test_a_moment_is_written_as_the_reader_wants_it():
    text = said("The replica {replica} is quiet since {time}.", replica="a", time=moment(NOON))
    assert text == "The replica a is quiet since 2026-11-22 12:01:05 UTC."
    back = read(stored(text))
    assert in_language(back, Shouting()) == "THE REPLICA a is quiet since 2026-11-22 12:01:05 UTC."
    shown = in_language(back, Shouting(), lambda at, english: f"<{at}|{english}>")
    assert shown == "THE REPLICA a is quiet since <2026-11-22T12:01:05Z|2026-11-22 12:01:05 UTC>."
    short = moment(NOON.astimezone(timezone(timedelta(hours=9))), "12:01 UTC")
    assert short == "12:01 UTC" and read(stored(short)).parts == short.parts
    assert in_language(short, Shouting(), lambda at, _english: at) == "2026-11-22T12:01:05Z"


def test_what_nobody_made_as_a_sentence_stays_as_it_is():
    assert in_language("The replica was lost.", Shouting()) == "The replica was lost."


@given(WORDS, WORDS, st.integers(0, 3))
def test_a_sentence_comes_back_from_its_column(one, two, number):
    inner = said_of(number, "{who} has {number} run", "{who} has {number} runs", who=one)
    text = join(" ", [said("The replica {replica}: {what}.", replica=two, what=inner), two])
    back = read(stored(text))
    assert back == text.replace("\x1f", "") and back.parts == text.parts
    assert in_language(back, Shouting()) == in_language(text, Shouting())


@given(WORDS)
def test_plain_words_come_back_as_plain_words(words):
    back = read(stored(words))
    assert not isinstance(back, Text) and back == words.replace("\x1f", "")


def test_nobody_can_write_words_that_are_taken_for_a_sentence():
    made = '\x1f{"say": "The job is over.", "with": {}}'
    assert in_language(read(stored(f"a message of an admin{made}")), Shouting()) == (
        'a message of an admin{"say": "The job is over.", "with": {}}'
    )


@pytest.mark.parametrize("made", ["", "{", "[1]", "7", '"x"', "{}", '{"say": "x"}', '{"join": ""}'])
def test_a_column_that_was_damaged_is_shown_in_english(made):
    assert in_language(read(f"It is over.\x1f{made}"), Shouting()) == "It is over."


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, lambda text: pickle.loads(pickle.dumps(text))])
def test_a_copy_of_a_sentence_knows_how_it_was_made(twin):
    text = said("The replica {replica} was lost.", replica="a")
    assert twin(text) == text and in_language(twin(text), Shouting()) == "THE REPLICA a WAS LOST."


def test_hidden_letters_are_written_out_or_replaced():
    """Letters that join others stay: a flag of two, and words of Persian."""
    assert (
        visible("a\u202eb\ufeff") == "a\\u202eb\\ufeff"
        and visible("é 日本 👩\u200d💻 می\u200cروم") == "é 日本 👩\u200d💻 می\u200cروم"
    )
    assert untrusted.text("no\u2066\u200b space\0", 40) == "no\ufffd\ufffd space\ufffd"
