"""Why a host takes nothing new, in words: for waiting reasons, flags, and the history of whoever has to leave."""

from __future__ import annotations

from agents.models import Host


def closed_text(host: Host) -> str:
    """`gpu-03 is closed to new jobs by alice: new disk`"""
    what = "is being emptied" if host.drain_at else "is closed to new jobs"
    return f"{host.name} {what}{_by(host)}{_why(host)}"


def draining_text(host: Host) -> str:
    """`gpu-03 is being emptied by alice until 2026-11-21 18:00:00 UTC: new disk`; empty when it is not."""
    if host.drain_at is None:
        return ""
    until = f" until {host.drain_until:%Y-%m-%d %H:%M:%S %Z}" if host.drain_until else ""
    return f"{host.name} is being emptied{_by(host)}{until}{_why(host)}"


def _by(host: Host) -> str:
    return f" by {host.cordoned_by}" if host.cordoned_by else ""


def _why(host: Host) -> str:
    return f": {host.cordon_message}" if host.cordon_message else ""
