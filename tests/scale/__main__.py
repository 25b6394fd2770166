"""`make scale`: fills SQLite and PostgreSQL with a large deployment, and measures every page and REST list on both.

The exit code is 1 if a page misses the aim. With --keep DIRECTORY the data stay there, and are used again the next time
(SQLite only).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from tests.harness.services import Postgres

RUN = "import sys, django; django.setup(); from tests.scale import measure; sys.exit(measure.main({}) and 1)"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make scale", description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgres"), action="append")
    parser.add_argument("--requests", type=int, default=30, help="for each page, after two that do not count")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--hosts", type=int, default=1_000)
    parser.add_argument("--keep", type=pathlib.Path, help="a directory for the data")
    parser.add_argument("paths", nargs="*", help="only these addresses")
    options = parser.parse_args()
    codes = [measured(kind, options) for kind in options.database or ("sqlite", "postgres")]
    return max(codes)


def measured(kind: str, options: argparse.Namespace) -> int:
    with contextlib.ExitStack() as stack:
        data = options.keep or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        data.mkdir(exist_ok=True, parents=True)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TRAINYARD_")},
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "TRAINYARD_DATA": str(data),
            "DATABASE_URL": stack.enter_context(database(kind)),
        }
        call = f"{options.requests}, {options.jobs}, {options.hosts}, {options.paths!r}"
        return subprocess.run([sys.executable, "-c", RUN.format(call)], env=environment).returncode


@contextlib.contextmanager
def database(kind: str) -> Iterator[str]:
    """The address of an empty database. Empty for the SQLite file of the data directory."""
    if kind == "sqlite":
        yield ""
        return
    server = Postgres().start()
    try:
        yield server.create_database("yard")
    finally:
        server.close()


if __name__ == "__main__":
    sys.exit(main())
