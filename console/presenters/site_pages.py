"""The pages that a search and the command palette lead to, each with other words that people may look for."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import Model
from django.urls import reverse
from django.utils.translation import gettext, gettext_noop

from agents.models import Host, Location
from console.auth import access
from console.auth.access import Verb
from jobs.models import AuditEntry, Job, MachineType, Project


@dataclass(frozen=True, slots=True)
class SitePage:
    """A page without arguments. `title` and `words` are English marks. `kind` and `verb`: what a person needs to open
    it. `part`: the place on the page.
    """

    name: str
    title: str
    words: str
    kind: type[Model] | None = None
    verb: Verb = "see"
    part: str = ""

    @property
    def url(self) -> str:
        return reverse(self.name) + self.part


PAGES = (
    SitePage(
        "new-job", gettext_noop("New job"), gettext_noop("submit start run launch train"), Job, "submit"
    ),
    SitePage("jobs", gettext_noop("Jobs"), gettext_noop("list runs training search")),
    SitePage(
        "studies",
        gettext_noop("Studies"),
        gettext_noop("hyperparameter tuning trials sweep search optimize experiments"),
    ),
    SitePage(
        "new-study",
        gettext_noop("New study"),
        gettext_noop("hyperparameter tuning sweep search"),
        Job,
        "submit",
    ),
    SitePage(
        "train-model",
        gettext_noop("Train new model"),
        gettext_noop("pipeline custom training container image start"),
        Job,
        "submit",
    ),
    SitePage(
        "pipelines", gettext_noop("Training pipelines"), gettext_noop("custom training model upload runs")
    ),
    SitePage("models", gettext_noop("Models"), gettext_noop("registry versions artifacts trained")),
    SitePage(
        "job-templates",
        gettext_noop("Templates"),
        gettext_noop("saved forms of jobs start again"),
        Job,
        "submit",
    ),
    SitePage("job-views", gettext_noop("Saved views"), gettext_noop("filters lists bookmarks of jobs")),
    SitePage("queue", gettext_noop("Queue"), gettext_noop("wait waiting order pending priority start when")),
    SitePage("hosts", gettext_noop("Hosts"), gettext_noop("machines servers nodes")),
    SitePage(
        "occupancy", gettext_noop("Occupancy"), gettext_noop("GPUs over time lanes history held month"), Host
    ),
    SitePage("gpus", gettext_noop("GPUs"), gettext_noop("map cards accelerators load free"), Host),
    SitePage("projects", gettext_noop("Projects"), gettext_noop("teams tenants members quota limits")),
    SitePage("usage", gettext_noop("Usage"), gettext_noop("report hours cost budget month csv")),
    SitePage(
        "machines", gettext_noop("Machine types"), gettext_noop("flavours sizes instances"), MachineType
    ),
    SitePage("locations", gettext_noop("Locations"), gettext_noop("regions zones groups of hosts"), Location),
    SitePage("account", gettext_noop("Account"), gettext_noop("password profile login security")),
    SitePage(
        "security",
        gettext_noop("Security of your account"),
        gettext_noop("passkey second factor two-factor sessions devices"),
    ),
    SitePage(
        "preferences", gettext_noop("Preferences"), gettext_noop("time zone language theme keys settings")
    ),
    SitePage(
        "command-line",
        gettext_noop("Command line"),
        gettext_noop("cli client terminal pip install trainyard shell"),
    ),
    SitePage("account", gettext_noop("API tokens"), gettext_noop("rest script bearer key"), part="#tokens"),
    SitePage(
        "own-secrets", gettext_noop("My secrets"), gettext_noop("variables environment credentials keys")
    ),
    SitePage(
        "notifications", gettext_noop("Notifications"), gettext_noop("e-mail mail slack webhook alerts")
    ),
    SitePage("welcome", gettext_noop("The first five minutes"), gettext_noop("begin tutorial steps setup")),
    SitePage(
        "help-api", gettext_noop("REST API"), gettext_noop("openapi swagger calls curl programs script json")
    ),
    SitePage(
        "help-training",
        gettext_noop("What training code can rely on"),
        gettext_noop("help environment variables restarts retries checkpoints rank"),
    ),
    SitePage(
        "add-host", gettext_noop("Add hosts"), gettext_noop("register enrol server ssh key"), Host, "manage"
    ),
    SitePage(
        "host-keys",
        gettext_noop("Accept the keys of many hosts"),
        gettext_noop("fingerprint keyscan trust ssh host key"),
        Host,
        "manage",
    ),
    SitePage("new-project", gettext_noop("New project"), gettext_noop("team tenant"), Project, "configure"),
    SitePage("people", gettext_noop("People"), gettext_noop("users accounts invite admins"), User),
    SitePage("audit", gettext_noop("Audit"), gettext_noop("log history who did what"), AuditEntry),
    SitePage(
        "default-quotas", gettext_noop("Default limits"), gettext_noop("quota limits"), Project, "set_quotas"
    ),
    SitePage(
        "recovery", gettext_noop("Recovery mode"), gettext_noop("backup restore observe"), Host, "manage"
    ),
)


@dataclass(frozen=True, slots=True)
class Act:
    """Something that a script does on the page. `page`: the page that does the same without scripts."""

    name: str
    title: str
    words: str
    page: str


ACTS = (
    Act(
        "theme",
        gettext_noop("Change between light and dark"),
        gettext_noop("theme colours night mode"),
        "preferences",
    ),
    Act(
        "project",
        gettext_noop("Choose a project"),
        gettext_noop("switch team tenant filter"),
        "choose-project",
    ),
    Act("help", gettext_noop("Help on this page"), gettext_noop("what words mean explain"), "help-index"),
    Act("keys", gettext_noop("Keys"), gettext_noop("keyboard shortcuts hotkeys help"), "help-keys"),
)


def acts(text: str) -> list[Act]:
    wanted = " ".join(text.casefold().split())
    return [act for act in ACTS if _fit(act.title, act.words, wanted) is not None]


def pages(user: User, text: str, most: int) -> list[SitePage]:
    """The pages that fit the text and that the person may open, the best first; without a text all of them."""
    wanted = " ".join(text.casefold().split())
    fits = {page: _fit(page.title, page.words, wanted) for page in PAGES}
    ranked = sorted((page for page in PAGES if fits[page] is not None), key=lambda page: fits[page] or 0)
    known: dict[type[Model], frozenset[Verb]] = {}
    return [page for page in ranked if _may_open(user, page, known)][:most]


def _fit(title: str, words: str, wanted: str) -> int | None:
    """How well what is wanted fits: 0 is best, None is not at all. Every word of it must be found."""
    shown, parts = f"{gettext(title)} {title}".casefold(), wanted.split()
    if shown.startswith(wanted):
        return 0
    if all(part in shown for part in parts):
        return 1
    return 2 if all(part in f"{shown} {words} {gettext(words)}".casefold() for part in parts) else None


def _may_open(user: User, page: SitePage, known: dict[type[Model], frozenset[Verb]]) -> bool:
    """Each kind of object is asked for once."""
    if page.kind is None:
        return True
    if page.kind not in known:
        known[page.kind] = access.verbs(user, page.kind)  # type: ignore[arg-type]
    return page.verb in known[page.kind]
