"""The page about the REST API shows what the description has, and asks nobody else for anything."""

from __future__ import annotations

import re
from html import unescape

import pytest

from console.api.openapi.view import description
from console.presenters import api_calls

PAGE = "/help/api"


def text_of(answer):
    return unescape(answer.content.decode())


def test_it_lists_every_call(browser):
    page = text_of(browser("vera").get(PAGE))
    calls = [
        (method, path, call)
        for path, methods in description()["paths"].items()
        for method, call in methods.items()
    ]
    assert len(calls) > 140
    for method, path, call in calls:
        assert (
            call["summary"] in page
            and f"{method.upper()} {path}" in page
            and f"#{call['operationId']}" in page
        )


@pytest.mark.parametrize("group", api_calls.groups(description()), ids=lambda group: group.name)
def test_each_part_has_its_calls_with_their_types(browser, group):
    page = text_of(browser("vera").get(PAGE, {"of": group.name}))
    for call in group.calls:
        assert f'id="{call.id}"' in page and call.text in page
        assert all(f"<code>{field.name}</code>" in page for field in call.parameters)
    # No link leads to a type that is not on the page.
    named = set(re.findall(r'href="#type-(\w+)"', page))
    assert named == set(re.findall(r'id="type-(\w+)"', page)), "a type is missing, or nobody names it"
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', page)


def test_a_call_is_shown_with_all_that_it_needs(browser):
    page = text_of(browser("vera").get(PAGE, {"of": "queue"}))
    for words in (
        "A token needs the scope `admin`.",
        'href="#type-ReorderBody"',
        "list of text or whole number",
        ">automatic</code>",
        "can be missing",
    ):
        assert words in page, words
    assert "listHosts" not in page


def test_an_unknown_part_is_the_whole_list(browser):
    assert browser("vera").get(PAGE, {"of": "no-such"}).content.count(b"api-parts") == 1
    assert "List hosts by name" in text_of(browser("vera").get(PAGE, {"of": "no-such"}))


@pytest.mark.parametrize("from_page", ["/account", "/help/on/jobs", "/search?q=openapi"])
def test_other_pages_lead_to_it(browser, from_page):
    assert f'href="{PAGE}"' in text_of(browser("vera").get(from_page))
