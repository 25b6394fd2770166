"""`make mutants`: take each safeguard out in turn, in a copy of the tree, and see that its tests miss it.

First the tests must pass in the copy as it is. A mutant that no test of it notices has survived, and the run is red.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.harness.services import Postgres
from tests.mutants.safeguard import Safeguard
from tests.mutants.safeguards import SAFEGUARDS

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 600
ALL_PASSED, SOME_FAILED = 0, 1


def main(names: Sequence[str]) -> int:
    unknown = set(names) - {each.name for each in SAFEGUARDS}
    if unknown:
        print(f"mutants: no safeguard is called {', '.join(sorted(unknown))}.", file=sys.stderr)
        return 2
    chosen = [each for each in SAFEGUARDS if not names or each.name in names]
    postgres = Postgres().start() if any(each.postgresql for each in chosen) else None
    with tempfile.TemporaryDirectory(prefix="trainyard-mutants-") as place:
        try:
            tree = copy_of_the_tree(Path(place))
            url = postgres.create_database("mutants") if postgres else ""
            return judge(chosen, tree, url)
        finally:
            if postgres:
                postgres.close()


def judge(chosen: Sequence[Safeguard], tree: Path, url: str) -> int:
    for postgresql in (False, True):
        tests = dict.fromkeys(test for each in chosen if each.postgresql == postgresql for test in each.tests)
        if tests:
            code, said = run(tests, tree, url if postgresql else "")
            if code != ALL_PASSED:
                print(f"{said}\nmutants: the tests must pass before anything is taken out.", file=sys.stderr)
                return 2
    bad = []
    for each in chosen:
        began = time.monotonic()
        word = verdict(each, tree, url)
        print(f"{word:9} {each.name:40} {time.monotonic() - began:5.1f} s  {each.file}", flush=True)
        if word != "noticed":
            bad.append(each.name)
    print(f"mutants: {len(chosen) - len(bad)} of {len(chosen)} were noticed.", flush=True)
    return 1 if bad else 0


def verdict(safeguard: Safeguard, tree: Path, url: str) -> str:
    path = tree / safeguard.file
    honest = path.read_text()
    path.write_text(safeguard.taken_out(honest))
    try:
        # Each test must notice it: a test that does not is named for nothing.
        codes = [run([test], tree, url if safeguard.postgresql else "")[0] for test in safeguard.tests]
    finally:
        path.write_text(honest)
    if all(code == SOME_FAILED for code in codes):
        return "noticed"
    return "SURVIVED" if set(codes) <= {ALL_PASSED, SOME_FAILED} else "BROKEN"


def copy_of_the_tree(place: Path) -> Path:
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    # What npm has installed is no part of the tree, and some tests start it.
    (place / "node_modules").symlink_to(ROOT / "node_modules")
    return place


def run(tests: Iterable[str], tree: Path, url: str) -> tuple[int, str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TRAINYARD_TEST_DATA")
    }
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"TRAINYARD_TEST_DATABASE_URL": url} if url else {}
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout", "150", *tests]
    try:
        done = subprocess.run(
            words, cwd=tree, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return SOME_FAILED, "it hung"
    return done.returncode, done.stdout[-4000:] + done.stderr[-1000:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
