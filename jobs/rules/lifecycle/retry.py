"""The class of a run's end, and what follows from it. This file is the table in the documents of Vertex, as code.

| end of a run                                      | class         | what follows                                   |
| ------------------------------------------------- | ------------- | ---------------------------------------------- |
| the primary exits 0                               | SUCCESS       | job SUCCEEDED, everything else is stopped      |
| another replica exits 0                           | FINISHED      | that replica is done; the job goes on          |
| a reducer exits 0: it serves until it is stopped  | TRANSIENT     | the whole job again, at most 3 times           |
| we stopped it                                     | STOPPED       | nothing by itself                              |
| 6, 134, 11, 139, SIGABRT, SIGSEGV                 | TRANSIENT     | the whole job again, at most 3 times           |
| any other exit code that the program chose        | USER_ERROR    | job FAILED                                     |
| its command could not be executed, or what it     | USER_ERROR    | job FAILED (StartError)                        |
| names (an image) does not exist                   |               |                                                |
| out of memory                                     | OUT_OF_MEMORY | job FAILED                                     |
| another signal, 129 to 159, host rebooted, lost   | NOT_PERMANENT | the replica again, same host, at most 5 times; |
|                                                   |               | then the whole job again, at most 3 times      |
| the host could not start or prepare it            | INTERNAL      | the whole job again, 3 tries in all            |
| another process was found on its GPUs             | BUSY          | the whole job again, elsewhere; the GPUs are   |
|                                                   |               | quarantined; counts against nothing            |
| the host has thrown away what it had prepared     | UNPREPARED    | the whole job again; the host is asked anew;   |
| for another run                                   |               | counts against nothing                         |
| the host ended it at its timeout                  | TIMEOUT       | job CANCELLED, with an error that says so      |

All whole-job retries share one counter of 3, so a job has at most 4 attempts and a replica at most 6 runs in each.
With `disable_retries` the whole job is never run again; a replica still is. When a job has waited too long for capacity
(without any run), trying again is a retry of the same kind, see `verdict.py`.

What is done for maintenance counts against nothing, because nothing failed:

| for maintenance                                   | what follows                                                   |
| ------------------------------------------------- | -------------------------------------------------------------- |
| a host is drained, and there is room elsewhere    | its replicas move under their names; the others are restarted  |
|                                                   | with the new addresses                                         |
| a host is drained by force, and there is none     | at the deadline the whole job goes back to the queue           |
| a lost host is declared gone                      | its runs are NOT_PERMANENT; each replica is started elsewhere, |
|                                                   | which counts as its restart; without room the whole job goes   |
|                                                   | back to the queue, which counts against nothing                |

Shells report a signal as an exit code over 128, so 137 counts as a kill unless the host saw a lack of memory. What the
host does not know is not guessed: no exit code and no signal means that the replica was lost.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from enum import StrEnum

from agents.infra.texts import join, said
from jobs.rules.lifecycle.preparation_states import NOT_PREPARED, UNPREPARED
from jobs.rules.lifecycle.states import JobState
from jobs.rules.lifecycle.views import Outcome, ReplicaView, RunView
from jobs.rules.spec.custom_job import CustomJobSpec

MAX_RESTARTS = 5
MAX_RETRIES = 3
MAX_INTERNAL_TRIES = 3

# gRPC codes of a job's error.
CANCELLED_CODE = 1
INVALID_ARGUMENT = 3
RESOURCE_EXHAUSTED = 8
INTERNAL_CODE = 13
UNAVAILABLE = 14

INTERNAL_TEXT = "Internal error occurred for the current attempt"
CANCELLED_TEXT = "CANCELED"

_TRANSIENT_STATUS = frozenset({6, 11, 128 + 6, 128 + 11})
_SIGNAL_STATUS = range(129, 160)
# The exit status that the documents of Vertex give to a program that could not be executed.
_START_ERROR_STATUS = 128


class EndClass(StrEnum):
    SUCCESS = "SUCCESS"
    FINISHED = "FINISHED"
    STOPPED = "STOPPED"
    TRANSIENT = "TRANSIENT"
    USER_ERROR = "USER_ERROR"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    NOT_PERMANENT = "NOT_PERMANENT"
    INTERNAL = "INTERNAL"
    BUSY = "BUSY"
    UNPREPARED = "UNPREPARED"
    TIMEOUT = "TIMEOUT"


# Nothing of the program was executed, by a mistake in the job: no such command, no such image.
_NOT_EXECUTED = frozenset({"exec_failed", NOT_PREPARED})
_REFUSALS = {**dict.fromkeys(_NOT_EXECUTED, EndClass.USER_ERROR), "gpu_busy": EndClass.BUSY}
# Ends that fail the job at once, and ends after which the whole job may be run again.
PERMANENT = frozenset({EndClass.USER_ERROR, EndClass.OUT_OF_MEMORY})
WELL = frozenset({EndClass.SUCCESS, EndClass.FINISHED})
# Of these ends the host's own words say nothing more.
_SAYS_ALL = frozenset({"reboot", "timeout", "stop", "tombstone"})


def classify(run: RunView, primary: bool, reducer: bool = False) -> EndClass | None:
    """The class of this run's end; None while the run is not over."""
    if not run.phase.over:
        return None
    if run.why == "timeout":
        return EndClass.TIMEOUT
    if run.why == "refused":
        # What was prepared just now for this very run and is not there does not become better without end.
        if run.refusal == UNPREPARED and run.prepared_at is None:
            return EndClass.UNPREPARED
        return _REFUSALS.get(run.refusal, EndClass.INTERNAL)
    if run.why in ("stop", "tombstone"):
        # A stop that we did not ask for (by an operator on the host, or an older console) is a loss like any other.
        return EndClass.STOPPED if run.stop_wanted_at else EndClass.NOT_PERMANENT
    if run.why in ("lost", "reboot"):
        return EndClass.NOT_PERMANENT
    if reducer and _exited_0(run):
        return EndClass.TRANSIENT
    return _by_exit(run, primary)


