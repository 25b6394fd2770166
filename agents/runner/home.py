"""The paths of one deployment below ~/.trainyard, and which run and GPU names are safe in a path."""

from __future__ import annotations

import contextlib
import os
import re

_RUN_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,79}\Z")
_DEPLOYMENT = re.compile(r"[a-z0-9-]{1,40}\Z")
_KIND = re.compile(r"[a-z]{1,20}\Z")
# MIG devices of older drivers are named MIG-GPU-<uuid>/<instance>/<instance>.
_GPU = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._:/-]{0,119}\Z")
_KEY = re.compile(r"[0-9a-f]{64}\Z")
_SEPARATOR = re.compile("[/:]")


class Home:
    """The paths of one deployment on this host, all below ~/.trainyard."""

    def __init__(self, deployment: str) -> None:
        if not _DEPLOYMENT.match(deployment):
            raise ValueError("a deployment is named by 1 to 40 of a-z, 0-9 and -")
        self.root = os.path.join(os.path.expanduser("~"), ".trainyard")
        self.deployment = deployment
        self.base = os.path.join(self.root, deployment)
        self.runs = os.path.join(self.base, "runs")
        self.work = os.path.join(self.base, "work")
        self.trash = os.path.join(self.base, "trash")
        self.shells = os.path.join(self.base, "shells")
        self.preparations = os.path.join(self.base, "preparations")
        self.outputs = os.path.join(self.base, "outputs")
        self.python = os.path.join(self.base, "python")
        self.tools = os.path.join(self.root, "tools")
        self.gpus = os.path.join(self.root, "gpus")
        self.forgotten = os.path.join(self.base, "forgotten")
        self.owner = os.path.join(self.base, "owner")
        self.epoch = os.path.join(self.base, "epoch")
        self.mark = os.path.join(self.base, "mark")

    def make(self) -> None:
        """Make the directories, without looking into existing ones: a work directory may be on a disk that does not
        answer."""
        for path in (self.root, self.base, self.runs, self.work, self.trash, self.preparations, self.gpus):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)

    def gpu_lock(self, gpu: str) -> str:
        return os.path.join(self.gpus, _SEPARATOR.sub("_", gpu) + ".lock")

    def run(self, run: str) -> str:
        """A run's directory. The run id is checked here, where it becomes a path."""
        if not is_run_id(run):
            raise ValueError("not a run id: %.100r" % (run,))
        return os.path.join(self.runs, run)

    def preparation(self, kind: object, key: object) -> str:
        """The directory of a preparation. Its kind and key are checked here, where they become a path."""
        if not isinstance(kind, str) or not _KIND.match(kind) or not is_run_id(key):
            raise ValueError("not a preparation: %.40r %.100r" % (kind, key))
        return os.path.join(self.preparations, "%s-%s" % (kind, key))


def is_run_id(value: object) -> bool:
    return isinstance(value, str) and _RUN_ID.match(value) is not None


def is_gpu(value: object) -> bool:
    return isinstance(value, str) and _GPU.match(value) is not None


def is_key(value: object) -> bool:
    """Whether this is a SHA-256 in hexadecimal, as the entries of the cache are named."""
    return isinstance(value, str) and _KEY.match(value) is not None
