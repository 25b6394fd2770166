"""How many examples a test tries that needs a database: on PostgreSQL a third of those on SQLite, of the same kinds.

Examples look for faults of our code, which is the same on both; its statements are all run by a few of them.
"""

from __future__ import annotations

import os


def examples_here(count):
    """Of `count` examples on SQLite, so many are tried on this database."""
    return max(1, count // 3) if os.environ.get("TRAINYARD_TEST_DATABASE_URL") else count
