"""Serve: the loop of one connection. It waits only for its descriptors, and never works long on one thing."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import pwd
import select
import sys
import time
from typing import Callable, Dict, NoReturn, Tuple

from agents.runner.background_tasks import BackgroundTasks
from agents.runner.files import (
    free_bytes,
    make_host_spares,
    read_plain,
    stored_number,
    write_file,
    write_for_host,
)
from agents.runner.forks import ignored_signals, wake_on_signals
from agents.runner.home import Home, is_run_id
from agents.runner.host.gpu_watch import GpuWatch
from agents.runner.host.load import HostLoad
from agents.runner.linux import boot_id, own_argv
from agents.runner.metrics.pull import MetricsPull
from agents.runner.metrics.python_module import put_module
from agents.runner.outbox import Hangup, Outbox
from agents.runner.preparations.kept import Kept
from agents.runner.preparations.tasks import Preparations
from agents.runner.runs.claims import Claims
from agents.runner.runs.cleanup import Cleanup, read_forgotten
from agents.runner.runs.containment import containment_level, delegated_cgroup
from agents.runner.runs.known import OUT_BYTES, Runs
from agents.runner.runs.orders import login_env
from agents.runner.runs.samples import Samples
from agents.runner.shells.recording_pull import RecordingPull
from agents.runner.wire import MAX_HEADER, PREFACE, PROTOCOL, Decoder, Message, WireError, seal_of

TICK_S = 1.0
CONTROL_BYTES = 4 * 1024 * 1024
HELLO_S = 60.0
# The console's mark grows by one a second; it is written down when it has grown by this much.
_MARKS_APART = 10


class Serve:
    """One connection: frames in on `in_fd`, frames out on `out_fd`."""

    def __init__(self, in_fd: int, out_fd: int, umask: int, sha: str) -> None:
        self.in_fd, self.sha = in_fd, sha
        self.out = Outbox(out_fd)
        self.decoder = Decoder()
        self.runs = Runs(self.out, umask)
        self.background = BackgroundTasks()
        self.claims = Claims(self.runs, self.out)
        self.cleanup = Cleanup(self.runs, self.out, self.background)
        self.load = HostLoad()
        self.gpus = GpuWatch(self.runs, self.out, self.background, self.load)
        self.samples = Samples(self.load)
        self.kept = Kept(self.runs, self.out, self.background)
        self.preparations = Preparations(self.out, self.background, self.kept.look_soon)
        self.recordings = RecordingPull(self.runs, self.out)
        self.metrics = MetricsPull(self.runs, self.out, self.background)
        self.mark = 0  # the last mark of this connection that is on disk
        self.next_tick = time.monotonic() + TICK_S
        self.deadline = time.monotonic() + HELLO_S
        self.handlers: Dict[str, Callable[[Message, bytes], None]] = {
            "hello": self.on_hello,
            "start": self.claims.on_start,
            "stop": self.claims.on_stop,
            "pull": self.on_pull,
            "ack": self.on_ack,
            "forget": self.cleanup.on_forget,
            "ping": self.on_ping,
            "watch": self.on_watch,
            "evict": self.gpus.on_evict,
            "discard": self.kept.on_discard,
            "prepare": self.preparations.on_prepare,
            "unprepare": self.preparations.on_unprepare,
            "cast_pull": self.recordings.on_pull,
            "metrics_pull": self.metrics.on_pull,
        }

    # -- the loop --

    def run_loop(self) -> None:
        self.wake, write = os.pipe()
        for fd in (self.in_fd, self.out.fd, self.wake, write):
            os.set_blocking(fd, False)
        wake_on_signals(write)
        self.out.control(PREFACE)
        gc.freeze()  # forked keepers then share our pages instead of copying them at their first collection
        try:
            while True:
                self.step()
        except Hangup:
            pass
        except WireError as error:
            self.out.send({"t": "error", "about": "wire", "message": str(error)})
            self.out.drain()
        finally:
            self.load.close()

    def step(self) -> None:
        self.runs.send_logs()
        self.recordings.step()
        self.out.flush()
        poll = select.poll()
        if self.out.control_bytes < CONTROL_BYTES:  # while the console does not read, its orders are not read
            poll.register(self.in_fd, select.POLLIN)
        poll.register(self.out.fd, select.POLLOUT if self.out.waiting() else 0)
        poll.register(self.wake, select.POLLIN)
        if self.runs.inotify.fd >= 0:
            poll.register(self.runs.inotify.fd, select.POLLIN)
        for fd in (*self.background.by_fd, *self.claims.keepers.by_fd):
            poll.register(fd, select.POLLIN)
        for fd, event in poll.poll(self.poll_timeout_s() * 1000):
            if fd == self.in_fd:
                self.read_input()
            elif fd in self.background.by_fd:
                self.background.read(fd)
            elif fd in self.claims.keepers.by_fd:
                self.claims.keepers.read(fd)
            elif fd == self.runs.inotify.fd:
                self.runs.read_events()
            elif fd == self.wake:
                os.read(fd, 4096)
                self.reap()
            elif fd == self.out.fd and event & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                raise Hangup("the console no longer reads")
        if time.monotonic() >= self.next_tick:
            self.tick()
        if self.runs.ended:
            ended, self.runs.ended = self.runs.ended, []
            self.metrics.ended(ended)
            self.kept.look_soon()

    def poll_timeout_s(self) -> float:
        if self.recordings.is_due():
            return 0.0
        now = time.monotonic()
        until = self.next_tick
        if self.runs.active and self.out.bulk_bytes < OUT_BYTES:
            until = min(until, min(run.shipper.not_before for run in self.runs.active))
        # Rounded up to poll's millisecond: to wake too early would be a busy loop until the time has come.
        return max(0.0, until - now + (0.0009 if until > now else 0.0))

    def read_input(self) -> None:
        try:
            data = os.read(self.in_fd, 256 * 1024)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            raise Hangup(str(error)) from None
        if not data:
            raise Hangup("the console hung up")
        found = self.decoder.feed(data)
        while found:
            for message, payload in found:
                self.handle(message, payload)
            found = self.decoder.feed(b"")  # raises now if the rest was broken

    def handle(self, message: Message, payload: bytes) -> None:
        kind = message["t"]
        handler = self.handlers.get(kind)
        try:
            if handler is None:
                raise ValueError("this runner knows no %.40r" % kind)
            if self.runs.home is None and kind not in ("hello", "ping"):
                self.out.send({"t": "error", "about": kind[:40], "message": "hello comes first"})
                self.out.drain()
                raise Hangup("no hello")
            handler(message, payload)
        except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
            run = message.get("run")
            answer = {"t": "error", "about": kind[:40], "message": ("%s" % (error or repr(error)))[:1000]}
            if isinstance(error, KeyError):
                answer["message"] = "%s is missing" % error
            if is_run_id(run):
                answer["run"] = run
            self.out.send(answer)

    def reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid = 0
            if pid == 0:
                break
        for run in list(self.runs.by_name.values()):
            if not run.closed:
                self.runs.check_alive(run)
        self.preparations.tick()

    def tick(self) -> None:
        self.next_tick = time.monotonic() + (TICK_S if self.runs.inotify.fd >= 0 else 0.05)
        if self.runs.home is None:
            if time.monotonic() > self.deadline:
                raise Hangup("no hello")
            return
        self.runs.check_owner()
        self.background.kill_overdue()
        self.claims.keepers.tick(time.monotonic())
        self.cleanup.tick(time.monotonic())
        self.gpus.tick(time.monotonic())
        self.preparations.tick()
        self.kept.tick(time.monotonic())
        for run in list(self.runs.by_name.values()):
            if not run.closed:
                self.runs.check(run, later=True)
                if run.stop is not None:
                    self.claims.poke_keeper(run)
                self.runs.check_alive(run)
        self.metrics.tick(time.monotonic())
        self.sample()

    def sample(self) -> None:
        """Send the samples that are due. A sample is worthless a minute later: while the console does not read, take
        none."""
        if self.out.control_bytes < MAX_HEADER:
            base = self.runs.require_home().base
            for message in self.samples.take(
                list(self.runs.by_name.values()), lambda: free_bytes(base) >> 20
            ):
                self.out.send(message)
            report = self.load.report(time.monotonic())
            if report is not None:
                self.out.send(report)

    # -- hello, inventory --

    def on_hello(self, message: Message, payload: bytes) -> None:
        epoch = message["epoch"]
        if message["v"] != PROTOCOL or type(epoch) is not int or self.runs.home is not None:
            self.refuse("this runner speaks version %d, once, with a whole number as epoch" % PROTOCOL)
        try:
            home = Home(message["deployment"])
            home.make()
        except (OSError, TypeError, ValueError) as error:
            self.refuse(str(error))
        make_host_spares(home.base)
        put_module(home.python)
        stored = stored_number(home.epoch)
        if epoch < stored:
            self.refuse(
                "epoch %d is over, this host has seen %d: was the console restored?" % (epoch, stored)
            )
        if epoch > stored:
            write_for_host(home.base, os.path.basename(home.epoch), b"%d" % epoch, durable=True)
        self.background.directory = home.base
        self.runs.take_over(home, read_forgotten(home))
        self.out.send(self.greeting(home))
        self.runs.send_inventory()
        self.preparations.greet(home)
        self.cleanup.run(sweep=True)

    def refuse(self, why: str) -> NoReturn:
        self.out.send({"t": "error", "about": "hello", "message": why})
        self.out.drain()
        raise Hangup(why)

    def greeting(self, home: Home) -> Message:
        user = pwd.getpwuid(os.getuid()).pw_name
        mark, seal = read_mark(home.mark)
        return {
            "t": "hello",
            "v": PROTOCOL,
            "sha": self.sha,
            "boot_id": self.runs.boot_id,
            "python": sys.version.split()[0],
            "wall": time.time(),
            "mono": time.monotonic(),
            "uid": os.getuid(),
            "user": user,
            "home": os.path.dirname(home.root),
            "free_mb": free_bytes(home.base) >> 20,
            "containment": containment_level(),
            "mark": mark,
            "seal": seal,
        }

    # -- logs --

    def on_pull(self, message: Message, payload: bytes) -> None:
        start = message["from"]
        run = self.runs.known(message)
        if type(start) is not int or start < 0:
            raise ValueError("from must be an offset")
        run.shipper.pull(start, raw=message.get("raw") is True)
        self.runs.check(run)

    def on_ack(self, message: Message, payload: bytes) -> None:
        to = message["to"]
        run = self.runs.known(message)
        if type(to) is not int or to < 0:
            raise ValueError("to must be an offset")
        run.shipper.ack(to)
        self.runs.queue_log(run)

    def on_watch(self, message: Message, payload: bytes) -> None:
        self.gpus.on_watch(message, payload)
        self.kept.ask(message.get("kept") is True)

    def on_ping(self, message: Message, payload: bytes) -> None:
        self.out.send({"t": "pong", "id": message.get("id"), "wall": time.time(), "mono": time.monotonic()})
        mark = message.get("mark")
        if self.runs.home is not None and type(mark) is int and mark >= self.mark + _MARKS_APART:
            # Overwrite whatever is there: the console has seen it, and sends no lower mark than the one it believes.
            # A database that was restored from an older backup is recognised by it. A full disk may prevent the write.
            with contextlib.suppress(OSError):
                line = "%d %s" % (mark, seal_of(message))
                write_file(self.runs.require_home().mark, line.encode("ascii"))
                self.mark = mark


def read_mark(path: str) -> Tuple[int, str]:
    """The mark that a console has sent and its seal; or what somebody else has written there."""
    try:
        mark, _, seal = read_plain(path, 200).decode("ascii").partition(" ")
        return int(mark), seal.strip()
    except (OSError, ValueError):
        return 0, ""


def fill_caches() -> None:
    """Find out what never changes while this process lives: once, not again in each fork of it."""
    boot_id()
    login_env()
    own_argv()
    ignored_signals()
    for controller in ("", "memory"):
        delegated_cgroup(controller)


def main() -> None:
    with open(sys.argv[0], "rb") as file:  # now, while it is certain to be there
        sha = hashlib.sha256(file.read()).hexdigest()
    umask = os.umask(0o077)
    fill_caches()
    Serve(0, 1, umask, sha).run_loop()
