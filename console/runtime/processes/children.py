"""The processes of a running Trainyard and their command lines."""

from __future__ import annotations

import os
import re
import socket
import sys

from console.environment import Environment
from console.runtime.processes import broker
from console.runtime.processes.supervisor import Process

NAMES = ("web", "worker", "dispatcher", "beat")
WORKER_THREADS = 4
DISPATCHER_THREADS = 4


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


def plan(environment: Environment, names: tuple[str, ...], web_fd: int | None, lock_fd: int) -> list[Process]:
    """All child processes. Each inherits the lock, so a second `up` cannot start while one of them still runs."""
    dispatcher = dispatcher_name(environment)
    argv = {
        "web": (sys.executable, "-m", "console.runtime.web", "--fd", str(web_fd)),
        "worker": celery_worker("console.runtime.worker", "worker", "default", WORKER_THREADS),
        "dispatcher": celery_worker(
            "console.runtime.dispatcher", "dispatcher", f"dispatch,dispatch.{dispatcher}", DISPATCHER_THREADS
        ),
        "beat": (
            *celery("console.runtime.celery_app"),
            "beat",
            "-S",
            "console.runtime.beat:Scheduler",
            "--pidfile=",
            "-l",
            "WARNING",
        ),
    }
    wanted = [
        Process(
            name=name,
            argv=argv[name],
            env={"TRAINYARD_DISPATCHER": dispatcher} if name == "dispatcher" else {},
            pass_fds=(lock_fd, web_fd) if name == "web" and web_fd is not None else (lock_fd,),
        )
        for name in names
    ]
    if not environment.redis_url:
        wanted.insert(
            0, Process(name="broker", argv=broker.command(environment), stage=0, pass_fds=(lock_fd,))
        )
    return wanted


def celery(module: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "celery", "-q", "-A", module)


def celery_worker(module: str, name: str, queues: str, threads: int) -> tuple[str, ...]:
    return (
        *celery(module),
        *("worker", "-P", "threads", "-c", str(threads), "-Q", queues, "-n", f"{name}@%h", "-l", "WARNING"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
    )