def _exited_0(run: RunView) -> bool:
    return run.exit_code == 0 and run.exit_signal is None


def _by_exit(run: RunView, primary: bool) -> EndClass:
    if _exited_0(run):
        return EndClass.SUCCESS if primary else EndClass.FINISHED
    if run.oom:
        return EndClass.OUT_OF_MEMORY
    status = exit_status(run)
    if status in _TRANSIENT_STATUS:
        return EndClass.TRANSIENT
    if status is None or run.exit_signal is not None or status in _SIGNAL_STATUS:
        return EndClass.NOT_PERMANENT
    return EndClass.USER_ERROR


def exit_status(run: RunView) -> int | None:
    """The exit status as a shell shows it: the exit code, or 128 + the signal; None when the host does not know it."""
    if run.exit_signal is not None:
        return 128 + run.exit_signal
    if run.exit_code is None and run.refusal in _NOT_EXECUTED:
        return _START_ERROR_STATUS
    if run.exit_code is None and run.oom:
        return 128 + signal.SIGKILL
    return run.exit_code


def may_restart(replica: ReplicaView) -> bool:
    return replica.restarts < MAX_RESTARTS


def restarts_together(spec: CustomJobSpec) -> bool:
    """Does the restart of one replica restart all? Not when retries are disabled, as the documents of Vertex say."""
    return spec.restart_job_on_worker_restart and not spec.disable_retries


def may_retry_job(spec: CustomJobSpec, job_retries: int) -> bool:
    return not spec.disable_retries and job_retries < MAX_RETRIES


def may_try_again(spec: CustomJobSpec, job_retries: int, internal_tries: int) -> bool:
    """May the job be tried again after an internal error? `internal_tries` counts this error, too."""
    return may_retry_job(spec, job_retries) and internal_tries < MAX_INTERNAL_TRIES


# -- the exact texts -------------------------------------------------------------------------------------------------


def failed(ends: Iterable[tuple[RunView, EndClass]], lost: RunView | None = None) -> Outcome:
    """FAILED, with one sentence for each replica that caused it. `lost`: the replica that was lost before them. Where
    its host lost it, the errors of its peers are no mistake in the job."""
    ends = list(ends)
    known = all(end == EndClass.OUT_OF_MEMORY or exit_status(run) is not None for run, end in ends)
    by_host = lost is not None and lost.why in ("lost", "reboot")
    return Outcome(
        JobState.FAILED,
        INVALID_ARGUMENT if known and not by_host else UNAVAILABLE,
        join(" ", [*_lost_sentence(lost), *(_sentence(run, end) for run, end in ends)]),
    )


