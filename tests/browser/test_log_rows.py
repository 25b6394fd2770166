"""Rows of a log in a real browser: bytes in, rows out, whatever a program prints."""

from __future__ import annotations

import base64
import random

import pytest

from tests.browser.static_site import served, viewer_page

# Feeds base64 pieces to lines.js as the socket would, and answers with what is on the page.
FEED = """async (pieces) => {
  const { Lines } = await import("/static/log/lines.js");
  const { paint } = await import("/static/log/ansi.js");
  const lines = new Lines("run", 0);
  const rows = new Set();
  const box = document.createElement("div");
  for (const piece of pieces) {
    for (const row of lines.push(Uint8Array.from(atob(piece), (c) => c.charCodeAt(0)))) rows.add(row);
  }
  for (const row of lines.finish()) rows.add(row);
  for (const row of rows) {
    const node = document.createElement("div");
    node.replaceChildren(...row.pieces.map(paint));
    box.append(node);
  }
  document.body.append(box);
  const all = [...box.querySelectorAll("*")];
  return {
    rows: [...rows].map(({ text, offset, feed, continued, cut }) => ({ text, offset, feed, continued, cut })),
    html: [...box.children].map((node) => node.innerHTML),
    tags: [...new Set(all.map((node) => node.tagName))],
    attributes: [...new Set(all.flatMap((node) => node.getAttributeNames()))],
    classes: [...new Set(all.flatMap((node) => [...node.classList]))],
    styles: [...new Set(all.flatMap((node) => [...node.style]))],
  };
}"""


@pytest.fixture(scope="module")
def site():
    with served(viewer_page()) as address:
        yield address


@pytest.fixture
def feed(page, site):
    page.route_web_socket("**/ws/**", lambda socket: None)
    page.goto(site)

    def give(data, sizes=(1 << 20,)):
        pieces, at, turn = [], 0, 0
        while at < len(data):
            size = sizes[turn % len(sizes)]
            pieces.append(base64.b64encode(data[at : at + size]).decode())
            at, turn = at + size, turn + 1
        return page.evaluate(FEED, pieces)

    return give


def texts(shown):
    return [row["text"] for row in shown["rows"]]


def test_plain_rows_keep_their_offsets(feed):
    data = "one\n\ntwo é€😀\r\nthree".encode()
    for sizes in ((1 << 20,), (1,), (3, 5, 2)):
        shown = feed(data, sizes)
        assert texts(shown) == ["one", "", "two é€😀", "three"]
        assert [row["offset"] for row in shown["rows"]] == [0, 4, 5, data.index(b"three")]


def test_colours_become_classes_and_other_escapes_are_dropped(feed):
    data = (
        b"\x1b[1;31mred\x1b[0m plain \x1b[38;5;208morange\x1b[39m \x1b[48;2;1;2;3mblue\x1b[m\x1b[7mback\x1b[27m\n"
        b"\x1b]0;title\x07\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\ \x1b]52;c;Zm9v\x07"
        b"\x1b[2J\x1b[10;10H\x1b(B\x1bcend\n"
        b"<img src=x onerror=alert(1)><script>alert(2)</script>&amp;\n"
        b"unfinished \x1b]0;no end\n\x1b[31\nnext\n"
        b"a\xe2\x80\xaeb \x9b31mc\x07\x00d\te\n"
    )
    for sizes in ((1 << 20,), (1,)):
        shown = feed(data, sizes)
        assert texts(shown) == [
            "red plain orange blueback",
            "link end",
            "<img src=x onerror=alert(1)><script>alert(2)</script>&amp;",
            "unfinished ",
            "",
            "next",
            "a\ufffdb \ufffd31mcd\te",
        ]
        assert shown["html"][0] == (
            '<span class="s-bold f-1">red</span> plain <span style="color: rgb(255, 135, 0);">orange</span> '
            '<span style="background-color: rgb(1, 2, 3);">blue</span><span class="f-i b-i">back</span>'
        )


