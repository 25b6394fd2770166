"""How to reach a host and keep a process on it. Nothing here knows what a job is."""

from __future__ import annotations
