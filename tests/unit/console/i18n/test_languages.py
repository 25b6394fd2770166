"""A page is in the language that its reader chose, or else that the browser asks for. What programs read is English."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.utils import translation

from console.auth import preferences
from console.models import Preferences
from console.presenters import sizes
from console.runtime.languages import Language

PASSWORD = "correct horse battery"


@pytest.fixture
def shown(rf):
    """The language in which a page is made for a request."""

    def ask(path="/jobs/", cookie="", accepts=""):
        request = rf.get(path, headers={"Accept-Language": accepts})
        request.COOKIES["language"] = cookie
        seen = []
        response = Language(lambda _: seen.append(translation.get_language()) or HttpResponse("page"))(
            request
        )
        assert response.headers["Content-Language"] == request.LANGUAGE_CODE == seen[0]
        return seen[0]

    return ask


@pytest.mark.parametrize(
    ("accepts", "language"),
    [
        ("ja", "ja"),
        ("ko-KR,ko;q=0.9,en;q=0.8", "ko"),
        ("pt-BR", "pt-br"),
        ("pt-PT,pt;q=0.9,en;q=0.5", "pt-br"),
        ("pt", "pt-br"),
        ("en-US,ja;q=0.5", "en"),
        ("fr, ja;q=0.5", "ja"),
        ("fr", "en"),
        ("", "en"),
        ("*", "en"),
        ("x" * 5000, "en"),
    ],
)
def test_the_language_follows_the_browser(shown, accepts, language):
    assert shown(accepts=accepts) == language


def test_a_choice_comes_before_the_browser(shown):
    assert shown(cookie="ko", accepts="ja") == "ko"
    assert shown(cookie="en", accepts="ja") == "en"
    assert shown(cookie="../../etc/passwd", accepts="ja") == "ja"


def test_a_language_that_is_not_offered_is_not_shown(shown, settings):
    """A catalogue that is not complete would mix two languages on one page."""
    settings.LANGUAGES = [("en", "English")]
    assert shown(cookie="ja", accepts="ja") == "en"


@pytest.mark.parametrize(
    "path", ["/v1/projects/p/locations/l/customJobs", "/api/v1/hosts", "/v2/entries:list"]
)
def test_what_programs_read_is_english(shown, path):
    assert shown(path, cookie="ja", accepts="ja") == "en"


def test_the_thread_speaks_english_afterwards(shown):
    before = translation.get_language()
    shown(cookie="ja")
    assert translation.get_language() == before


def test_proxies_keep_pages_apart_by_language(client, db):
    answer = client.get("/login", headers={"Accept-Language": "ko"})
    assert {"Accept-Language", "Cookie"} <= set(answer.headers["Vary"].split(", "))
    assert answer.headers["Content-Language"] == "ko" and b'<html lang="ko"' in answer.content


def test_a_stranger_chooses_at_the_login_page(client, db):
    page = client.get("/login").content.decode()
    assert '<html lang="en-GB"' in page
    assert re.findall(r'name="language" value="([\w-]*)"', page) == ["", "en", "ja", "ko", "pt-br"]
    answer = client.post("/language", {"language": "ja", "next": "/login"})
    assert (answer.status_code, answer["Location"]) == (302, "/login")
    assert answer.cookies["language"]["httponly"] and not Preferences.objects.exists()
    assert '<html lang="ja"' in client.get("/login").content.decode()
    client.post("/language", {"language": "", "next": "https://evil.example/"})
    page = client.get("/login", headers={"Accept-Language": "ko"}).content.decode()
    assert '<html lang="ko"' in page


def test_a_choice_is_remembered_for_the_next_login_on_another_browser(client, db):
    ada = User.objects.create_user("ada", password=PASSWORD)
    client.force_login(ada)
    client.post("/language", {"language": "pt-br"})
    assert preferences.of(ada).language == "pt-br"
    other = type(client)()
    answer = other.post("/login", {"username": "ada", "password": PASSWORD})
    assert answer.status_code == 302 and answer.cookies["language"].value == "pt-br"
    assert '<html lang="pt-br"' in other.get("/account").content.decode()
    other.post("/language", {"language": ""})
    assert preferences.of(ada).language == ""
    assert '<html lang="ja"' in other.get("/account", headers={"Accept-Language": "ja"}).content.decode()


def test_a_language_that_nobody_offers_is_not_kept(client, db):
    ada = User.objects.create_user("ada")
    client.force_login(ada)
    answer = client.post("/language", {"language": "tlh"})
    assert answer.status_code == 302 and "language" not in answer.cookies and not Preferences.objects.exists()


def test_a_page_in_another_language_asks_the_database_no_more(client, db, django_assert_max_num_queries):
    ada = User.objects.create_user("ada")
    client.force_login(ada)
    counts = []
    for language in ("en", "ja"):
        client.cookies["language"] = language
        with django_assert_max_num_queries(50) as captured:
            assert f'<html lang="{language}' in client.get("/account").content.decode()
        counts.append(len(captured))
    assert counts[0] == counts[1]


def test_djangos_own_texts_are_in_the_language_too(client, db):
    page = client.post("/login", {"username": "ada"}, headers={"Accept-Language": "ja"}).content.decode()
    with translation.override("ja"):
        assert not translation.gettext("This field is required.").isascii()
        assert translation.gettext("This field is required.") in page


def test_one_language_needs_no_menu(client, db, settings):
    settings.LANGUAGES = [("en", "English")]
    assert 'name="language"' not in client.get("/login").content.decode()


@pytest.mark.parametrize(("language", "words"), [("en", "1.5 GiB"), ("ja", "1.5 GiB"), ("pt-br", "1,5 GiB")])
def test_numbers_are_written_as_the_language_does(language, words):
    with translation.override(language):
        assert sizes.mebibytes(1536) == words
        assert sizes.rate(1_250_000) == ("1,25 MB/s" if language == "pt-br" else "1.25 MB/s")


def test_each_language_is_offered_by_its_own_name(client, db):
    """Whoever has chosen a language that they cannot read finds the way back."""
    client.cookies["language"] = "ko"
    page = client.get("/login").content.decode()
    assert [name for name in ("English", "日本語", "한국어", "Português (Brasil)") if name not in page] == []
