"""Who asks: an admin, who sees everything, and a member of two projects."""

from __future__ import annotations

ADMIN, MEMBER = "user-0", "user-1"
