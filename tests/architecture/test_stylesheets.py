"""A class means one thing: every page loads the sheets of the frame, so a bare class there reaches all pages."""

from __future__ import annotations

import re
from pathlib import Path

STATIC = Path(__file__).resolve().parents[2] / "static"
# Sheets that some pages load beside those of the frame.
OF_SOME_PAGES = ("css/shell.css", "log.css")
# Parts that these pages take from the frame on purpose.
SHARED = {"row", "tabs"}


def bare_classes(sheet):
    return set(re.findall(r"(?m)^\.([\w-]+) \{", sheet))


def classes(sheet):
    return set(re.findall(r"\.([a-zA-Z][\w-]*)", re.sub(r"\{[^}]*\}", "", sheet)))


def clashes(frame, other):
    return bare_classes(frame) & classes(other) - SHARED


def test_no_sheet_of_the_frame_styles_a_class_of_another_page():
    """`.bar { height: 0.7rem }` for a table of a study laid the terminal over the buttons of a shell."""
    frame = "\n".join(
        path.read_text() for path in sorted((STATIC / "css").glob("*.css")) if path.name != "shell.css"
    )
    for name in OF_SOME_PAGES:
        assert clashes(frame, (STATIC / name).read_text()) == set(), name


def test_the_law_finds_a_clash():
    assert clashes(".bar { height: 1px }\n.a .b { }\n", ".pane .bar { }\n.b { }") == {"bar"}
