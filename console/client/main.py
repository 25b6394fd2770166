"""The command `trainyard` for people who are not on the console's machine.

Exit codes: 0 done; 1 refused, with the reason on stderr; 2 not understood; 130 interrupted. `wait` has those of the
job.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from .errors import NOT_UNDERSTOOD

# Each verb, the module of verbs/ that has it, and what it does. A call loads the module of its verb, and no other.
VERBS: Mapping[str, tuple[str, str]] = {
    "login": ("login", "log in to a console, by a browser or with a token"),
    "logout": ("login", "forget a console, and revoke the token of its login"),
    "whoami": ("login", "who you are, and at which console"),
    "submit": ("submit", "submit a job: a file, a pool as gcloud has it, or -- COMMAND with this folder"),
    "jobs": ("jobs", "list jobs"),
    "describe": ("jobs", "a job with its replicas"),
    "events": ("jobs", "what happened to a job"),
    "logs": ("logs", "the logs of a job; -f follows them"),
    "shell": ("shell", "a shell on a replica, which is there when you come back"),
    "stacks": ("stacks", "where the Python programs of all replicas of a job stand now"),
    "wait": ("wait", "wait until a job is over; the exit code is the job's"),
    "cancel": ("acts", "cancel jobs"),
    "delete": ("acts", "delete jobs that are over"),
    "rerun": ("acts", "submit a job once more"),
    "tune": ("studies", "submit a study: a file with a hyperparameter tuning job"),
    "studies": ("studies", "list studies"),
    "study": ("studies", "a study: its state, its best trial, all trials"),
    "extend-study": ("studies", "give a study more trials, also one that is over"),
    "cancel-study": ("studies", "cancel studies, with the jobs of their trials"),
    "delete-study": ("studies", "delete studies that are over; the jobs of their trials stay"),
    "cp": ("storage", "copy files to and from the storage, gs://BUCKET/NAME"),
    "ls": ("storage", "list the storage"),
    "rm": ("storage", "delete objects of the storage"),
    "hosts": ("machines", "the hosts"),
    "gpus": ("machines", "the GPUs, and which are free"),
    "queue": ("machines", "which jobs wait, in their order, and for what"),
    "quota": ("machines", "the limits of a project, and what it uses"),
    "open": ("machines", "open a page of the console in the browser"),
    "completion": ("completion", "print the completion for bash, zsh or fish"),
}
# The verbs that work on the data directory of a console, on its machine.
SERVER_VERBS = frozenset(
    {"up", "migrate", "user", "member", "token", "project", "quota", "usage", "secret", "notice"}
    | {"location", "recovery", "clock", "key", "host", "bucket", "registry"}
)
# `quota` is a verb of both. With one of these words behind it, it is that of the server.
SERVER_QUOTA = frozenset({"set", "list"})


def is_client_verb(argv: Sequence[str]) -> bool:
    """Whether the client does this. All else is done on the machine of the console."""
    if not argv or argv[0] in ("--version", "-h", "--help"):
        return True
    return argv[0] in VERBS and not (argv[0] == "quota" and len(argv) > 1 and argv[1] in SERVER_QUOTA)


def main(argv: Sequence[str] | None = None) -> int:
    """The command, where only the client is installed, and where the client was installed last."""
    words = list(sys.argv[1:] if argv is None else argv)
    if is_client_verb(words):
        return run(words)
    server = find_server()
    if server is not None:
        return server(words)
    if words[0] in SERVER_VERBS:
        print(
            f"trainyard: “{words[0]}” works on the data directory of a console, so it runs on the console's machine.\n"
            "Here only the client is installed. Its verbs: trainyard --help",
            file=sys.stderr,
        )
    else:
        print(f"trainyard: there is no verb {words[0]!r}. The verbs: trainyard --help", file=sys.stderr)
    return NOT_UNDERSTOOD


def find_server() -> Callable[[Sequence[str]], int] | None:
    """The command of the server, if it is installed beside the client."""
    with suppress(ImportError, ValueError):
        if importlib.util.find_spec("console.cli") is not None:
            found: Callable[[Sequence[str]], int] = importlib.import_module("console.cli").main
            return found
    return None


def run(words: Sequence[str]) -> int:
    """Run a verb of the client. What it needs is loaded now: verbs of the server do without it."""
    return int(importlib.import_module(".calls", __package__).run(words))


if __name__ == "__main__":
    sys.exit(main())
