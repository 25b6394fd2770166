"""Compiles the templates of the pages of a study, before a web process serves its first request.

They are the largest pages: whoever opened the first one after a start would wait for their compilation besides the
reading and drawing of a thousand trials. The listening socket is open meanwhile, and connections wait in it.
"""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.template.loader import get_template

# Folders of templates: pages of studies, and what all pages include.
FOLDERS = ("studies", "parts")


def compile_templates() -> None:
    """Django's cached loader keeps them for the life of the process."""
    for name in names():
        get_template(name)


def names() -> list[str]:
    root = Path(settings.BASE_DIR, "templates")
    return sorted(
        str(path.relative_to(root)) for folder in FOLDERS for path in (root / folder).rglob("*.html")
    )
