"""`trainyard up`: runs all processes of Trainyard from one foreground command."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener

from django.conf import settings
from django.core.checks import ERROR, run_checks
from django.utils import timezone

from agents.clock_keeper import ClockKeeper
from console import environment
from console.auth import setup
from console.runtime import database_setup, shared_files
from console.runtime.processes import broker, children
from console.runtime.processes.supervisor import Supervisor
from console.runtime.processes.watchdog import Watchdog
from console.runtime.schema_watch import SchemaWatch
from console.runtime.static_files import build as static_files


class StartRefused(Exception):
    """Trainyard cannot start. The message says why and what to do."""


def main(only: tuple[str, ...]) -> int:
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
        database_setup.prepare()
        clock = ClockKeeper()
        held.callback(clock.stop)
        clock.start()
        for note in shared_files.notes():
            print_line(f"Note: {note}")
        try:
            plan = children.plan(
                settings.TRAINYARD, only, listener.fileno() if listener else None, lock.fileno()
            )
        except broker.NoBroker as problem:
            raise StartRefused(" ".join(str(problem).split())) from problem
        url = address(settings.TRAINYARD, listener) if listener else ""
        note_owner(lock, url)
        later = supervise(Supervisor(plan, print_line), only, listener, url)
    print_line("Trainyard has stopped.")
    if later:
        raise StartRefused(later)
    return 0


def supervise(supervisor: Supervisor, only: tuple[str, ...], listener: socket.socket | None, url: str) -> str:
    """Run all processes until somebody stops them, or until a later version has the database: then returns why."""
    later: list[str] = []

    def stop_for_good(why: str) -> None:
        later.append(why)
        supervisor.ask_to_stop()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: supervisor.ask_to_stop())
    Watchdog(supervisor, [name for name in only if name in ("worker", "dispatcher")]).start()
    threading.Thread(target=announce, args=(supervisor, listener, url), daemon=True).start()
    watch = SchemaWatch(stop_for_good)
    watch.start()
    supervisor.run()
    watch.stop()
    return "".join(later)


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


def announce(supervisor: Supervisor, listener: socket.socket | None, url: str) -> None:
    """Print "ready" as soon as the web process reports that the database and the broker answer."""
    if listener is None:
        print_line("Trainyard's processes are started (no web among them).")
        return
    near = f"http://{near_address(listener)}:{listener.getsockname()[1]}"
    while not supervisor.stopping.wait(0.1):
        if healthy(near):
            link = setup_link(url, timezone.now())
            # In one write: a script that waits for the first line then also finds the second one.
            print_line(f"Trainyard is ready at {url}" + (f"\nSet up your account: {link}" if link else ""))
            return


def near_address(listener: socket.socket) -> str:
    """The address at which this process reaches its own web process, whatever address that listens on."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address := str(listener.getsockname()[0]), address)
    return f"[{host}]" if ":" in host else host


def healthy(url: str) -> bool:
    try:
        with build_opener(ProxyHandler({})).open(f"{url}/healthz", timeout=5) as answer:
            return int(answer.status) == 200
    except (HTTPError, URLError, OSError):
        return False


def setup_link(url: str, now: datetime) -> str:
    return f"{url}/setup/{setup.renew(now)}" if setup.needed() else ""
