"""Template tags that many pages use: icons, badges, times, sizes. All text goes through format_html or escape."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from html import escape
from typing import NamedTuple
from uuid import uuid4

from django import template
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.html import format_html, json_script
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext as _
from django.utils.translation.trans_real import DjangoTranslation
from django.views.i18n import JavaScriptCatalog

from agents import clock_keeper
from agents.infra.sentences import shown
from agents.infra.text import visible
from console.auth import access
from console.presenters import help_pages, sizes
from console.presenters.badges import Badge
from console.presenters.hosts.gpu_cells import FREE, HELD, Cell, Holder
from console.presenters.jobs.cells import Cell as ReplicaCell
from console.presenters.jobs.cells import Cells
from console.presenters.jobs.job_query import JobQuery
from console.presenters.live_pages import LIVE_PAGES
from console.presenters.notes import Notes, notes
from console.presenters.words import word as word_of
from jobs.models import Project

register = template.Library()

_SIGNS = re.compile("[&<>\"']")
# The largest unit that fits at least once, and how it is written.
UNITS = (
    (86400, gettext_noop("{number} d")),
    (3600, gettext_noop("{number} h")),
    (60, gettext_noop("{number} min")),
    (1, gettext_noop("{number} s")),
)


@register.simple_tag
@lru_cache(maxsize=256)
def icon(name: str) -> SafeString:
    return format_html(
        '<svg class="icon" aria-hidden="true" focusable="false"><use href="{}#{}"></use></svg>',
        static("icons.svg"),
        name,
    )


@register.simple_tag
def request_id() -> str:
    """A new id for what a form of this page submits: sent twice, it is done once."""
    return f"form-{uuid4()}"


@register.simple_tag
def notes_for(user: User) -> Notes:
    """The notes above the page. The page's socket brings them again whenever they change."""
    return notes(user)


@register.simple_tag
def help_address(request: HttpRequest) -> str:
    """The address of the help on the page of this request."""
    found = getattr(request, "resolver_match", None)
    topic = help_pages.topic_of(found.url_name or "") if found else ""
    return reverse("help", args=[topic]) if topic else reverse("help-index")


# What the menu leads to: below these addresses, an entry is marked. The lists mark it as the page itself.
MENU_LISTS = ("/jobs/", "/studies/", "/hosts/", "/projects/")
MENU_PARTS = (*MENU_LISTS, "/locations/", "/usage/", "/machines/", "/admin/", "/audit/")


class MenuPlace(NamedTuple):
    """Where a page is, as far as the menu shows it."""

    within: tuple[str, ...]
    exactly: bool


@register.simple_tag
def menu_place(path: str) -> MenuPlace:
    return MenuPlace(tuple(part for part in MENU_PARTS if part in path), path in MENU_LISTS)


@register.simple_tag
def project_switch(request: HttpRequest) -> str:
    """The project that the person works in, in words; empty for a person who has no choice."""
    mine = access.visible(request.user, Project.objects.filter(archived_at=None).order_by())
    chosen = request.COOKIES.get("project", "") or _("All projects")
    return chosen if len(mine.values_list("pk")[:2]) > 1 else ""


@register.simple_tag
def page_language() -> str:
    """The language of the page, as HTML names it. Our English is British."""
    code = translation.get_language() or "en"
    return {"en": "en-GB"}.get(code, code)


@register.simple_tag
def offered_languages() -> list[tuple[str, str]]:
    """The languages that a person may choose, each with the name that its speakers use."""
    return settings.LANGUAGES


@register.simple_tag
def script_texts() -> SafeString:
    """The texts of scripts in the language of the page, which static/texts.js reads. English stands in the scripts."""
    code = translation.get_language() or settings.LANGUAGE_CODE
    return SafeString("") if code == settings.LANGUAGE_CODE else _script_texts(code)


@lru_cache(maxsize=16)
def _script_texts(code: str) -> SafeString:
    view = JavaScriptCatalog()
    view.translation = DjangoTranslation(code, domain="djangojs")
    return json_script(view.get_catalog(), "texts")


@register.simple_tag
def served_at() -> str:
    """Trainyard's time, from which the page's script counts on."""
    return iso(timezone.now())


