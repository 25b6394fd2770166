"""Words of the database and of REST as pages show them: roles, priorities, the phases of runs,
the kinds of a host's history."""

from __future__ import annotations

from django.utils.translation import gettext, gettext_noop

from agents.models import HostStatus
from jobs.models import Role
from jobs.rules.lifecycle.states import RunPhase

_WORDS: dict[str, str] = {
    Role.VIEWER: gettext_noop("viewer"),
    Role.SUBMITTER: gettext_noop("submitter"),
    Role.ADMIN: gettext_noop("admin"),
    RunPhase.CREATED: gettext_noop("created"),
    RunPhase.CLAIMED: gettext_noop("claimed"),
    RunPhase.RUNNING: gettext_noop("running"),
    RunPhase.ENDED: gettext_noop("ended"),
    RunPhase.CLOSED: gettext_noop("closed"),
    "high": gettext_noop("high"),
    "normal": gettext_noop("normal"),
    "low": gettext_noop("low"),
    # HostEvent.kind
    "added": gettext_noop("added"),
    "back": gettext_noop("back"),
    "contained": gettext_noop("contained"),
    "cordoned": gettext_noop("cordoned"),
    "data_address": gettext_noop("data address"),
    "declared_gone": gettext_noop("declared gone"),
    "drained": gettext_noop("drained"),
    "discard": gettext_noop("to be removed from the host"),
    "discarded": gettext_noop("removed from the host"),
    "draining": gettext_noop("draining"),
    "edited": gettext_noop("edited"),
    "forged_mark": gettext_noop("forged contact"),
    "gpu_back": gettext_noop("GPU back"),
    "gpu_came": gettext_noop("GPU came"),
    "gpu_doubted": gettext_noop("GPU doubted"),
    "gpu_evict": gettext_noop("GPU to be freed"),
    "gpu_evicted": gettext_noop("GPU freed by force"),
    "gpu_free": gettext_noop("GPU free"),
    "gpu_left": gettext_noop("GPU left"),
    "gpu_missing": gettext_noop("GPU missing"),
    "gpu_quarantined": gettext_noop("GPU quarantined"),
    "job_ended": gettext_noop("job ended"),
    "kept": gettext_noop("kept on the host"),
    "key_accepted": gettext_noop("key accepted"),
    "key_back": gettext_noop("accepted key shown again"),
    "key_offered": gettext_noop("key offered"),
    "login_refused": gettext_noop("login refused"),
    "logins": gettext_noop("logins"),
    "more": gettext_noop("more"),
    "rebooted": gettext_noop("rebooted"),
    "retired": gettext_noop("removed"),
    "uncordoned": gettext_noop("uncordoned"),
    "unknown_run": gettext_noop("unknown run"),
    "unknown_runs": gettext_noop("unknown runs"),
    HostStatus.NEW: gettext_noop("new"),
    HostStatus.CHECKING: gettext_noop("checking"),
    HostStatus.UP: gettext_noop("up"),
    HostStatus.UNREACHABLE: gettext_noop("unreachable"),
    HostStatus.AUTH_FAILED: gettext_noop("login refused"),
    HostStatus.BLOCKED: gettext_noop("host key changed"),
    HostStatus.UNUSABLE: gettext_noop("not usable"),
    HostStatus.MISBEHAVING: gettext_noop("misbehaving"),
}


def word(value: str) -> str:
    """The word in the language of the page. A value that has none, perhaps of a later version, is shown as it is."""
    known = _WORDS.get(value)
    return gettext(known) if known else value.replace("_", " ")
