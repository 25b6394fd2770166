"""Prepare: the process that prepares one thing. It outlives the connection and the serve that started it.

Its request comes on stdin, because it may hold credentials: nothing of it is on a command line or on a disk. The lock
that it inherits is held while it lives, so any serve can tell whether it still works.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from typing import Any, Callable, Dict

from agents.runner.files import FULL
from agents.runner.forks import write_traceback
from agents.runner.home import Home
from agents.runner.linux import become_subreaper, give_way
from agents.runner.preparations.cache_entries import prepare_environment, prepare_tree
from agents.runner.preparations.images import prepare_image
from agents.runner.preparations.left_processes import enter
from agents.runner.preparations.reducer_python import prepare_numpy
from agents.runner.preparations.report import HOST, USER, Failed, Report
from agents.runner.processes import Process, all_processes, descendants, freeze_and_kill
from agents.runner.wire import WireError, decode_object

# By kind, what prepares it: called with what the console asks for, the report, and the paths of the deployment. It
# returns what the console is to know of the result, or raises Failed. To call it again changes nothing.
Prepare = Callable[[Dict[str, Any], Report, Home], Dict[str, Any]]
KINDS: Dict[str, Prepare] = {
    "image": prepare_image,
    "tree": prepare_tree,
    "environment": prepare_environment,
    "numpy": prepare_numpy,
}


def main() -> None:
    give_way()  # training, its log and its shells come first
    request = decode_object(sys.stdin.buffer.read())
    home = Home(request["deployment"])
    directory = home.preparation(request["kind"], request["key"])
    os.umask(0o077)
    become_subreaper()
    enter()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    report = Report(directory, request["asked"])
    try:
        prepare(request, home, report)
    finally:
        _kill_children()


def prepare(request: Dict[str, Any], home: Home, report: Report) -> None:
    kind = KINDS.get(request["kind"])
    try:
        if kind is None:
            raise Failed(HOST, "this runner cannot prepare %.40r" % request["kind"])
        report.ready(kind(request["what"], report, home))
    except Failed as failed:
        report.failed(failed.fault, str(failed))
    except (KeyError, TypeError, ValueError, WireError) as error:
        write_traceback(report.directory)
        report.failed(USER, "it cannot be prepared: %r" % error)
    except OSError as error:
        write_traceback(report.directory)
        full = error.errno in FULL
        report.failed(HOST, "the disk is full" if full else os.strerror(error.errno or errno.EIO))


def _kill_children() -> None:
    """Leave nobody behind: a program that was started for this may have daemons of its own."""

    def children() -> list[Process]:
        everyone = all_processes()
        found = descendants({os.getpid()}, everyone)
        return [everyone[pid] for pid in found if everyone[pid].state not in "ZX"]

    for _ in range(50):
        if not children():
            return
        freeze_and_kill(children)
