"""`make scale`: fills SQLite and PostgreSQL with a large deployment, and asks for every page, fragment and REST answer
on both.

The exit code is 1 if a page misses an aim. With --keep DIRECTORY the data stay there, and are used again the next time
(SQLite only); with --url URL an empty database is filled, or one that was filled before.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from tests.harness.services import Postgres
from tests.scale.people import ADMIN, MEMBER

RUN = "import sys, django; django.setup(); from tests.scale import measure; sys.exit(measure.main(sys.argv[1]) and 1)"
SMALL = {"jobs": 600, "hosts": 20, "counting": True}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make scale", description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgres"), action="append")
    parser.add_argument("--url", help="of a database, instead of --database")
    parser.add_argument("--requests", type=int, default=20, help="for each page, after two that do not count")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--hosts", type=int, default=1_000)
    parser.add_argument("--who", choices=(ADMIN, MEMBER), action="append", help="both if it is left out")
    parser.add_argument("--keep", type=pathlib.Path, help="a directory for the data")
    parser.add_argument("only", nargs="*", help="parts of addresses; all if it is left out")
    options = parser.parse_args()
    kinds = [options.url] if options.url else options.database or ["sqlite", "postgres"]
    return max(measured(kind, options) for kind in kinds)


def measured(kind: str, options: argparse.Namespace) -> int:
    with contextlib.ExitStack() as stack:
        scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        data = options.keep or scratch / "large"
        wanted = {
            "requests": options.requests,
            "jobs": options.jobs,
            "hosts": options.hosts,
            "only": options.only,
            "people": options.who or [ADMIN, MEMBER],
            "counts": str(scratch / "counts"),
            "counting": False,
        }
        # On SQLite, which is there at once: the queries are the same on both.
        if code := run("", scratch / "small", {**wanted, **SMALL}):
            return code
        return run(stack.enter_context(database(kind)), data, wanted)


def run(url: str, data: pathlib.Path, wanted: dict[str, object]) -> int:
    data.mkdir(exist_ok=True, parents=True)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TRAINYARD_")},
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "TRAINYARD_DATA": str(data),
        "DATABASE_URL": url,
    }
    return subprocess.run([sys.executable, "-c", RUN, json.dumps(wanted)], env=environment).returncode


@contextlib.contextmanager
def database(kind: str) -> Iterator[str]:
    """The address of a database. Empty for the SQLite file of the data directory."""
    if kind != "postgres":
        yield "" if kind == "sqlite" else kind
        return
    server = Postgres().start()
    try:
        yield server.create_database("yard")
    finally:
        server.close()


if __name__ == "__main__":
    sys.exit(main())
