"""Progress bars in the log of all replicas: on their rows, below the log, so that the other lines stay to be read."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from console.live.merged_lines import OPEN
from console.live.merged_parts import PartFeeder, as_written
from console.live.tails import Piece
from tests.browser.test_merged_log import T, shown, site, viewer
from tests.harness.tqdm_output import ONE_BAR, TWO_LEVELS

__all__ = ["site", "viewer"]
LIVING = ".log-living .row"
EPOCHS = [f"epoch {n}: loss 0.{9 - n}" for n in range(3)]


class Printer:
    """Gives the bytes of one log to the page as the product does, piece by piece."""

    def __init__(self, product, run):
        self.product, self.run, self.now = product, run, 0.0
        self.feeder = PartFeeder(product.numbers[run], 0, T)

    def __call__(self, data, done=False):
        self.now += 1
        start = self.feeder.taken
        lines = self.feeder.feed(Piece(start, start + len(data), data))
        lines += self.feeder.finish() if done else self.feeder.rest(self.now)
        rows = ((self.run, line.end, self.now, line.text, *[line.kind][: bool(line.kind)]) for line in lines)
        self.product.print(*rows)


def living(page):
    texts = "(rows) => rows.map((row) => [row.querySelector('.rank').dataset.rank, row.textContent.trim()])"
    return [tuple(row) for row in page.locator(LIVING).evaluate_all(texts)]


def cut_at(data, text, occurrence=1):
    """The bytes up to the end of this text."""
    at = -1
    for _ in range(occurrence):
        at = data.index(text, at + 1)
    return data[: at + len(text)]


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 100_000])
def test_two_levels_of_tqdm_are_two_rows_of_each_rank(page, viewer, size):
    product = viewer()
    printers = [Printer(product, run) for run in ("r0", "r1")]
    first = cut_at(TWO_LEVELS, b"5/8", 2)
    first += TWO_LEVELS[len(first) : TWO_LEVELS.index(b"\n", len(first))]
    # Up to the middle of the second epoch.
    for at in range(0, len(first), size):
        for printer in printers:
            printer(first[at : at + size])
    for printer in (*printers, *printers):
        printer(b"")
    expect(page.locator(LIVING).filter(has_text="5/8")).to_have_count(2)
    expect(page.locator(LIVING)).to_have_count(4)
    assert [(rank, text[:11]) for rank, text in living(page)] == [
        ("workerpool0-0", "epoch:  33%"),
        ("workerpool0-0", "step:  62%|"),
        ("workerpool1-0", "epoch:  33%"),
        ("workerpool1-0", "step:  62%|"),
    ]
    assert {text for _, text in shown(page)} == {EPOCHS[0]}
    rest = TWO_LEVELS[len(first) :]
    for at in range(0, len(rest), size):
        for printer in printers:
            printer(rest[at : at + size])
    product.print(("r0", 10**6, 10**3, "end"))
    page.locator(".log-body .row").filter(has_text="end").wait_for()
    expect(page.locator(".log-living")).to_be_hidden()
    # What the other rank printed last may come after this end.
    lines = [text.split("[")[0].strip() for _, text in shown(page) if text != "end"]
    assert set(lines) == {*EPOCHS, "epoch: 100%|##################| 3/3"}
    assert len(lines) <= 2 * 4


def test_bars_of_64_ranks_leave_the_lines_in_the_window(page, viewer):
    product = viewer(65)
    printers = [Printer(product, f"r{n}") for n in range(64)]
    for step in range(20):
        for rank, printer in enumerate(printers):
            printer(b"\rrank %d: %2d/99\n\rstep: %2d/99\x1b[A" % (rank, step, step))
        product.print(("r64", 10**6 + step, 100 + step, f"loss {step}"))
    expect(page.locator(LIVING).filter(has_text="19/99")).to_have_count(128)
    assert [text for _, text in shown(page)] == [f"loss {step}" for step in range(20)]
    ranks = [rank for rank, _ in living(page)]
    assert ranks[::2] == ranks[1::2] == [run["replica"] for run in product.runs[:64]]
    body, box = (page.locator(name).bounding_box() for name in (".log-body", ".log-living"))
    assert body["height"] >= box["height"] and box["y"] >= body["y"] + body["height"] - 1
    expect(page.locator(".log-body .row").last).to_be_in_viewport()


def test_a_bar_is_one_row_and_becomes_a_line_at_its_end(page, viewer):
    product = viewer()
    printer = Printer(product, "r0")
    states = ONE_BAR.split(b"\r")[1:]
    for state in states[:-1]:
        printer(b"\r" + state)
    expect(page.locator(LIVING)).to_have_count(1)
    assert shown(page) == []
    printer(b"\r" + states[-1] + b"after\n")
    expect(page.locator(LIVING)).to_have_count(0)
    expect(page.locator(".log-body .row")).to_have_count(2)
    assert [text[:12] for _, text in shown(page)] == ["train: 100%|", "after"]


def test_a_line_without_an_end_is_seen_and_ends_with_its_log(page, viewer):
    product = viewer()
    printer = Printer(product, "r0")
    printer(b"Password")
    printer(b"")
    expect(page.locator(LIVING)).to_have_text("Password")
    printer(b": ", done=True)
    expect(page.locator(".log-body .row")).to_have_text("Password: ")
    assert living(page) == []


def test_a_bar_goes_on_over_a_reconnect(page, viewer):
    product = viewer()
    product.print(("r0", 10, 1, "\rbar 1/3", OPEN))
    expect(page.locator(LIVING)).to_have_text("bar 1/3")
    product.messages.clear()
    product.socket.close(code=1012)
    page.wait_for_timeout(200)
    page.get_by_text("newest rows of 2 logs").wait_for()
    expect(page.locator(LIVING)).to_have_text("bar 1/3")
    product.print(("r0", 20, 2, "\rbar 2/3", OPEN))
    expect(page.locator(LIVING)).to_have_text("bar 2/3")
    assert {"from": {"r0": 10, "r1": 0}} in product.messages


def test_bars_further_up_are_two_rows_also_where_pages_meet(page, viewer):
    """Seven lines a page, in the middle of bars."""
    lines, end = [], 0
    for line in TWO_LEVELS.split(b"\n")[:-1]:
        end += len(line) + 1
        lines.append(["r0", end, T + end / 1000, as_written(line + b"\n")])

    def earlier(route):
        at = int(route.request.url.partition("pageToken=")[2] or len(lines))
        more = {"nextPageToken": str(at - 7)} if at > 7 else {}
        route.fulfill(json={"lines": lines[max(at - 7, 0) : at][::-1], **more})

    page.route("**/log/earlier?**", earlier)
    product = viewer(begins=end)
    product.print(*(("r0", end + 6 * (n + 1), 100 + n, f"line{n % 10}") for n in range(300)))
    expect(page.locator(".log-body .row")).to_have_count(300)
    page.locator(".log-body").evaluate("(node) => { node.scrollTop = 300; node.scrollTop = 0; }")
    page.locator(".log-body .row").filter(has_text="epoch: 100%").wait_for()
    page.wait_for_timeout(500)
    for _ in range(20):
        page.locator(".log-body").evaluate("(node) => { node.scrollTop = 50; node.scrollTop = 0; }")
        page.wait_for_timeout(50)
    above = [text.split("[")[0].strip() for _, text in shown(page)[:-300]]
    assert above == [*EPOCHS, "epoch: 100%|##################| 3/3"]
