"""The table of who may do what to which object. Pages, API and sockets are tested against it (test_access.py,
test_permission_matrix.py).
"""

from __future__ import annotations

from typing import get_args

from console.auth import access

VERBS = get_args(access.Verb)
LOOK, OWN = (
    {"see", "see_log", "see_usage", "see_files"},
    {"cancel", "delete", "shell", "watch_shell", "replay_shell"},
)
ALL = set(VERBS)
RUN = ALL - {"set_quotas", "configure"}
PEOPLE = ("root", "alice", "bob", "bella", "vera", "charlie", "loner", "gone", "nobody")

CLASSES = ("Job", "Run", "Project", "Host", "Location", "User", "AuditEntry", "MachineType")
# The objects are Bob's job in the default project, its run, the project, a host, its location and a person; then the
# classes.
MAY = {
    "root": dict.fromkeys(
        ("job", "run", "project", "host", "location", "user", "machine_type", *CLASSES), ALL
    ),
    "alice": {
        **dict.fromkeys(("job", "run", "project", "Job", "Run", "Project"), RUN),
        "AuditEntry": {"see"},
        "host": {"see"},
        "Host": {"see"},
        "location": {"see"},
        "Location": {"see"},
        "MachineType": {"see"},
        "machine_type": {"see"},
    },
    "bob": {
        **dict.fromkeys(("job", "run", "Job", "Run", "Project"), LOOK | OWN | {"submit", "store"}),
        "project": LOOK | {"submit", "store", "watch_shell"},
        "host": {"see"},
        "Host": {"see"},
        "location": {"see"},
        "Location": {"see"},
        "MachineType": {"see"},
        "machine_type": {"see"},
    },
    "bella": {
        **dict.fromkeys(("job", "run", "project"), LOOK | {"submit", "store", "watch_shell"}),
        **dict.fromkeys(("Job", "Run", "Project"), LOOK | OWN | {"submit", "store"}),
        "host": {"see"},
        "Host": {"see"},
        "location": {"see"},
        "Location": {"see"},
        "MachineType": {"see"},
        "machine_type": {"see"},
    },
    "vera": {
        **dict.fromkeys(("job", "run", "project", "Job", "Run", "Project"), LOOK),
        "host": {"see"},
        "Host": {"see"},
        "location": {"see"},
        "Location": {"see"},
        "MachineType": {"see"},
        "machine_type": {"see"},
    },
    # The admin of another project may do everything there and nothing here. Hosts belong to no project.
    "charlie": {
        **dict.fromkeys(("Job", "Run", "Project"), RUN),
        "AuditEntry": {"see"},
        "host": {"see"},
        "Host": {"see"},
        "location": {"see"},
        "Location": {"see"},
        "MachineType": {"see"},
        "machine_type": {"see"},
    },
    "loner": {},
    "gone": {},
    "nobody": {},
}


def outcome(person: str | None, thing: str, verb: str) -> str:
    """What an address answers this person: in, refused (403), absent (404), or unknown (no login: 401, the login page).

    What a person may see nothing of is absent for them, a kind of thing as well as one of it.
    """
    if person in (None, "nobody", "gone"):
        return "unknown"
    may = MAY[person].get(thing, ())
    if verb in may:
        return "in"
    return "refused" if "see" in may else "absent"
