"""Prepares the catalogues of texts for gettext: `locale/<language>/LC_MESSAGES/django.mo` beside each `django.po`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from django.conf import settings


def compile_changed() -> None:
    """Compile each catalogue whose texts are newer. Several processes may do so at once."""
    for folder in settings.LOCALE_PATHS:
        for source in sorted(Path(folder).glob("*/LC_MESSAGES/*.po")):
            made = source.with_suffix(".mo")
            if not made.exists() or made.stat().st_mtime_ns < source.stat().st_mtime_ns:
                compile_catalogue(source, made)


def compile_catalogue(source: Path, made: Path) -> None:
    with source.open("rb") as file:
        catalogue = read_po(file, locale=source.parts[-3], abort_invalid=True)
    with tempfile.NamedTemporaryFile(dir=made.parent, suffix=".new", delete=False) as new:
        write_mo(new, catalogue)
    os.chmod(new.name, 0o644)
    os.replace(new.name, made)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    compile_changed()
