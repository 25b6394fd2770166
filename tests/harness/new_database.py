"""The database of a new product or of unit tests, migrated once for all of them: 57 migrations cost 4 s of CPU.

`make up` in a fresh clone and the tests of migrations take the long way. Here a copy of a migrated database is put to
where a product is about to start, which then does all that `trainyard up` does with a database that is up to date.
"""

from __future__ import annotations

import fcntl
import hashlib
import pathlib
import shutil
import subprocess
import sys
import tempfile

from tests.harness import leftovers
from tests.harness.services import Postgres

ROOT = pathlib.Path(__file__).resolve().parents[2]
STORE = ROOT / "var" / "new-databases"
SQLITE, DUMP = "trainyard.sqlite3", "postgres.sql"


def put_sqlite(path):
    """Copy a migrated database to where a product that never ran expects its own."""
    shutil.copyfile(made(SQLITE), path)
    pathlib.Path(path).chmod(0o600)


def fill_postgres(server, name):
    """Make the tables of a migrated database in an empty one."""
    server.load(name, made(DUMP))


def made(name):
    """The path of the file, made by the first who asks after a migration changed."""
    folder = STORE / fingerprint()
    folder.mkdir(parents=True, exist_ok=True)
    with open(STORE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers of pytest run side by side
        if not (folder / name).exists():
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                MAKERS[name](pathlib.Path(scratch) / name)
                (pathlib.Path(scratch) / name).rename(folder / name)
            for old in STORE.glob("*/"):
                if old != folder:
                    shutil.rmtree(old, ignore_errors=True)
    return folder / name


def fingerprint():
    """It changes with what may change the tables: our migrations, and the versions of the packages."""
    sources = [ROOT / "constraints.txt", *sorted(ROOT.glob("*/migrations/*.py"))]
    everything = b"".join(str(path.relative_to(ROOT)).encode() + path.read_bytes() for path in sources)
    return hashlib.sha256(everything + sys.version.encode()).hexdigest()[:16]


def make_sqlite(path):
    migrate(path.parent)


def make_dump(path):
    server = Postgres().start()
    try:
        migrate(path.parent, DATABASE_URL=server.create_database("new"))
        server.dump("new", path)
    finally:
        server.close()


def migrate(data, **settings):
    """Only the tables: the rows that every deployment has from the start are made by each product's own start."""
    data.chmod(0o700)
    subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity", "0"],
        cwd=ROOT,
        env={**leftovers.product_environment(), "TRAINYARD_DATA": str(data), **settings},
        check=True,
        timeout=240,
    )


MAKERS = {SQLITE: make_sqlite, DUMP: make_dump}
