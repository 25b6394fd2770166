"""A QR code as SVG. It has no styles and no scripts, so a strict Content-Security-Policy lets it stand in a page."""

from __future__ import annotations

import segno
from django.utils.safestring import SafeString, mark_safe

# Cameras need the light border, also on a dark page.
BORDER = 4
SCALE = 5


def svg(text: str) -> SafeString:
    drawn = segno.make(text, error="m", micro=False)
    # Nothing of the text stands in the drawing but black and white squares.
    return mark_safe(drawn.svg_inline(scale=SCALE, border=BORDER, dark="#000", light="#fff"))
