"""The filters and orders of the list of hosts, as its address has them, and the hosts of one page.

Pages are found by a cursor: the value in the sorted column and the name of the last host. What changes with every run
is counted for all hosts of the list at once, and sorted here: a list has a thousand hosts, not a million.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce
from django.urls import reverse
from django.utils.translation import gettext, gettext_noop

from agents.models import Gpu, Host
from console.auth import access
from console.presenters import badges
from jobs.models import GpuClaim, Run

STATES = (*badges.HOST.values(), badges.CORDONED)
OPEN_CLAIMS = Q(released_at=None, gpu__present=True)
BY_NAME = "name"
USES: Mapping[str, str] = {
    "idle": gettext_noop("Nothing runs there"),
    "busy": gettext_noop("Something runs there"),
}
# The columns that sort the list, and the order that a first click asks for.
SORTED = {
    "status": "status",
    "name": "name",
    "gpus": "-gpus",
    "runs": "-runs",
    "cpus": "-cpus",
    "memory": "-memory",
    "disk": "-disk",
    "location": "location",
}
ORDERS: Mapping[str, str] = {
    "name": gettext_noop("Names from A to Z"),
    "-name": gettext_noop("Names from Z to A"),
    "status": gettext_noop("By status"),
    "-gpus": gettext_noop("Most GPUs in use first"),
    "-runs": gettext_noop("Most runs first"),
    "-cpus": gettext_noop("Most CPUs first"),
    "-memory": gettext_noop("Most memory first"),
    "-disk": gettext_noop("Most free disk first"),
    "disk": gettext_noop("Least free disk first"),
    "location": gettext_noop("By location"),
}
SORTS = frozenset(SORTED) | {f"-{name}" for name in SORTED}
_STATUSES = {state.value: number for number, state in enumerate(STATES)}
_LEAST = ("cpus", "memory", "disk")
_MAX_DIGITS = 9
_GIB = 1024
Key = int | str


def uses() -> list[tuple[str, str]]:
    """The values of the filter `use`, in words."""
    return [(value, gettext(words)) for value, words in USES.items()]


def orders() -> list[tuple[str, str]]:
    """What a page without heads of columns offers, in words."""
    return [(value, gettext(words)) for value, words in ORDERS.items()]


@dataclass(frozen=True, slots=True)
class Filters:
    """What the address of the page asks for. An unknown value counts as no filter. `type`: of GPUs. `cpus`, `memory`,
    `disk`: the least that a host must have, in GiB. `after`: the cursor of the page.
    """

    text: str = ""
    status: str = ""
    location: str = ""
    type: str = ""
    use: str = ""
    cpus: str = ""
    memory: str = ""
    disk: str = ""
    sort: str = BY_NAME
    after: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filters:
        status, use, sort = (query.get(name, "") for name in ("status", "use", "sort"))
        plain = {
            name: query.get(name, "").strip().replace("\0", "")[:128] for name in ("text", "after", "type")
        }
        least = {name: _number(query.get(name, "")) for name in _LEAST}
        return cls(
            **plain,
            **least,
            status=status if status in _STATUSES else "",
            location=query.get("location", "").strip().replace("\0", "")[:63],
            use=use if use in USES else "",
            sort=sort if sort in SORTS else BY_NAME,
        )

    @property
    def any(self) -> bool:
        return bool(self.text or self.status or self.location or self.more)

    @property
    def more(self) -> bool:
        """Whether one of the rarer filters is set."""
        return bool(self.type or self.use_or_least)

    @property
    def use_or_least(self) -> bool:
        return bool(self.use or self.cpus or self.memory or self.disk)

    def address(self, **changes: str) -> str:
        """The address of the first page with these filters, some of them changed; of another one with its `after`."""
        changed = replace(self, **{"after": "", **changes})
        asked = {name: getattr(changed, name) for name in self.__dataclass_fields__}
        query = urlencode({k: v for k, v in asked.items() if v and (k, v) != ("sort", BY_NAME)})
        return f"{reverse('hosts')}?{query}" if query else reverse("hosts")

    @property
    def query(self) -> str:
        return self.address(after=self.after).partition("?")[2]

    @property
    def is_rare_order(self) -> bool:
        """Whether only the head of a column asks for this order."""
        return self.sort not in ORDERS

    @property
    def column(self) -> str:
        return self.sort.lstrip("-")

    @property
    def descending(self) -> bool:
        return self.sort.startswith("-")


def found(user: User, filters: Filters) -> QuerySet[Host]:
    """Return the hosts that the person may see and the filters match, whatever page is shown, by name."""
    hosts = access.visible(user, Host.machines.order_by("name"))
    if filters.text:
        hosts = hosts.filter(Q(name__icontains=filters.text) | Q(address__icontains=filters.text))
    if filters.status == badges.CORDONED.value:
        hosts = hosts.filter(maintenance__cordoned=True)
    elif filters.status:
        hosts = hosts.filter(status=filters.status)
    if filters.location:
        hosts = hosts.filter(location__name=filters.location)
    return _with_rest(hosts, filters) if filters.more else hosts


def page_of(hosts: QuerySet[Host], filters: Filters, size: int) -> tuple[list[int], str]:
    """Return the hosts of the page, in its order, and the cursor of the next page, "" for none."""
    if filters.column == BY_NAME:
        return _by_name(hosts, filters, size)
    keys = _KEYS[filters.column](hosts)
    rows = [(keys.get(pk, 0), name, pk) for pk, name in hosts.order_by("name").values_list("pk", "name")]
    rows.sort(key=lambda row: row[0], reverse=filters.descending)  # hosts with equal keys stay by name
    rest = iter(rows)
    if filters.after:
        rest = (row for row in rows if _is_after(row, filters))
    page = list(islice(rest, size + 1))
    return [pk for _, _, pk in page[:size]], _cursor(page[size - 1]) if len(page) > size else ""


def runs_on(hosts: Sequence[int] | QuerySet[Host]) -> Q:
    """Find the open runs on these machines, those of their logins included."""
    return Q(Q(host__in=hosts) | Q(host__machine__in=hosts), released_at=None)


def count_runs(hosts: Sequence[int] | QuerySet[Host]) -> dict[int, int]:
    runs = Run.objects.filter(runs_on(hosts)).order_by()
    return dict(runs.values_list(Coalesce("host__machine", "host")).annotate(Count("pk")))


def count_held(hosts: Sequence[int] | QuerySet[Host]) -> dict[int, int]:
    """How many GPUs of each host are held."""
    held = GpuClaim.objects.filter(OPEN_CLAIMS, gpu__host__in=hosts).order_by()
    return dict(held.values_list("gpu__host").annotate(Count("pk")))


def _with_rest(hosts: QuerySet[Host], filters: Filters) -> QuerySet[Host]:
    if filters.type:
        kind = Gpu.objects.filter(host=OuterRef("pk"), present=True, accelerator_type=filters.type)
        hosts = hosts.filter(Exists(kind))
    if filters.use:
        runs = Run.objects.filter(released_at=None).order_by()
        busy = set(runs.values_list(Coalesce("host__machine", "host"), flat=True).distinct())
        hosts = hosts.filter(pk__in=busy) if filters.use == "busy" else hosts.exclude(pk__in=busy)
    if filters.cpus:
        hosts = hosts.filter(cpus__gte=int(filters.cpus))
    if filters.memory:
        hosts = hosts.filter(memory_mb__gte=int(filters.memory) * _GIB)
    return hosts.filter(free_disk_mb__gte=int(filters.disk) * _GIB) if filters.disk else hosts


def _by_name(hosts: QuerySet[Host], filters: Filters, size: int) -> tuple[list[int], str]:
    rows = hosts.order_by("-name" if filters.descending else "name")
    if filters.after:
        rows = rows.filter(**{"name__lt" if filters.descending else "name__gt": filters.after})
    page = list(rows.values_list("pk", "name")[: size + 1])
    return [pk for pk, _ in page[:size]], page[size - 1][1] if len(page) > size else ""


def _column(name: str) -> Callable[[QuerySet[Host]], Mapping[int, Key]]:
    def keys(hosts: QuerySet[Host]) -> Mapping[int, Key]:
        return {pk: -1 if value is None else value for pk, value in hosts.values_list("pk", name)}

    return keys


def _statuses(hosts: QuerySet[Host]) -> Mapping[int, Key]:
    return {pk: _STATUSES[status] for pk, status in hosts.values_list("pk", "status")}


_KEYS: Mapping[str, Callable[[QuerySet[Host]], Mapping[int, Key]]] = {
    "status": _statuses,
    "gpus": count_held,
    "runs": count_runs,
    "cpus": _column("cpus"),
    "memory": _column("memory_mb"),
    "disk": _column("free_disk_mb"),
    "location": _column("location__name"),
}


def _cursor(row: tuple[Key, str, int]) -> str:
    """The value of the column and the name; names have no dot."""
    return f"{row[0]}.{row[1]}"


def _is_after(row: tuple[Key, str, int], filters: Filters) -> bool:
    """Whether the row comes after the cursor. A cursor that is none of ours means the first page."""
    text, _, name = filters.after.rpartition(".")
    key: Key = text
    if isinstance(row[0], int):
        digits = text.removeprefix("-")
        if not (digits.isdecimal() and len(digits) <= 18):
            return True
        key = int(text)
    if row[0] == key:
        return row[1] > name
    return (row[0] < key) if filters.descending else (row[0] > key)  # type: ignore[operator]


def _number(text: str) -> str:
    """A whole number above 0, or nothing."""
    text = text.strip()
    return str(int(text)) if text.isdecimal() and len(text) <= _MAX_DIGITS and int(text) else ""
