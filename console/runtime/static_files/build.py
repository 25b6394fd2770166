"""Prepares the static files for browsers: each gets a hashed name and packed copies beside it.

A build is a directory below `staticfiles/`. Its name is a digest of everything that it is made from, so a changed file
makes another build, and a web process that still runs keeps the build that it began with.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.files.storage import Storage
from whitenoise.storage import CompressedManifestStaticFilesStorage

# What packages from npm hold besides the files that pages load. A build has no use for them.
IGNORED = [
    *("*.map", "*.ts", "*.gz", "*.amd.js", "*.cjs.js", "addon-*.js", "xterm.js"),
    *("ext", "htmx.js", "*.esm.js", "ws.js"),
    "uPlot.iife.js",
    *("idiomorph.js", "idiomorph.min.js", "idiomorph-ext.js", "idiomorph-htmx.js"),
]
MADE_BY = ("Django", "whitenoise", "brotli")
# Builds that are kept: the newest. An older one may still be in use by a process that nobody has restarted.
KEPT = 5


class HashedFiles(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Names files by their content. Scripts import each other by these names, too."""

    support_js_module_import_aggregation = True

    def __init__(self, location: Path | None = None) -> None:
        super().__init__(location=location or directory())

    def compress_files(self, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Pack only the files with hashed names: only pages of an older version ask for the others."""
        return super().compress_files(set(self.hashed_files.values()))  # type: ignore[no-any-return]


def ready() -> Path:
    """The directory with the prepared files. Makes it if it does not exist; several processes may do so at once."""
    made = directory()
    if not made.is_dir():
        made.parent.mkdir(exist_ok=True)
        made.parent.chmod(0o755)
        with tempfile.TemporaryDirectory(dir=made.parent, prefix=".new-") as scratch:
            new = Path(scratch) / "files"
            build(new)
            try:
                new.rename(made)
            except OSError:
                # Another process was first.
                if not made.is_dir():
                    raise
        remove_old(made)
    return made


def directory() -> Path:
    """Where the build of the present files is, or will be."""
    digest = hashlib.sha256(" ".join(map(version_of, MADE_BY)).encode())
    for name, source, path in sources():
        with source.open(path) as file:
            content = file.read()
        digest.update(f"\n{name} {len(content)}\n".encode() + content)
    return Path(settings.STATIC_BUILDS) / digest.hexdigest()[:16]


def version_of(package: str) -> str:
    """Empty if it is not installed: without brotli, files are packed with gzip only."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def sources() -> list[tuple[str, Storage, str]]:
    """Each static file: its name, and where it lies. Of two with one name, the first is taken."""
    found: dict[str, tuple[Storage, str]] = {}
    for finder in get_finders():
        for path, source in finder.list(IGNORED):
            prefix: Any = getattr(source, "prefix", None)
            found.setdefault(f"{prefix}/{path}" if prefix else path, (source, path))
    return [(name, *found[name]) for name in sorted(found)]


def build(into: Path) -> None:
    storage = HashedFiles(into)
    files = {name: (source, path) for name, source, path in sources()}
    for name, (source, path) in files.items():
        with source.open(path) as file:
            storage.save(name, file)
    for name, _, done in storage.post_process(files):
        if isinstance(done, Exception):
            raise RuntimeError(f"The static file {name} cannot be prepared: {done}") from done
    # Whoever installs Trainyard may be another user than the one who runs it.
    for folder, _, names in os.walk(into):
        os.chmod(folder, 0o755)
        for name in names:
            os.chmod(os.path.join(folder, name), 0o644)


def remove_old(made: Path) -> None:
    """Remove all builds but the newest, this one among them."""
    builds = [path for path in made.parent.iterdir() if path.is_dir() and not path.name.startswith(".")]
    for path in sorted(builds, key=lambda path: path.stat().st_mtime)[:-KEPT]:
        if path != made:
            shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    ready()
