"""Every page in every language: the same page, with other texts in it and nothing else changed."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from console.runtime import catalogues as compiled
from tests.architecture.test_template_texts import SEEN
from tests.unit.console.views.conftest import no_host_answers
from tests.unit.console.views.rows_of_a_file import addresses, browser, stored
from tests.unit.console.views.test_page_matrix import GET

__all__ = ["addresses", "browser", "no_host_answers", "stored"]

# What differs from second to second, whatever the language: a time, and a signed address with its time in it.
MOMENTS = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z?|/client/\d+\.\w+\.[\w-]+/")
# The texts of these attributes are for people, or name the language itself.
TEXTS = SEEN | {"lang", "content"}


class Skeleton(HTMLParser):
    """The tags of a page and their attributes, without texts. Hidden tokens are others each time.

    The texts of scripts are not in English pages, because they stand in the scripts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag, attributes):
        if ("id", "texts") in attributes:
            return
        kept = {name: MOMENTS.sub("T", value or "") for name, value in attributes if name not in TEXTS}
        if kept.get("name") in ("csrfmiddlewaretoken", "request_id"):
            kept["value"] = "T"
        self.tags.append(f"{tag} {kept}")


def skeleton(html):
    found = Skeleton()
    found.feed(html)
    return found.tags


# These lead to the list while there is no such file.
LEAD_ON = ("job-output", "job-output-image")


@pytest.fixture(autouse=True)
def up_to_date():
    compiled.compile_changed()


@pytest.mark.parametrize(
    "name",
    sorted(
        GET.keys() - {"compare-jobs", "compare-studies", "job-file", "job-history", "new-shell", *LEAD_ON}
    ),
)
def test_a_page_is_the_same_in_every_language_but_for_its_texts(name, addresses, browser):
    """So no translation breaks the markup, and no number of a drawing, a meter or a field gets a comma."""
    english, client = None, browser("root")
    for language in ("en", "ja", "ko", "pt-br"):
        client.cookies["language"] = language
        answer = client.get(addresses(name))
        assert answer.status_code == 200, (name, language)
        if answer.headers["Content-Type"].startswith("text/html"):
            # The menu of languages says which one is chosen.
            page = re.sub(r'aria-pressed="true"', "", answer.content.decode())
            english = english or (skeleton(page), page)
            assert skeleton(page) == english[0], (name, language)
            assert (page == english[1]) is (language == "en"), "nothing is translated"


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("ja", ["ジョブ", "スタディ", "ホスト"]),
        ("ko", ["작업", "스터디", "호스트"]),
        ("pt-br", ["Jobs", "Estudos", "Hosts"]),
    ],
)
def test_the_menu_speaks_the_language(browser, language, words):
    client = browser("root")
    client.cookies["language"] = language
    page = client.get("/jobs/").content.decode()
    menu = page[page.index("<nav") : page.index("</nav>")]
    assert [" ".join(text.split()) for text in re.findall(r">\s*([^<>]+?)\s*</a>", menu)][:3] == words
    assert f'<html lang="{language}"' in page
