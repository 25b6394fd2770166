"""The supervisor restarts children that die, stops children, and leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from console.runtime.processes import forks
from console.runtime.processes import supervisor as module
from console.runtime.processes.supervisor import Child, Process, Supervisor
from console.runtime.processes.watchdog import UNRESPONSIVE_AFTER_S, Director, EchoWatch, Messages
from tests.harness.wait_and_processes import process_alive, wait_for


class Running:
    """A supervisor in a thread, and the lines that it printed."""

    def __init__(self, *processes):
        self.said = []
        self.supervisor = Supervisor(processes, self.said.append)
        self.thread = threading.Thread(target=self.supervisor.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.supervisor.ask_to_stop()
        self.thread.join(30)
        assert not self.thread.is_alive()

    def pid(self, name):
        child = self.supervisor.children[name]
        return child.fork.pid if child.is_running() else None

    def says(self, text):
        return wait_for(lambda: [line for line in self.said if text in line], f"{text!r} to be said")


def shell(name, script, **options):
    return Process(name=name, work=forks.replace_by(("sh", "-c", script)), **options)


def test_a_child_that_dies_is_restarted_and_its_last_output_is_shown():
    with Running(shell("moody", "echo it is too much; exit 3")) as running:
        running.says("moody exited with code 3; starting it again in 0.2 s")
        running.says("moody exited with code 3; starting it again in 0.4 s")
        assert running.says("moody      | it is too much")


def test_pauses_grow_to_a_limit_and_start_anew_after_a_healthy_time():
    child = Child(shell("x", "true"), lambda line: None)
    pauses, now = [], 0.0
    for _ in range(8):
        child.started_at = now
        child.record_exit(1, now + 1)
        pauses.append(round(child.start_due_at - now - 1, 3))
        now += 100
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    child.started_at = now
    child.record_exit(1, now + module.HEALTHY_AFTER_S + 1)
    assert child.start_due_at == pytest.approx(now + module.HEALTHY_AFTER_S + 1.2)


def test_processes_that_others_need_are_stopped_last(tmp_path):
    notes = tmp_path / "notes"
    script = (
        f"trap 'sleep 0.2; echo $0 >>{notes}; exit' TERM; touch {tmp_path}/$0; while :; do sleep 0.05; done"
    )
    children = [
        Process(name=name, work=forks.replace_by(("sh", "-c", script, name)), stage=stage)
        for name, stage in (("broker", 0), ("web", 1), ("worker", 1))
    ]
    with Running(*children):
        wait_for(lambda: all((tmp_path / child.name).exists() for child in children), "all to stand ready")
    words = notes.read_text().split()
    assert sorted(words) == ["broker", "web", "worker"] and words[-1] == "broker"


def test_a_child_that_does_not_stop_is_killed_with_its_own_children(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "STOP_GRACE_S", 0.5)
    script = f"trap '' TERM; sleep 1000 & echo $! >{tmp_path}/pid; wait; wait"
    with Running(shell("stubborn", script)) as running:
        wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip(), "its child")
        pids = [running.pid("stubborn"), int((tmp_path / "pid").read_text())]
    wait_for(lambda: not any(process_alive(pid) for pid in pids), "both to be gone")


def test_a_suspended_child_can_be_replaced():
    with Running(shell("frozen", "sleep 1000")) as running:
        pid = wait_for(lambda: running.pid("frozen"), "it to run")
        os.kill(pid, signal.SIGSTOP)
        running.supervisor.restart("frozen", "does not answer")
        wait_for(lambda: running.pid("frozen") not in (None, pid), "another one")
        assert running.says("frozen does not answer; restarting it")


def test_nothing_outlives_a_supervisor_that_was_killed():
    script = (
        "from console.runtime.processes import forks\n"
        "from console.runtime.processes.supervisor import Process, Supervisor\n"
        "sleep = Process(name='sleep', work=forks.replace_by(('sh', '-c', 'echo $$; exec sleep 1000')))\n"
        "Supervisor([sleep], lambda line: print(line, flush=True)).run()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        child = int(parent.stdout.readline().split()[-1])
        assert process_alive(child)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    wait_for(lambda: not process_alive(child), "the child to follow")


class Patient(EchoWatch):
    """A watch whose worker answers when the test says so."""

    def __init__(self, tell):
        super().__init__({"worker": "dispatch.d1"}, tell)
        self.sent, self.answered = [], 0.0

    def last_echo(self, name):
        return self.answered

    def send(self, name, queue, now):
        self.sent.append((name, queue, now))


def test_a_worker_that_runs_but_takes_no_messages_is_restarted():
    told = []
    watch, start = Patient(told.append), time.time()
    watch.check("worker", "dispatch.d1", start)
    watch.check("worker", "dispatch.d1", start + 10)  # the first echo may have been lost
    assert watch.sent == [("worker", "dispatch.d1", start), ("worker", "dispatch.d1", start + 10)]
    watch.answered = start + 10
    watch.check("worker", "dispatch.d1", start + 20)  # the worker answered: the time starts again
    watch.check("worker", "dispatch.d1", start + 20 + UNRESPONSIVE_AFTER_S)
    assert told == []
    watch.check("worker", "dispatch.d1", start + 21 + UNRESPONSIVE_AFTER_S)
    assert told == [{"restart": "worker", "why": "has not answered through its queue for 91 s"}]


def test_the_supervisor_does_what_the_watchdog_tells(monkeypatch):
    said, restarted, messages = [], [], Messages()
    supervisor = Supervisor([], said.append)
    monkeypatch.setattr(supervisor, "restart", lambda name, why: restarted.append((name, why)))
    director = Director(supervisor, messages)
    director.look()  # nothing was told yet
    messages.tell({"restart": "worker", "why": "sleeps"})
    messages.tell({"ready": "Trainyard is ready"})
    director.look()
    assert (restarted, said, director.ready) == ([("worker", "sleeps")], ["Trainyard is ready"], True)
    assert not supervisor.stopping and not director.stopped_because
    messages.tell({"stop": "A later version has the database."})
    director.look()
    assert supervisor.stopping and director.stopped_because == "A later version has the database."


def test_output_without_an_end_of_line_is_cut_and_shown(monkeypatch):
    monkeypatch.setattr(module, "MAX_LINE", 8)
    with Running(shell("long", "printf 0123456789abcdef; printf '\\nend'; exec sleep 1000")) as running:
        running.says("long       | 01234567")
        running.says("long       | 89abcdef")
    assert "long       | end" in running.said


def test_a_child_has_no_file_of_its_parent_but_those_it_keeps(tmp_path):
    with open(tmp_path / "kept", "w") as kept, open(tmp_path / "other", "w") as other:
        os.set_inheritable(other.fileno(), True)
        look = "ls -l /proc/self/fd; exec sleep 1000"
        keep = (kept.fileno(),)
        work = forks.replace_by(("sh", "-c", look), keep)
        with Running(Process(name="look", work=work, keep_fds=keep)) as running:
            running.says(str(tmp_path / "kept"))
            running.says("/proc/")
        assert not [line for line in running.said if str(tmp_path / "other") in line]


def test_a_child_that_raises_shows_why():
    def work():
        raise ValueError("no such thing")

    with Running(Process(name="web", work=work)) as running:
        running.says("ValueError: no such thing")
        running.says("web exited with code 1; starting it again in 0.2 s")
