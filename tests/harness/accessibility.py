"""What axe finds wrong with a page as it is now."""

from __future__ import annotations

from pathlib import Path

AXE = Path(__file__).resolve().parents[2] / "node_modules" / "axe-core" / "axe.min.js"
WCAG21 = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa")
WCAG22 = (*WCAG21, "wcag22aa")
COLOURS = ("color-contrast",)
# What is right is not described: describing it takes longer than to find what is wrong.
FIND = """async (rules) => {
  const found = await axe.run(document, { runOnly: rules, resultTypes: ["violations"] });
  return found.violations.map((rule) => [rule.id, rule.nodes.map((node) => node.html.slice(0, 160))]);
}"""


def violations(page, rules=WCAG21):
    """Each rule that the page breaks, and where."""
    if not page.evaluate("typeof axe === 'object'"):
        # Not as a script of the page: its policy allows only ours.
        page.evaluate(AXE.read_text())
    return page.evaluate(FIND, rules)


def assert_accessible(page, rules=WCAG21):
    assert violations(page, rules) == []


def assert_accessible_in_both_themes(page, rules=WCAG21):
    """Dark differs from light in its colours alone."""
    for scheme, judged in (("light", rules), ("dark", COLOURS)):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        assert violations(page, judged) == [], scheme
    page.emulate_media(color_scheme="light")
