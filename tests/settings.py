"""The product's settings on a data directory of this test process's own (xdist: one per worker)."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from console.environment import READERS

DATA = Path(tempfile.mkdtemp(prefix="trainyard-test-"))
OWNER = os.getpid()


def remove_data() -> None:
    """Only where it was made: a forked child leaves through the same atexit list."""
    if os.getpid() == OWNER:
        shutil.rmtree(DATA, ignore_errors=True)


atexit.register(remove_data)
# The machine's own settings must not reach the tests; what the tests themselves read stays.
for name, _ in READERS.values():
    os.environ.pop(name, None)
os.environ["TRAINYARD_DATA"] = str(DATA)
# Tests of restarts set the clock; those that are about waits set this, too.
os.environ["TRAINYARD_RETRY_WAIT_S"] = "0"
for name in ("DATABASE_URL", "REDIS_URL"):
    if os.environ.get(f"TRAINYARD_TEST_{name}"):
        os.environ[name] = os.environ[f"TRAINYARD_TEST_{name}"]

from console.settings import *

# The tests make files for the logins of test hosts. Processes of the product have the product's umask.
os.umask(0o022)

# A file, not memory: threads of one test then share it as the product's processes do.
if "sqlite" in DATABASES["default"]["ENGINE"]:
    DATABASES["default"]["TEST"] = {"NAME": str(DATA / "test.sqlite3")}
    # No power cut is tested through this door, and an fsync per commit is most of a database test's time.
    DATABASES["default"]["OPTIONS"]["init_command"] = "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;"
elif "TRAINYARD_TEST_DATABASE_URL" in os.environ:
    # tools/run-tests has made its tables: each process takes a copy instead of going through all migrations.
    DATABASES["default"]["TEST"] = {"TEMPLATE": DATABASES["default"]["NAME"]}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
# Each client of a test makes its own middleware, which would look for all static files anew. Tests of prepared files
# say so.
WHITENOISE_AUTOREFRESH = WHITENOISE_USE_FINDERS = True
STORAGES["staticfiles"] = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
# Answers of the API are compared with their description, whichever test asks.
MIDDLEWARE = [*MIDDLEWARE, "tests.harness.described_answers.DescribedAnswers"]
