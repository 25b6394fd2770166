"""A thing has one name in a language, whoever has translated the text."""

from __future__ import annotations

import re

import pytest

from tests.harness import catalogues

# English word → what stands for it. Portuguese says "tentativa" for an attempt, so a trial is a "teste".
GLOSSARY = {
    "trial": {"ja": "トライアル", "ko": "트라이얼", "pt_BR": r"\btestes?\b"},
    "parameter": {"ja": "パラメータ(?!ー)", "ko": "매개변수", "pt_BR": "parâmetro"},
    "replica": {"ja": "レプリカ", "ko": "복제본", "pt_BR": r"r[ée]plica"},
    "metric": {"ja": "メトリクス", "ko": "측정항목", "pt_BR": "métrica"},
    "reducer": {"ja": "リデューサー", "ko": "리듀서", "pt_BR": "redutor"},
    "shell": {"ja": "シェル", "ko": "셸", "pt_BR": "shell"},
    "queue": {"ja": "キュー", "ko": "대기열", "pt_BR": "fila"},
    "token": {"ja": "トークン", "ko": "토큰", "pt_BR": "token"},
    "model": {"ja": "モデル", "ko": "모델", "pt_BR": "modelo"},
}
# Words of another politeness or spelling, that a text must not mix in.
FOREIGN = {
    "ko": "십시오|레플리카|(?<!하이퍼)파라미터|메트릭",
    "ja": "パラメーター|ユーザ(?!ー)|サーバ(?!ー)",
    "pt_BR": r"\bficheiro",
}
# What is a value, a name or a mark in the text is not a word of it.
NOT_WORDS = re.compile(r"%\(\w+\)s|\{\w+\}|`[^`]*`|<[^>]*>|“[^”]*”")


def words(message):
    text = message.id if isinstance(message.id, str) else message.id[0]
    return NOT_WORDS.sub("", text)


def translations(message):
    return (message.string,) if isinstance(message.string, str) else message.string


@pytest.mark.parametrize("path", catalogues.paths(), ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_a_thing_has_one_name(path):
    language, wrong = path.parts[-3], []
    for message in catalogues.read(path):
        if not message.id:
            continue
        for word, names in GLOSSARY.items():
            if re.search(rf"\b{word}s?\b", words(message), re.IGNORECASE) and not all(
                re.search(names[language], text, re.IGNORECASE) for text in translations(message)
            ):
                wrong.append((word, message.id, message.string))
    assert wrong == []


@pytest.mark.parametrize("path", catalogues.paths(), ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_no_text_mixes_in_another_word_or_tone(path):
    foreign = re.compile(FOREIGN[path.parts[-3]])
    found = [
        message.string
        for message in catalogues.read(path)
        for text in translations(message)
        if foreign.search(text)
    ]
    assert found == []