def _lost_sentence(lost: RunView | None) -> list[str]:
    if lost is None:
        return []
    how = how_it_ended(lost)
    return [
        said(
            "The replica {replica} was lost first: it {how_it_ended}.", replica=lost.replica, how_it_ended=how
        )
    ]


def _sentence(run: RunView, end: EndClass) -> str:
    status = exit_status(run)
    if status is None:
        return said(
            "The replica {replica} was lost too often; the last time it {how_it_ended}.",
            replica=run.replica,
            how_it_ended=how_it_ended(run),
        )
    if end == EndClass.OUT_OF_MEMORY:
        return said(
            "The replica {replica} ran out of memory and exited with a non-zero status of {status}.",
            replica=run.replica,
            status=status,
        )
    if _exited_0(run):
        return said(
            "The reducer {replica} exited with a status of 0 before its job was over.", replica=run.replica
        )
    reason = "StartError" if run.refusal in _NOT_EXECUTED else "Error"
    sentence = said(
        "The replica {replica} exited with a non-zero status of {status}. Termination reason: {reason}.",
        replica=run.replica,
        status=status,
        reason=reason,
    )
    if reason == "Error" or not run.message:
        return sentence
    return join("", [sentence, said("\n Termination log message: {message}", message=run.message)])


def internal_error() -> Outcome:
    return Outcome(JobState.FAILED, INTERNAL_CODE, INTERNAL_TEXT)


def no_capacity(location: str) -> Outcome:
    return Outcome(
        JobState.FAILED,
        RESOURCE_EXHAUSTED,
        said(
            "Resources are insufficient in region: {location}. "
            "Try a different region or use a different accelerator.",
            location=location,
        ),
    )


def cancelled(reason: str = "") -> Outcome:
    """CANCELLED. `reason`: the message of the error, where no person cancelled the job."""
    return Outcome(JobState.CANCELLED, CANCELLED_CODE, reason or CANCELLED_TEXT)


def timed_out(timeout: str) -> Outcome:
    return Outcome(
        JobState.CANCELLED,
        CANCELLED_CODE,
        said("The job was cancelled because it ran longer than its timeout of {timeout}.", timeout=timeout),
    )


def whole_job_again(why: str) -> Outcome:
    return Outcome(JobState.QUEUED, 0, why)


def how_it_ended(run: RunView) -> str:
    """For history: `was killed by SIGKILL on gpu01`."""
    how = _how(run)
    if not run.message or (run.why in _SAYS_ALL and not run.gone):
        return how
    # The sentence around it has a full stop of its own.
    return said("{how_it_ended}: {message}", how_it_ended=how, message=run.message.removesuffix("."))


def replica_ended(run: RunView) -> str:
    """`workerpool1-0 was killed by SIGKILL on gpu01`"""
    return said("{replica} {how_it_ended}", replica=run.replica, how_it_ended=how_it_ended(run))


def _how(run: RunView) -> str:
    if run.why == "refused":
        refusal = run.refusal or said("no reason given")
        return said("could not be started on {host} ({refusal})", host=run.host, refusal=refusal)
    if run.gone:
        return said("was lost with {host}", host=run.host)
    if run.why == "reboot":
        return said("was lost: {host} was rebooted", host=run.host)
    if run.why == "timeout":
        return said("was ended by {host} at its timeout", host=run.host)
    if run.why in ("stop", "tombstone"):
        return said("was stopped on {host}", host=run.host)
    if run.exit_signal is not None:
        return said("was killed by {signal} on {host}", signal=signal_name(run.exit_signal), host=run.host)
    if run.why != "lost" and run.exit_code is not None:
        return said("exited with status {status} on {host}", status=run.exit_code, host=run.host)
    if run.message:
        return said("was lost on {host}", host=run.host)
    return said("was lost on {host}: nobody saw how it ended", host=run.host)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
