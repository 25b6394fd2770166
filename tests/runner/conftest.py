from __future__ import annotations

import pytest

from tests.runner.console import Host


@pytest.fixture
def host(tmp_path):
    """A home with an awkward name: every path of the runner goes through it."""
    home = tmp_path / 'it\'s; $(a) "home"\n é'
    home.mkdir()
    host = Host(home)
    yield host
    host.clean()


@pytest.fixture
def console(host):
    console = host.connect()
    console.hello()
    return console
