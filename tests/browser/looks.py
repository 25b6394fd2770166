"""The widths and themes in which a page is judged."""

from __future__ import annotations

from itertools import product

import pytest

WIDTHS, THEMES = (1280, 360), ("light", "dark")
# A theme changes colours and a width the layout: each of them is seen once, and `make exhaustive` sees the other pairs.
SEEN = {(1280, "light"), (360, "dark")}

in_each_look = pytest.mark.parametrize(
    ("width", "theme"),
    [
        pytest.param(*look, marks=() if look in SEEN else pytest.mark.exhaustive)
        for look in product(WIDTHS, THEMES)
    ],
)
