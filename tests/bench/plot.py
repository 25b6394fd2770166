"""Two panels as SVG, bars and lines over days. Written by hand: one picture needs no library."""

from __future__ import annotations

from html import escape

WIDTH, HEIGHT, TOP, LEFT, GAP = 860, 330, 64, 46, 50
COLOURS = ("#9aa3ad", "#2f6fde")
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#39424c}.t{font-weight:600;font-size:13px}"
    ".g{stroke:#d5dae0;stroke-width:1}@media(prefers-color-scheme:dark){text{fill:#c7ced6}.g{stroke:#3a424b}}"
)


def drawing(names, bars, lines):
    """`bars`: hours by class, one value for each name. `lines`: for each name, the share of GPUs at work by day."""
    panel = (WIDTH - LEFT * 2 - GAP) / 2
    body = [legend(names), *bar_panel(bars, LEFT, panel), *line_panel(lines, LEFT + panel + GAP, panel)]
    told = "; ".join(f"{kind}: {values[0]:.1f} h and {values[1]:.1f} h" for kind, values in bars.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        f"<title>A month of 512 GPUs</title><desc>Mean wait, {escape(' and '.join(names))}. {escape(told)}.</desc>"
        f"<style>{STYLE}</style>{''.join(body)}</svg>\n"
    )


def legend(names):
    parts = []
    for number, name in enumerate(names):
        x = LEFT + number * 190
        parts.append(f'<rect x="{x}" y="10" width="12" height="12" fill="{COLOURS[number]}"/>')
        parts.append(text(x + 18, 20, name))
    return "".join(parts)


def bar_panel(bars, left, width):
    most = max(max(values) for values in bars.values()) or 1.0
    bottom, tall = HEIGHT - 40, HEIGHT - 40 - TOP
    yield text(left, TOP - 20, "Mean wait in hours", "t")
    slot = width / len(bars)
    for place, (kind, values) in enumerate(bars.items()):
        x = left + place * slot
        for number, value in enumerate(values):
            high = value / most * (tall - 16)
            at, wide = x + 8 + number * (slot - 16) / 2, (slot - 20) / 2
            box = f'x="{at:.1f}" y="{bottom - high:.1f}" width="{wide:.1f}" height="{high:.1f}"'
            yield f'<rect {box} fill="{COLOURS[number]}"/>'
            yield text(at + wide / 2, bottom - high - 5, f"{value:.1f}", anchor="middle")
        yield text(x + slot / 2, bottom + 18, kind, anchor="middle")
    yield f'<line class="g" x1="{left}" x2="{left + width}" y1="{bottom}" y2="{bottom}"/>'


def line_panel(lines, left, width):
    bottom, tall = HEIGHT - 40, HEIGHT - 40 - TOP
    yield text(left, TOP - 20, "GPUs at work, by day", "t")
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = bottom - share * tall
        yield f'<line class="g" x1="{left}" x2="{left + width:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield text(left - 6, y + 4, f"{share:.0%}", anchor="end")
    for number, values in enumerate(lines):
        step = width / max(len(values) - 1, 1)
        points = " ".join(
            f"{left + day * step:.1f},{bottom - value * tall:.1f}" for day, value in enumerate(values)
        )
        yield f'<polyline points="{points}" fill="none" stroke="{COLOURS[number]}" stroke-width="2"/>'
    for day in range(0, len(lines[0]), 7):
        yield text(
            left + day * width / max(len(lines[0]) - 1, 1), bottom + 18, f"day {day + 1}", anchor="middle"
        )


def text(x, y, words, cls="", anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{cls}">{escape(words)}</text>'
