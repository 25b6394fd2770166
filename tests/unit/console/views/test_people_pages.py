"""The page of people has pages and a search, and keeps its actions."""

from __future__ import annotations

from django.contrib.auth.models import User

from console.presenters.projects import people


def test_people_are_shown_in_pages_and_found_by_name(browser, cast, monkeypatch):
    monkeypatch.setattr(people, "SIZE", 4)
    everybody = list(User.objects.order_by("-is_active", "username").values_list("username", flat=True))
    root, found, address = browser("root"), [], "/admin/people/"
    while address:
        page = root.get(address).context["people"]
        assert len(page.rows) <= 4 and page.total == len(everybody)
        found += [row.name for row in page.rows]
        address = page.next
    assert found == everybody and page.previous
    answer = root.get("/admin/people/?text=ELL")
    assert [row.name for row in answer.context["people"].rows] == ["bella"]
    assert "No name has" in root.get("/admin/people/?text=nobody-like-this").text
    assert root.get("/admin/people/?page=10000").status_code == 200
