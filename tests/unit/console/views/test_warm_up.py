"""What a web process compiles before its first request."""

from __future__ import annotations

import pytest
from django.template import engines

from console.views.studies import warm_up
from tests.unit.console.views.test_studies import address, study

__all__ = ["study"]


def loader():
    [found] = engines["django"].engine.template_loaders
    return found


@pytest.mark.django_db
def test_the_first_page_of_a_study_compiles_no_template(browser, study):
    vera = browser("vera")
    vera.get("/account/")  # what stands around each page
    loader().reset()
    warm_up.compile_templates()
    before = set(loader().get_template_cache)
    for tab in ("", "parameters", "curves", "spec"):
        assert vera.get(address(study, tab)).status_code == 200
    compiled = set(loader().get_template_cache) - before
    assert not [name for name in compiled if name.startswith(("studies/", "parts/"))]
    assert "studies/study.html" in before
