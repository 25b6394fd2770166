"""Pack the runner's modules into the one file that is put on hosts."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from agents import runner

RUNNER = Path(runner.__file__).parent
# The package keeps its name in the archive: its modules import each other as they do here.
_PACKAGE = "agents/runner"
# The first day that a zip file can hold. With this date, and without compression (whose result depends on the version
# of zlib), the same sources give the same bytes on every machine.
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)


def runner_archive(package: Path) -> bytes:
    """A zip file that python3 can run: the sources of the package, with its `__main__.py` at the top."""
    entries = {
        f"{_PACKAGE}/{path.relative_to(package).as_posix()}": path.read_bytes()
        for path in package.rglob("*.py")
    }
    entries["__main__.py"] = entries.pop(f"{_PACKAGE}/__main__.py")
    entries["agents/__init__.py"] = b""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(entries):
            entry = zipfile.ZipInfo(name, _FIRST_DAY)
            entry.create_system = 3  # Unix, wherever this console runs
            entry.external_attr = 0o600 << 16
            archive.writestr(entry, entries[name])
    return file.getvalue()