@register.simple_tag
def still_since(request: HttpRequest) -> str:
    """When a page was made that does not change by itself; empty for one that does."""
    match = request.resolver_match
    return "" if match is not None and match.url_name in LIVE_PAGES else served_at()


@register.simple_tag
def clock_ahead() -> str:
    """By how much Trainyard's time differs from this machine's clock, in words; empty for seconds."""
    ahead_s = clock_keeper.ahead_s()
    if abs(ahead_s) <= clock_keeper.JUMP_S:
        return ""
    text = _("{length} ahead of") if ahead_s > 0 else _("{length} behind")
    return text.format(length=length(timedelta(seconds=abs(ahead_s))))


@register.simple_tag
def badge(state: Badge) -> SafeString:
    """Render colour, icon and word together, so that no meaning depends on one of them."""
    return _badge(state, translation.get_language())


@lru_cache(maxsize=1024)
def _badge(state: Badge, language: str) -> SafeString:
    """The word of a badge is that of the present language, which is named so that each has its own."""
    return format_html(
        '<span class="badge tone-{}" data-state="{}">{}<span>{}</span></span>',
        state.tone,
        state.value,
        icon(state.icon),
        state.word,
    )


@register.simple_tag
def gpu_row(cells: Sequence[Cell]) -> SafeString:
    """Render the GPUs of a host in the map: a page has hundreds of them."""
    return SafeString("".join(f"<li>{_gpu_cell(cell)}</li>" for cell in cells))


def _gpu_cell(cell: Cell) -> str:
    """Its number is its load in percent, or of a GPU that is neither held nor free an icon."""
    shown: str = icon(cell.state.icon)
    if cell.state in (FREE, HELD):
        shown = str(cell.index) if cell.load is None else f"{cell.load} %"
    looks, words = f"gpu tone-{cell.state.tone} state-{cell.state.value} {cell.looks}", escape(cell.words)
    said = f'title="{words}" aria-label="{words}"'
    if cell.linked:
        return f'<a class="{looks}" href="{escape(cell.url)}" {said}>{shown}</a>'
    return f'<span class="{looks}" role="img" {said}>{shown}</span>'


@register.simple_tag
def gpu_holders(holders: Sequence[Holder]) -> SafeString:
    """Render the jobs that hold the GPUs of a host: a page of the map has more than a hundred."""
    return SafeString("".join(map(_holder, holders)))


def _holder(holder: Holder) -> str:
    job = escape(holder.job)
    if not holder.url:
        return f'<div>{holder.gpus} × <span class="muted">{job}</span></div>'
    of = f"{escape(holder.owner)} · {escape(holder.project)}"
    link = f'<a href="{escape(holder.url)}">{job}</a>'
    return f'<div>{holder.gpus} × {link} <span class="muted small">{of}</span></div>'


@register.simple_tag
def replica_cells(cells: Cells) -> SafeString:
    """Render the replicas of a job as cells: a thousand at most."""
    return SafeString("".join(_replica_cell(cell, cells.dense) for cell in cells.cells))


def _replica_cell(cell: ReplicaCell, dense: bool) -> str:
    name, badge = cell.line.name, cell.line.badge
    classes = (
        f"cell tone-{badge.tone}{f' load-{cell.tenth}' if cell.tenth else ''}{' odd' if cell.odd else ''}"
    )
    text = cell.mark if dense else f"{cell.label}{cell.mark}"
    here = ' aria-current="true"' if cell.selected else ""
    name, url, words = escaped(name), escaped(cell.url), escaped(cell.words)
    return (
        f'<a data-piece id="cell-{name}" class="{classes}" href="{url}" data-state="{badge.value}" title="{words}" '
        f'aria-label="{words}"{here}>{escaped(text)}</a>'
    )


def escaped(text: str) -> str:
    """As `escape`, which replaces each sign of five: most texts have none of them."""
    return escape(text) if _SIGNS.search(text) else text


@register.simple_tag
def when(moment: datetime | None) -> SafeString:
    """Render a moment twice: to the second, and as a time ago that page.js keeps current.

    The text is UTC, so that a part is equal for all people; frame/times.js shows it in the zone of the person.
    """
    if moment is None:
        return format_html('<span class="none">{}</span>', "–")
    at, gone = iso(moment), escape(relative(moment, timezone.now()))
    return SafeString(
        f'<time datetime="{at}" class="when"><span data-when="{at}">{absolute(moment)}</span> '
        f'<span class="ago" data-ago="{at}">{gone}</span></time>'
    )


