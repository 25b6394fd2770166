"""REST says an error in English, and beside it in the language that the request asks for: `LocalizedMessage`."""

from __future__ import annotations

import pytest

from tests.harness import marked_language
from tests.harness.marked_language import CODE, wide
from tests.unit.console.script_tokens import token_of
from tests.unit.console.views.conftest import browser, cast, no_host_answers, project

__all__ = ["browser", "cast", "no_host_answers", "project"]
JOBS = "/v1/projects/default/locations/default/customJobs"


@pytest.fixture(autouse=True)
def offered(settings, tmp_path):
    marked_language.write(tmp_path)
    settings.LANGUAGES = [("en", "English"), (CODE, "Wide")]
    settings.LOCALE_PATHS = [tmp_path]


@pytest.fixture
def error(browser, cast, project):
    """The error of a request that asks for a language."""

    def ask(method, path, body=None, language=CODE, status=400, cookie=""):
        client = browser()
        client.cookies["language"] = cookie
        send = getattr(client, method)
        # A script: the addresses of Google's API know no sessions.
        headers = {"Accept-Language": language, "Authorization": f"Bearer {token_of(cast.root, True)}"}
        answer = send(path, body or {}, "application/json", headers=headers)
        assert answer.status_code == status, answer.content
        assert {"Accept-Language", "Cookie"} <= set(answer.headers["Vary"].split(", "))
        return answer.json()["error"]

    return ask


def localized(error):
    return [
        {"locale": each["locale"], "message": each["message"]}
        for each in error.get("details", ())
        if each["@type"] == "type.googleapis.com/google.rpc.LocalizedMessage"
    ]


def test_an_error_is_told_in_the_language_beside_the_english(error):
    found = error("get", "/api/v1/jobs/999999", status=404)
    english = "There is no such resource, or you may not see it."
    assert (found["message"], found["status"]) == (english, "NOT_FOUND")
    assert localized(found) == [{"locale": CODE, "message": wide(english)}]


def test_a_refusal_of_a_service_names_its_field_as_before(error):
    found = error("post", "/api/v1/tokens", {"name": " ", "days": 7})
    [bad, told] = found["details"]
    [violation] = bad["fieldViolations"]
    assert violation["field"] == "name" and violation["description"] == found["message"]
    assert violation["localizedMessage"]["message"] == wide(found["message"]) == told["message"]


def test_each_violation_of_a_document_is_told_in_the_language(error):
    found = error("post", JOBS, {"displayName": ""})
    violations = found["details"][0]["fieldViolations"]
    assert violations and all(
        each["localizedMessage"]["locale"] == CODE
        and each["localizedMessage"]["message"] != each["description"]
        for each in violations
    )


def test_a_page_of_ours_asks_in_the_language_that_was_chosen(error):
    assert localized(error("get", "/api/v1/jobs/999999", language="en", status=404, cookie=CODE))


@pytest.mark.parametrize("language", ["", "en", "en-US,en;q=0.9", "tlh"])
def test_without_another_language_nothing_is_added(error, language):
    found = error("get", "/api/v1/jobs/999999", language=language, status=404)
    assert localized(found) == [] and "details" not in found
