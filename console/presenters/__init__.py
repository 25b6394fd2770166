"""Turn database rows into frozen values for pages, and those into fragments. Sockets use the eight functions below.

Views use the modules.
"""

from __future__ import annotations

from console.presenters.live import (
    host_live,
    host_stamp,
    hosts_live,
    hosts_stamp,
    job_live,
    job_stamp,
    list_live,
    list_stamp,
)

__all__ = [
    "host_live",
    "host_stamp",
    "hosts_live",
    "hosts_stamp",
    "job_live",
    "job_stamp",
    "list_live",
    "list_stamp",
]
