"""What the tab with the metrics of a job repeats for each replica. A template takes many times as long."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from html import escape

from django import template
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from console.presenters.jobs.job_query import JobQuery
from console.presenters.metrics.utilization import CurrentUse, UtilizationPanel
from console.templatetags.display import ago, badge, escaped

register = template.Library()
# What no address may have holds the place of a replica's name, and how an address writes it.
ANY, IN_ADDRESS = "\0", "%00"
NONE = '<span class="none">–</span>'


@register.simple_tag
def replica_options(names: Iterable[str], chosen: Collection[str]) -> SafeString:
    """A choice of replicas. `chosen`: those that are selected."""
    selected = set(chosen)
    return SafeString(
        "".join(
            f"<option{' selected' if name in selected else ''}>{escaped(name)}</option>\n" for name in names
        )
    )


@register.simple_tag
def use_rows(use: UtilizationPanel, query: JobQuery, job_id: int) -> SafeString:
    """The rows of a page of the table."""
    # The names of replicas stand in an address as they are.
    texts, address = _Texts.of_page(), escape(query.query_with(replica=ANY))
    return SafeString("".join(_row(line, address, job_id, use.gpus, texts) for line in use.now))


@dataclass(frozen=True, slots=True)
class _Texts:
    """The texts of all rows, in the language of the page."""

    state: str
    last_line: str
    in_log: str
    none_yet: str
    cpu: str
    memory: str
    gpu: str
    gpu_memory: str
    not_reported: str

    @classmethod
    def of_page(cls) -> _Texts:
        return cls(
            state=_("State"),
            last_line=_("Last line"),
            in_log=_(", in the log of %(replica)s"),
            none_yet=_("none yet"),
            cpu=_("CPU"),
            memory=_("Memory"),
            gpu=_("GPU"),
            gpu_memory=_("GPU memory"),
            not_reported=_("not reported"),
        )


def _row(line: CurrentUse, address: str, job_id: int, gpus: bool, texts: _Texts) -> str:
    name, odd = escape(line.replica), ' class="odd"' if line.odd else ""
    here = ' aria-current="true"' if line.selected else ""
    link = f'<a class="mono" href="?{address.replace(IN_ADDRESS, name)}#job-charts"{here}>{name}</a>'
    cells = _cell(badge(line.badge), texts.state) + _cell(
        _printed(line, job_id, texts), texts.last_line, "nowrap"
    )
    if line.cpu:
        cells += _cell(_share(line.cpu_share, line.cpu) or escape(line.cpu), texts.cpu)
        cells += _cell(escape(line.memory), texts.memory)
        if gpus:
            missing = f'<span class="muted">{escape(texts.not_reported)}</span>' if line.gpu else NONE
            cells += _cell(_share(line.gpu_share, line.gpu) or missing, texts.gpu)
            cells += _cell(escape(line.gpu_memory or "–"), texts.gpu_memory)
    else:
        cells += f'<td colspan="{4 if gpus else 2}" class="muted">{escape(line.unknown)}</td>'
    return f'<tr id="use-{name}"{odd}><th scope="row">{link}</th>{cells}</tr>\n'


def _cell(content: str, label: str, looks: str = "") -> str:
    of = f' class="{looks}"' if looks else ""
    return f'<td{of} data-label="{escape(label)}">{content}</td>'


def _printed(line: CurrentUse, job_id: int, texts: _Texts) -> str:
    if line.printed_at:
        spoken = escape(texts.in_log % {"replica": line.replica})
        url = escape(reverse("log", args=[job_id, line.replica]))
        return f'<a href="{url}">{ago(line.printed_at)}<span class="visually-hidden">{spoken}</span></a>'
    return escape(texts.none_yet) if line.quiet_since else NONE


def _share(share: int | None, words: str) -> str:
    """A bar, the same as a number, and of what it is; empty where nothing is known."""
    if share is None:
        return ""
    bar = f'<meter min="0" max="100" value="{share}" aria-hidden="true"></meter>'
    return f'{bar} {share} % <span class="muted small">{escape(words)}</span>'
