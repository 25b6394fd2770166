"""The load on the page of a host; and that the page never shows two values of one thing."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from agents.hosts import checklist
from agents.models import Host, HostLoad
from console.presenters import live
from tests.unit.agents.hosts.test_enrolment import facts
from tests.unit.console.views.example_rows import a_host, one_line


@pytest.fixture
def host(db):
    host = a_host("gpu-03", gpus=2, cpus=16, memory_mb=65536)
    first = host.gpus.get(index=0)
    HostLoad.objects.create(
        host=host,
        at=timezone.now() - timedelta(seconds=20),
        gpus={first.uuid: [97, 20480, 310, 71]},
        cpu=12.0,
        memory_mb=32768,
        net_rx=1_250_000,
        net_tx=0,
        io_read=None,
        io_write=None,
    )
    return host


def test_the_page_shows_what_the_host_reported(browser, host):
    text = one_line(browser("vera").get(f"/hosts/{host.pk}/").content.decode())
    for words in (
        "12.0 of 16 cores",
        "32 GiB of 64 GiB",
        "1.25 MB/s in, 0 B/s out",
        "97 %",
        "310 W",
        "71 °C",
    ):
        assert words in text, words
    assert "20 GiB of 24 GiB" in text and "read, " not in text


def test_an_old_report_says_nothing_about_now(browser, host):
    before = live.host_load_stamp(host.pk)
    HostLoad.objects.update(at=timezone.now() - timedelta(minutes=5))
    text = one_line(browser("vera").get(f"/hosts/{host.pk}/").content.decode())
    assert "has reported nothing lately" in text or "12.0 of 16" not in text
    assert "97 %" not in text and live.host_load_stamp(host.pk) != before


def test_no_value_is_shown_twice_with_another_number(browser, host):
    """Free disk, CPUs and memory stand in the checklist, the facts and the load: the newest value in all of them."""
    found = facts(cpus=16, memory_mb=65536)
    items = checklist.check_facts(found, 0.0, "10.0.0.7")
    Host.objects.update(checklist=[item.as_row() for item in items], free_disk_mb=3 * 1024)
    text = one_line(browser("root").get(f"/hosts/{host.pk}/").content.decode())
    free = set(re.findall(r"([\d.]+ [MG]iB) of [\d.]+ GiB free", text))
    assert free == {"3.0 GiB"} and "<dt>Free disk</dt> <dd>3.0 GiB</dd>" in text
    cores = set(re.findall(r"of (\d+) cores", text)) | set(re.findall(r"(\d+) CPUs", text))
    assert cores == {"16"}
    assert "<dt>Memory</dt> <dd>64 GiB</dd>" in text and "32 GiB of 64 GiB" in text
