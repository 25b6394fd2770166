"""The page about the command line, and the wheel that pip gets from its link."""

from __future__ import annotations

import io
import re
import zipfile
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from console.auth.login import device_logins
from console.client import VERSION
from console.views.people import command_line


@pytest.fixture
def link(browser):
    page = browser("vera").get("/account/command-line").content.decode()
    [found] = set(re.findall(r"pip install http://testserver(/client/[^<\"]+)", page))
    return found


def test_pip_gets_the_wheel_without_a_login(link):
    answer = Client().get(link)
    assert answer.status_code == 200 and answer["X-Content-Type-Options"] == "nosniff"
    names = zipfile.ZipFile(io.BytesIO(answer.content)).namelist()
    assert f"trainyard_client-{VERSION}.dist-info/METADATA" in names
    assert "trainyard_client/main.py" in names and "trainyard_client/verbs/logs.py" in names


def test_a_link_ends_after_a_day_and_with_its_person(link, cast, monkeypatch):
    assert Client().get(link.replace("/client/", "/client/x")).status_code == 404
    assert Client().get(link.replace(VERSION, "9.9")).status_code == 404
    cast.vera.is_active = False
    cast.vera.save()
    assert Client().get(link).status_code == 404
    cast.vera.is_active = True
    cast.vera.save()
    assert Client().get(link).status_code == 200
    monkeypatch.setattr(command_line, "LINK_S", -1)
    assert Client().get(link).status_code == 404


def test_the_page_is_found_from_the_account_and_by_the_search(browser):
    assert b"/account/command-line" in browser("vera").get("/account").content
    assert b"/account/command-line" in browser("vera").get("/search?q=terminal").content


def test_a_code_is_typed_as_people_type(browser, db):
    row, _ = device_logins.begin("ada", "192.0.2.1", timezone.now())
    typed = f" {row.code[:4].lower()} {row.code[4:].lower()} "
    assert b"It was me" in browser("vera").get("/account/command-line/login", {"code": typed}).content
    row.expires_at = timezone.now() - timedelta(seconds=1)
    row.save()
    assert b"No login waits" in browser("vera").get("/account/command-line/login", {"code": typed}).content
