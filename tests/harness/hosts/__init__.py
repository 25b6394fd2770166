"""Real test hosts on one machine; see fleet.py."""

from __future__ import annotations

from tests.harness.hosts.fleet import Fleet
from tests.harness.hosts.host import Host, NeedsNamespaces
from tests.harness.hosts.network import leave_private_network, private_network

__all__ = ["Fleet", "Host", "NeedsNamespaces", "leave_private_network", "private_network"]