@register.simple_tag
def ago(moment: datetime | None) -> SafeString:
    """Render how long ago a moment was. The moment itself is in the title."""
    if moment is None:
        return format_html('<span class="none">{}</span>', "–")
    at, gone = iso(moment), escape(relative(moment, timezone.now()))
    return SafeString(f'<time datetime="{at}" title="{absolute(moment)}" data-ago="{at}">{gone}</time>')


@register.simple_tag
def took(start: datetime | None, end: datetime | None = None) -> SafeString:
    """Render how long something lasted. While it goes on, page.js counts on."""
    if start is None:
        return format_html('<span class="none">{}</span>', "–")
    lasted = escape(length((end or timezone.now()) - start))
    since = f' data-since="{iso(start)}"' if end is None else ""
    return SafeString(f"<span{since}>{lasted}</span>")


@register.simple_tag
def countdown(moment: datetime) -> SafeString:
    left = max(moment - timezone.now(), timedelta(0))
    return format_html('<span data-until="{}">{}</span>', iso(moment), length(left))


@register.filter
def span(value: timedelta | None) -> str:
    return length(value) if value is not None else _("none")


@register.filter
def length_or_text(value: timedelta | str) -> str:
    return length(value) if isinstance(value, timedelta) else with_times(value)


@register.filter
def percent(part: float) -> str:
    """Render a share as percent: 0.5 → 50 %."""
    return f"{sizes.decimal(100 * part, 0 if part >= 0.095 else 1)} %"


@register.filter
def word(value: str) -> str:
    """A role or a phase, in the language of the page."""
    return word_of(value) if value else ""


# For what people read before they copy it: a letter that turns the others round must not change what they see.
register.filter("visible", visible)


@register.filter
def with_job_links(text: str, ids: Collection[int]) -> SafeString:
    """The text, in which each of these ids of jobs leads to its job."""
    found = SafeString(escape(text))
    for pk in ids:
        link = format_html('<a href="{}">{}</a>', reverse("job", args=[pk]), pk)
        found = SafeString(found.replace(str(pk), link))
    return found


@register.filter
def sentence(value: str) -> str:
    """A sentence that a rule made, in the language of the page."""
    return shown(value)


@register.filter
def with_times(text: str) -> SafeString:
    """A sentence, its moments as times that frame/times.js shows in the zone of the person."""
    pieces = getattr(text, "pieces", ()) or (text,)
    words = [escape(each) for each in pieces]
    for number in range(1, len(words), 3):
        words[number] = f'<span data-when="{words[number]}">'
        words[number + 1] += "</span>"
    return SafeString("".join(words))


@register.filter
def mb(value: int | None) -> str:
    return sizes.mebibytes(value)


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def absolute(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def relative(moment: datetime, now: datetime) -> str:
    gone_s = (now - moment).total_seconds()
    return _relative(int(gone_s) if gone_s >= 5 or gone_s < -5 else 0, gone_s < 0, translation.get_language())


@lru_cache(maxsize=4096)
def _relative(gone_s: int, ahead: bool, language: str | None) -> str:
    """A table has a time or two in each row, and most of them differ by seconds. Each language has its own."""
    if not gone_s:
        return _("just now")
    said = _("in {length}") if ahead else _("{length} ago")
    return said.format(length=length(timedelta(seconds=abs(gone_s))))


def length(value: timedelta) -> str:
    """Render a duration with at most two units: 2 d 3 h, 5 min 12 s, 8 s."""
    return _length(max(int(value.total_seconds()), 0), translation.get_language())


@lru_cache(maxsize=4096)
def _length(seconds: int, language: str | None) -> str:
    for position, (size, words) in enumerate(UNITS):
        if seconds >= size:
            first, rest = divmod(seconds, size)
            said = [gettext(words).format(number=first)]
            for smaller, its_words in UNITS[position + 1 : position + 2]:
                if rest >= smaller:
                    said.append(gettext(its_words).format(number=rest // smaller))
            return " ".join(said)
    return _("{number} s").format(number=0)


@register.simple_tag
def query_with(query: JobQuery, **changes: str) -> str:
    """Return the query of an address of a job's page that asks for the same, with some changes."""
    return query.query_with(**changes)
