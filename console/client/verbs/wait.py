"""`wait`: until a job is over. The exit code is the job's."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..connection import quoted
from ..errors import Offline, Refusal
from ..progress import Progress
from ..session import Session
from ..tables import painted, print_json
from ..text import duration, harmless

# As `timeout` of coreutils has it; and of a job that was cancelled.
TOOK_TOO_LONG, CANCELLED = 124, 130
TERMINAL = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED"})
FIRST_S, MOST_S = 1.0, 10.0


def wait_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", default="", help="its number; without one, your newest job")
    parser.add_argument(
        "--timeout", type=float, default=0.0, metavar="S", help="give up after so many seconds (124)"
    )
    parser.add_argument("--files", action="store_true", help="until the files that it wrote are stored, too")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing")
    parser.add_argument("--json", action="store_true", help="for programs: the job at its end")


def wait(session: Session) -> int:
    args = session.args
    job = session.job_id(args.job)
    began = time.monotonic()
    state = until_over(session, job, args.timeout, args.quiet)
    if state not in TERMINAL:
        print(f"trainyard: job {job} is still {state} after {duration(args.timeout)}.", file=sys.stderr)
        return TOOK_TOO_LONG
    if args.files and not until_stored(
        session, job, began + args.timeout if args.timeout else None, args.quiet
    ):
        print(
            f"trainyard: files of job {job} are still on a host only: trainyard describe {job}",
            file=sys.stderr,
        )
        return TOOK_TOO_LONG
    found = session.job(job)
    if args.json:
        print_json(found)
    elif not args.quiet:
        error = found["customJob"].get("error", {}).get("message", "")
        print(
            f"Job {job} has {'' if state == 'SUCCEEDED' else 'ended: '}{state.lower()}. {harmless(error)}".rstrip()
        )
    return exit_code(state, found)


def until_over(session: Session, job: str, timeout: float = 0.0, quiet: bool = False) -> str:
    """Ask until the job is over, also over restarts of the console. Returns its state."""
    project = session.job(job)["project"]
    path = f"/v1/projects/{quoted(project)}/locations/-/customJobs/{job}"
    began, pause = time.monotonic(), FIRST_S
    ask = Patient(session, quiet)
    shown = Progress("")
    state = ""
    while True:
        found = ask(path, {"readMask": "state"})
        state = found["state"].replace("JOB_STATE_", "") if found else state
        passed = time.monotonic() - began
        if state in TERMINAL or (timeout and passed >= timeout):
            shown.clear()
            return state
        if sys.stderr.isatty() and not quiet:
            _tell(shown, f"Job {job}: {painted(state, 'busy')}, waiting for {duration(passed)}")
        left = timeout - passed if timeout else MOST_S
        time.sleep(max(min(pause, left), 0.05))
        pause = min(pause * 1.2, MOST_S)


def until_stored(session: Session, job: str, until: float | None, quiet: bool = False) -> bool:
    """Ask until no file of the job is on a host only, or has to stay there. Returns False where that takes too long."""
    ask, told, pause = Patient(session, quiet), "", FIRST_S
    while True:
        found = ask(f"/api/v1/jobs/{job}/outputs", {})
        hosts = found["hosts"] if found else [{"state": "WRITING"}]
        if not any(host["state"] in ("WRITING", "ENDING") for host in hosts):
            for host in hosts:
                if host["state"] == "KEPT" and not quiet:
                    print(f"trainyard: some files stay on host {harmless(host['host'])}.", file=sys.stderr)
            return True
        problems = [f"{host['host']}: {host['problem']}" for host in hosts if host.get("problem")]
        if problems and problems[0] != told and not quiet:
            told = problems[0]
            print(f"trainyard: waiting for files. {harmless(told)}", file=sys.stderr)
        if until is not None and time.monotonic() >= until:
            return False
        time.sleep(pause)
        pause = min(pause * 1.2, MOST_S)


class Patient:
    """Asks the console, also where it is away for a while: then the answer is None, and that is said once."""

    def __init__(self, session: Session, quiet: bool) -> None:
        self._session, self._quiet, self._is_away = session, quiet, False

    def __call__(self, path: str, query: Mapping[str, str]) -> Any:
        try:
            found = self._session.api.get(path, query)
        except (Offline, Refusal) as problem:
            if isinstance(problem, Refusal) and problem.status < 500 and problem.status != 429:
                raise
            if not self._is_away and not self._quiet:
                print(f"trainyard: {problem.message} Waiting for it.", file=sys.stderr)
            self._is_away = True
            return None
        self._is_away = False
        return found


def _tell(shown: Progress, line: str) -> None:
    shown.clear()
    sys.stderr.write(line)
    sys.stderr.flush()
    shown._is_shown = True


def exit_code(state: str, job: Mapping[str, Any]) -> int:
    """0 if it succeeded; else the code of the replica that failed first, 128 and the number of the signal that ended
    it, or 1. A replica that was started again is judged by its last start."""
    if state == "SUCCEEDED":
        return 0
    if state == "CANCELLED":
        return CANCELLED
    last = [replica["runs"][-1] for replica in job["replicas"] if replica["runs"]]
    of_attempt = [run for run in last if run["attempt"] == job["attempt"] and run.get("endTime")]
    ended = sorted(of_attempt, key=lambda run: str(run["endTime"]))
    for run in ended:
        if run.get("exitSignal"):
            return 128 + int(run["exitSignal"])
        if run.get("exitCode"):
            return int(run["exitCode"])
    return 1


ARGUMENTS: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {"wait": wait_arguments}
