"""The processes of a running Trainyard, and what each of them runs."""

from __future__ import annotations

import gc
import os
import re
import socket
from dataclasses import replace
from importlib import import_module

from celery import platforms
from django.conf import settings
from django.urls import get_resolver

from console.environment import Environment
from console.runtime.processes import broker, forks
from console.runtime.processes.supervisor import Process

NAMES = ("web", "worker", "dispatcher", "beat")
WORKER_THREADS = 4
DISPATCHER_THREADS = 4
# What the processes import, but for the modules that add to the Celery application: those belong to one process each.
SHARED_MODULES = (
    "agents.links.fleet",
    "celery.apps.worker",
    "celery.beat",
    "celery.bin.celery",
    "celery.concurrency.thread",
    "celery.contrib.django.task",
    "celery.worker.autoscale",
    "celery.worker.consumer",
    "celery.worker.strategy",
    "console.consumers.routes",
    "console.runtime.requests.asgi_handler",
    "console.runtime.tasks",
    "console.runtime.web",
    "jobs.host_sync.control_plane",
    "jobs.sweep",
    "jobs.tasks",
    "jobs.wake.wakeup_list",
    "kombu.transport.redis",
    "uvicorn.lifespan.off",
    "uvicorn.loops.auto",
)


def load_shared() -> None:
    """Import once what all processes need, before they are forked.

    Nothing of it is garbage. The collector would look through all of it again and again, for a sixth of the time.
    """
    gc.disable()
    try:
        for name in SHARED_MODULES:
            import_module(name)
        get_resolver().url_patterns  # noqa: B018 (loads all views)
    finally:
        gc.enable()


def listen(bind: str, port: int) -> socket.socket:
    """Open the listening socket before any process starts, so that a used port is reported at once. Raises OSError."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((bind, port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


def dispatcher_name(environment: Environment) -> str:
    """A new name for each `up`: the leases of a dispatcher that died must not look like those of its successor."""
    machine = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:40]
    return environment.dispatcher or f"{machine}-{os.getpid()}"


def own_queue(name: str, dispatcher: str) -> str:
    """The queue that only this process takes from, or the shared queue if it has none of its own."""
    return f"dispatch.{dispatcher}" if name == "dispatcher" else "default"


def plan(environment: Environment, names: tuple[str, ...], web_fd: int | None, lock_fd: int) -> list[Process]:
    """All child processes. Each inherits the lock, so a second `up` cannot start while one of them still runs."""
    dispatcher = dispatcher_name(environment)
    works = {
        "web": lambda: serve_web(web_fd),
        "worker": lambda: run_worker("worker", "default", WORKER_THREADS),
        "dispatcher": lambda: run_dispatcher(dispatcher),
        "beat": run_beat,
    }
    wanted = [
        Process(
            name=name,
            work=works[name],
            keep_fds=(lock_fd, web_fd) if name == "web" and web_fd is not None else (lock_fd,),
        )
        for name in names
    ]
    if not environment.redis_url:
        become_broker = forks.replace_by(broker.command(environment), keep=(lock_fd,))
        wanted.insert(0, Process(name="broker", work=become_broker, stage=0, keep_fds=(lock_fd,)))
    return wanted


def serve_web(listener: int | None) -> None:
    import_module("console.runtime.web").main(["--fd", str(listener)])


def run_worker(role: str, queues: str, threads: int) -> None:
    celery(
        f"console.runtime.{role}",
        *("worker", "-P", "threads", "-c", str(threads), "-Q", queues, "-n", f"{role}@%h", "-l", "WARNING"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
    )


def run_dispatcher(name: str) -> None:
    # The settings were read before the fork. A dispatcher that is started again under its old name has its leases at
    # once.
    settings.TRAINYARD = replace(settings.TRAINYARD, dispatcher=name)
    run_worker("dispatcher", f"dispatch,dispatch.{name}", DISPATCHER_THREADS)


def run_beat() -> None:
    words = ("beat", "-S", "console.runtime.beat:Scheduler", "--pidfile=", "-l", "WARNING")
    celery("console.runtime.celery_app", *words)


def celery(module: str, *words: str) -> None:
    # Otherwise Celery puts a title of its own in place of that of forks.py.
    for name in ("set_process_title", "set_mp_process_title"):
        setattr(platforms, name, lambda *words, **options: None)
    raise SystemExit(import_module(module).app.start(["-q", *words]))
