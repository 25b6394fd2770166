"""Hosts whose runs are fake and whose files are real: the runner's mode `outputs` runs in a process of this machine."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.utils import timezone

from agents.runner.shells.frames import json_line
from agents.runner.wire import OUTPUTS_PREFACE, decode_object
from agents.ssh import outputs
from agents.ssh.outputs import OutputsConversation
from jobs.artifacts import leftovers, storage
from jobs.models import HostOutputs, OutputFile
from jobs.outputs import due, moving
from tests.unit.agents.runner.protocol_client import PYTHON, RUNNER
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import FakeHost, settle


class PipeChannel:
    """A channel to a process. `cut_after`: so many bytes come before the connection breaks."""

    def __init__(self, process, cut_after=None):
        self.process, self.left = process, cut_after

    def settimeout(self, seconds):
        pass

    def sendall(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def recv(self, size):
        if self.left is not None:
            if self.left <= 0:
                raise OSError("the cable was pulled")
            size = min(size, self.left)
        data = self.process.stdout.read1(size)
        if self.left is not None:
            self.left -= len(data)
        return data


@dataclass
class HostWithFiles:
    """A fake host with a home directory."""

    fake: FakeHost
    home: Path

    @property
    def row(self):
        return self.fake.row

    def top(self, job):
        return self.home / ".trainyard" / settings.DEPLOYMENT / "outputs" / str(job.pk)

    def write(self, job, path, data=b"data"):
        place = self.top(job) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        return place

    def outputs(self, job):
        return HostOutputs.objects.get(job=job, host=self.row)


@pytest.fixture(autouse=True)
def channels_that_are_pipes(monkeypatch):
    monkeypatch.setattr(outputs, "send_all", lambda channel, data: channel.sendall(data))


@pytest.fixture(autouse=True)
def empty_storage():
    yield
    leftovers.forget()
    shutil.rmtree(storage.store().path(""), ignore_errors=True)
    shutil.rmtree(storage.receiving_directory(), ignore_errors=True)


class Connections:
    """Connects to homes of this machine. `cuts`: after how many bytes the next connections break."""

    def __init__(self):
        self.homes, self.processes, self.cuts, self.made = {}, [], [], 0
        self.refusal, self.variables = None, {}

    def connect(self, row):
        self.made += 1
        if self.refusal is not None:
            raise self.refusal
        env = {"HOME": str(self.homes[row.host_id]), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        env.update(self.variables)
        process = subprocess.Popen(
            [PYTHON, str(RUNNER), "outputs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
        )
        self.processes.append(process)
        assert process.stdout.readline() == OUTPUTS_PREFACE
        channel = PipeChannel(process)
        channel.sendall(json_line({"deployment": settings.DEPLOYMENT, "key": str(row.job_id)}))
        answer = decode_object(process.stdout.readline().rstrip())
        channel.left = self.cuts.pop(0) if self.cuts else None
        return OutputsConversation(lambda: self.close(process), channel, answer, b"")

    def close(self, process):
        process.stdin.close()
        process.stdout.close()
        process.wait(30)


@pytest.fixture
def connections(monkeypatch):
    found = Connections()
    monkeypatch.setattr(moving, "_connect", found.connect)
    monkeypatch.setattr(due.mover, "put", moving.move)
    yield found
    for process in found.processes:
        found.close(process) if process.poll() is None else None


@pytest.fixture
def add_files(add_host, connections, tmp_path):
    def add(name="h1", **about):
        home = tmp_path / name
        (home / ".trainyard" / settings.DEPLOYMENT / "trash").mkdir(parents=True)
        fake = add_host(name, **about)
        connections.homes[fake.row.pk] = home
        return HostWithFiles(fake, home)

    return add


@pytest.fixture
def begin(submit, control_plane):
    """Submit a job that writes below gs://bucket-1/run, and let it start on these hosts."""

    def begin(*hosts, **changes):
        document = spec(**changes)
        document["jobSpec"]["baseOutputDirectory"] = {"outputUriPrefix": "gs://bucket-1/run"}
        job = submit(document)
        settle(control_plane, *[host.fake for host in hosts])
        job.refresh_from_db()
        return job

    return begin


def look():
    """What the sweep does, when all pauses are over."""
    HostOutputs.objects.exclude(due_at=None).update(due_at=timezone.now())
    due.move_due(timezone.now())


def grow_old():
    """Let the files that were listed have been still for a while."""
    for row in OutputFile.objects.all():
        OutputFile.objects.filter(pk=row.pk).update(seen_at=row.seen_at - timedelta(minutes=1))
