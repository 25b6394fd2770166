"""`trainyard up`: runs all processes of Trainyard from one foreground command."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import IO

from django.conf import settings
from django.core.checks import ERROR, run_checks

from console import environment
from console.runtime import database_setup, shared_files
from console.runtime.processes import broker, children, forks, watchdog
from console.runtime.processes.supervisor import Process, Supervisor
from console.runtime.static_files import build as static_files


class StartRefused(Exception):
    """Trainyard cannot start. The message says why and what to do."""


def main(only: tuple[str, ...]) -> int:
    """Load everything, then fork the processes. What needs threads or connections runs in forks as well (forks.py)."""
    for line in environment.misspelt_variables(os.environ):
        print_line(f"Note: {line}")
    for line in settings.PUT_RIGHT:
        print_line(f"Note: {line}")
    check_settings()
    with contextlib.ExitStack() as held:
        lock = held.enter_context(take_lock(settings.TRAINYARD.data / "up.lock"))
        listener = held.enter_context(open_port(settings.TRAINYARD)) if "web" in only else None
        if listener:
            prepare_static_files()
        if code := forks.run_to_end(prepare_database):
            return code
        children.load_shared()
        try:
            plan = children.plan(
                settings.TRAINYARD, only, listener.fileno() if listener else None, lock.fileno()
            )
            if not settings.TRAINYARD.redis_url and (too_old := broker.note()):
                print_line(f"Note: {too_old}")
        except broker.NoBroker as problem:
            raise StartRefused(" ".join(str(problem).split())) from problem
        note_owner(lock, address(settings.TRAINYARD, listener) if listener else "")
        later = supervise(plan, only, listener, lock)
    print_line("Trainyard has stopped.")
    if later:
        raise StartRefused(later)
    return 0


def prepare_database() -> None:
    try:
        database_setup.prepare()
    except database_setup.ForeignDatabase as problem:
        print(f"trainyard: {problem}", file=sys.stderr)
        raise SystemExit(1) from problem
    for note in shared_files.notes():
        print_line(f"Note: {note}")


def supervise(
    plan: list[Process], only: tuple[str, ...], listener: socket.socket | None, lock: IO[str]
) -> str:
    """Run all processes until somebody stops them, or until a later version has the database: then returns why."""
    messages = watchdog.Messages()
    queues = {
        name: children.own_queue(name, children.dispatcher_name(settings.TRAINYARD))
        for name in only
        if name in ("worker", "dispatcher")
    }
    near = f"http://{near_address(listener)}:{listener.getsockname()[1]}" if listener else ""
    url = address(settings.TRAINYARD, listener) if listener else ""

    def watch() -> None:
        watchdog.main(messages.tell, queues, near, url, director.ready)

    watcher = Process(name="watchdog", work=watch, keep_fds=(lock.fileno(), messages.inlet))
    director = watchdog.Director(Supervisor([*plan, watcher], print_line), messages)
    for number in forks.SIGNALS:
        signal.signal(number, lambda *_: director.supervisor.ask_to_stop())
    director.supervisor.run(director.look)
    return director.stopped_because


def check_settings() -> None:
    """Run the system checks: print the warnings, refuse to start on errors. Both come with their cure."""
    found = [message for message in run_checks() if not message.is_silenced()]
    for message in found:
        if message.level < ERROR:
            print_line(f"Note: {message.msg} {message.hint or ''}")
    if errors := [f"{message.msg} {message.hint or ''}" for message in found if message.level >= ERROR]:
        raise StartRefused("\n".join(errors))


def prepare_static_files() -> None:
    """Each web process would do it at its start. Here a failure is told with its cure."""
    try:
        static_files.ready()
    except OSError as problem:
        cure = "Run `make install` as the user whom that directory belongs to."
        raise StartRefused(
            f"The static files cannot be prepared in {settings.STATIC_BUILDS} ({problem.strerror}). {cure}"
        ) from problem


def print_line(line: str) -> None:
    """Print a line for the operator. A closed terminal must not stop Trainyard."""
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except OSError:
        pass


def take_lock(path: Path) -> IO[str]:
    """Lock the data directory. We and all our children hold the lock, so two `up` never use one directory."""
    file = path.open("a+")
    deadline = time.monotonic() + 2.0  # the children of an `up` that was just killed need a moment to die
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
    file.seek(0)
    owner = file.read().strip() or "another process"
    file.close()
    raise StartRefused(
        f"Trainyard already runs on {path.parent} ({owner}). Stop it first, or give another --data DIR."
    )


def note_owner(lock: IO[str], url: str) -> None:
    lock.seek(0)
    lock.truncate()
    lock.write(f"process {os.getpid()}{', ' + url if url else ''}")
    lock.flush()


def open_port(wish: environment.Environment) -> socket.socket:
    try:
        return children.listen(wish.bind, wish.port)
    except OSError as problem:
        cure = f"Choose another with --port or TRAINYARD_PORT ({problem.strerror})."
        raise StartRefused(f"Port {wish.port} on {wish.bind} cannot be opened. {cure}") from problem


def address(wish: environment.Environment, listener: socket.socket) -> str:
    """The address for the browser."""
    if wish.url:
        return wish.url
    host = environment.outward_address() if wish.bind in ("0.0.0.0", "::") else wish.bind
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def near_address(listener: socket.socket) -> str:
    """The address at which this process reaches its own web process, whatever address that listens on."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address := str(listener.getsockname()[0]), address)
    return f"[{host}]" if ":" in host else host
