"""How to reach a host and keep a process on it. Has never heard of a job."""

from __future__ import annotations