def test_a_progress_bar_is_one_line_that_changes(feed):
    bars = b"".join(
        b"\r%3d%%|%s| %d/1000000" % (n // 10_000, b"#" * (n % 40), n) for n in range(0, 1_000_000, 7)
    )
    shown = feed(b"start\n" + bars + b"\r100% done\nnext\r\n", (65536,))
    assert texts(shown) == ["start", "100% done", "next"]


def tqdm(outer, inner, width=40):
    """What two nested bars of tqdm print: the inner one a line below, and the cursor back up."""
    out = [b"\router:   0%|    |\n\rinner:   0%|    |\x1b[A"]
    for n in range(1, outer + 1):
        for m in range(1, inner + 1):
            out.append(b"\n\rinner: %3d%%|%s|\x1b[A" % (100 * m // inner, b"#" * (m * width // inner)))
        out.append(b"\router: %3d%%|%s|" % (100 * n // outer, b"#" * (n * width // outer)))
    return b"".join(out) + b"\n\n"


def test_two_levels_of_tqdm_stay_on_two_rows(feed):
    data = b"begin\n" + tqdm(10, 50) + b"end\n"
    for sizes in ((1 << 20,), (1,), (7, 64, 3)):
        shown = feed(data, sizes)
        full = "#" * 40
        assert texts(shown) == ["begin", f"outer: 100%|{full}|", f"inner: 100%|{full}|", "end"]
        # The number of the row behind the bars counts the line feeds of the file.
        assert [row["feed"] for row in shown["rows"]] == [0, 1, 2, data[: data.index(b"end")].count(b"\n")]
        assert shown["rows"][-1]["offset"] == data.index(b"end")


def test_bars_that_are_erased_leave_nothing(feed):
    rich = b"title\na  10%\nb  20%\n" + b"\r\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2Ka  50%\nb  60%\n"
    # The cursor stands on an empty row below, which the next line takes.
    assert texts(feed(rich)) == ["title", "a  50%", "b  60%", ""]
    assert texts(feed(rich + b"next\n")) == ["title", "a  50%", "b  60%", "next"]
    below = b"one\ntwo\nthree\x1b[2F\x1b[Jdone\n"
    assert texts(feed(below)) == ["done", "", ""]
    assert texts(feed(b"one\ntwo\x1b[1;1Hthree\x1b[5Cfour\n")) == ["one", "twothreefour"]
    # The cursor goes no further than there are rows, and never below the last one.
    assert texts(feed(b"a\nb\x1b[99A\rA\x1b[99B\rB\nc\x1b[0K\n")) == ["A", "B", "c"]


def test_endless_lines_are_cut_into_rows(feed):
    data = "é".encode() * 200_000
    shown = feed(data + b"\nshort\n", (65536, 1))
    pieces = shown["rows"][:-1]
    assert "".join(row["text"] for row in pieces) == data.decode() and texts(shown)[-1] == "short"
    assert max(len(row["text"]) for row in pieces) <= 16384 and len(pieces) > 20
    assert [row["continued"] for row in pieces] == [False] + [True] * (len(pieces) - 1)
    assert [row["cut"] for row in pieces] == [True] * (len(pieces) - 1) + [False]
    # Each begins at its stated offset, so that it can be dropped and fetched again.
    for before, row in zip(pieces, pieces[1:], strict=False):
        assert row["offset"] - before["offset"] in range(
            len(before["text"]) * 2 - 1, len(before["text"]) * 2 + 2
        )


def test_random_escapes_make_no_markup(feed):
    """Any input gives spans with our classes and two colours only, and the same rows however it is cut."""
    dice = random.Random(20261121)
    crumbs = [
        b"\x1b",
        b"[",
        b"]",
        b"m",
        b"31;",
        b"38;5;",
        b"48;2;",
        b"999",
        b"<b onclick=x>",
        b"</span>",
        b"\r",
        b"\n",
    ]
    crumbs += [
        b"\x07",
        b"\x1b\\",
        b"\x9b",
        b"P",
        b"8;;javascript:x",
        b"\xff",
        b"\xe2\x82",
        b"\xc2\x9b",
        b"text ",
        b":",
        b"?",
    ]
    crumbs += [b"\x1b[A", b"\x1b[2A", b"\x1b[3B", b"\x1b[2K", b"\x1b[K", b"\x1b[J", b"\x1b[F", b"\x1b[1G"]
    crumbs += [b"\x1b[7m", b"\x1b[1;4;9m", b"\x1b[97;104m", b"\x1b[0m"]
    for _ in range(12):
        soup = b"".join(dice.choice(crumbs) for _ in range(4000))
        whole, cut = feed(soup), feed(soup, (1, 2, 3, 7, 64))
        assert texts(whole) == texts(cut)
        assert whole["html"] == cut["html"]
        assert set(whole["tags"]) <= {"DIV", "SPAN"}
        assert set(whole["attributes"]) <= {"class", "style"}
        assert set(whole["styles"]) <= {"color", "background-color"}
        sides = {f"{side}-{n}" for side in "fb" for n in [*range(16), "i"]}
        assert set(whole["classes"]) <= sides | {"s-bold", "s-dim", "s-italic", "s-underline", "s-strike"}
