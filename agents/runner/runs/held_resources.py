"""What a run holds on its host: GPUs, a work directory, cgroups. Acquired before its command, released after it."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from typing import Dict, List, Tuple

from agents.runner.cache.images import find_image, root_of
from agents.runner.cache.python_environment import is_ready
from agents.runner.cache.store import ENVIRONMENTS, IMAGES, TREES, Cache
from agents.runner.cache.work_tree import put_tree
from agents.runner.failpoints import failpoint
from agents.runner.files import take_lock
from agents.runner.forks import run_with_timeout
from agents.runner.home import Home
from agents.runner.host.cuda import CudaNumbers
from agents.runner.host.gpus import GPU_LOOK_S, blocking_processes, describe_holders, holders_for_wire
from agents.runner.host.mounts import may_be_another_mount
from agents.runner.host.networks import network_variables
from agents.runner.runs.containment import (
    cgroup_path,
    cgroups_of,
    limit_memory,
    make_cgroup,
    remove_cgroup,
)
from agents.runner.runs.facts import Facts
from agents.runner.runs.orders import Order, Refused
from agents.runner.runs.scratch import make_scratch
from agents.runner.runtimes.adapters import describe, is_of_this_host
from agents.runner.runtimes.containers import can_limit
from agents.runner.runtimes.loaded_images import note_use
from agents.runner.runtimes.packages import put_packages


def check_port(port: int) -> None:
    """Refuse the start if a process of this host listens on the port. Connections in TIME_WAIT are no obstacle."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
                probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise Refused("port_taken", "port %d is in use on this host" % port) from None


CGROUP_S = 0.5  # how long a close waits until the kernel releases processes that have just died
HELD_S = 5.0  # how long a start waits for one who looks whether an entry of the cache is used, or puts it in its place
COPY_S = 600.0  # how much longer a work directory may take that gets the code of the job
STORAGE_S = float(os.environ.get("TRAINYARD_STORAGE_S") or 20)


def check_gpus(gpus: List[str], facts: Facts) -> None:
    """Refuse the start unless every GPU is proved free of other processes."""
    if not gpus:
        return
    busy, error = blocking_processes(gpus, "")
    if busy:
        facts["busy"] = holders_for_wire(busy)
        raise Refused("gpu_busy", "; ".join(describe_holders(uuid, busy[uuid]) for uuid in sorted(busy)))
    if error:
        facts["busy"] = {gpu: [] for gpu in gpus}
        raise Refused("gpu_busy", "whether its GPUs are free is not known: %s" % error)


def kill_leftovers_on_gpus(facts: Facts) -> None:
    """Kill the run's own processes on GPUs that are given back.

    Others are named in the facts; the console keeps the GPU out of use.
    """
    gpus = [str(gpu) for gpu in facts.get("gpus") or []]
    if gpus and facts["started_at"]:
        busy, _ = blocking_processes(gpus, facts["mark"], quick=True)
        facts["busy"] = holders_for_wire(busy)


def remove_cgroups(facts: Facts, patience_s: float = CGROUP_S) -> bool:
    """True when none is left. A cgroup that cannot be removed now is removed by serve (cleanup.py)."""
    gone = [remove_cgroup(group, patience_s) for group in cgroups_of(facts)]
    return all(gone)


class HeldResources:
    """The resources of one run. What others may need to know of them is in the run's facts."""

    def __init__(self, home: Home, run: str) -> None:
        self.home, self.run = home, run
        self.gpu_locks: List[int] = []
        self.environment_lock = self.image_lock = -1
        self.work = os.path.join(home.run(run), "work")

    def acquire(self, order: Order, facts: Facts) -> None:
        """Acquire all that the order asks for, or raise Refused: then what was acquired so far is still held."""
        self.lock_gpus(order.gpus, facts)
        failpoint("after_gpu_lock")
        facts["host_env"] = self.look_around(order, facts)
        if order.port is not None:
            check_port(order.port)
        facts["environment"] = self.hold_environment(order.environment)
        self.check_interpreter(order.interpreter, order.environment is None)
        self.make_work(order.work_key, order.code)
        put_packages(Cache(self.home), order, self.home.run(self.run))
        facts["work"] = self.work
        if not make_scratch(facts["tmp"]):
            facts["tmp"] = ""
        if order.runtime is not None:
            facts["runtime"] = known = describe(order, self.run, self.home.run(self.run), facts)
            if not is_of_this_host(known):
                # The engine makes one, and limits the memory there.
                facts.update(memory_mb=order.memory_mb, containment="container")
                facts["memory_enforced"] = can_limit(known, "memory") if order.memory_mb else None
                note_use(self.home, known["kind"], known["image"])
                return
            known["root"] = self.hold_image(known["image"])
        facts["cgroup"] = make_cgroup(cgroup_path(self.run, facts["mark"]))
        group, enforced = limit_memory(facts["cgroup"], self.run, facts["mark"], order.memory_mb)
        facts.update(memory_cgroup=group, memory_mb=order.memory_mb)
        facts["memory_enforced"] = enforced if order.memory_mb else None
        facts["containment"] = "cgroup" if facts["cgroup"] else "subreaper"

    def look_around(self, order: Order, facts: Facts) -> Dict[str, str]:
        """Check the GPUs, and find the variables that only this host knows. A shell of the run gets the same ones."""
        numbers = CudaNumbers(order.gpus)
        try:
            check_gpus(order.gpus, facts)
        except Refused:
            numbers.answer(0)  # nobody waits for it any more
            raise
        visible = numbers.answer(GPU_LOOK_S)
        return dict(network_variables(order.address), CUDA_VISIBLE_DEVICES=visible)

    def lock_gpus(self, gpus: List[str], facts: Facts) -> None:
        for gpu in sorted(gpus):
            fd = take_lock(self.home.gpu_lock(gpu))
            if fd < 0:
                facts["busy"] = {gpu: []}
                raise Refused("gpu_busy", "GPU %s is held by another run on this host" % gpu)
            os.set_inheritable(fd, True)  # the replica holds the lock too, should all keepers die
            self.gpu_locks.append(fd)

    def hold_environment(self, key: str | None) -> str:
        """The path of the run's Python environment. It is not deleted before the last process of the run has ended."""
        if key is None:
            return ""
        cache = Cache(self.home)
        lock = cache.share(ENVIRONMENTS, key, HELD_S)
        if lock < 0 or not is_ready(cache, key):
            raise Refused("unprepared", "the Python environment of this run is not on this host any more")
        os.set_inheritable(lock, True)
        self.environment_lock = lock
        return cache.path(ENVIRONMENTS, key)

    def check_interpreter(self, path: str, is_found_by_path: bool) -> None:
        """Refuse a start whose command would find another Python than the one that its location names. That may lie on
        a disk of its own, which may hang. `is_found_by_path`: there is no environment, so the command finds what is
        named python3 in the same directory."""

        def act() -> None:
            there = os.path.isfile(path) and os.access(path, os.X_OK)
            found = os.path.join(os.path.dirname(path), "python3")
            same = not is_found_by_path or (os.path.exists(found) and os.path.samefile(path, found))
            os._exit(0 if there and same else 1)

        if path and not run_with_timeout(act, STORAGE_S):
            why = "the Python that stands for the image is not on this host: %s, which python3 beside it has to be"
            raise Refused("exec_failed", why % path)

    def hold_image(self, image: str) -> str:
        """The path of an unpacked image. It is not deleted before the last process of the run has ended."""
        cache = Cache(self.home)
        key = find_image(cache, image)
        self.image_lock = cache.share(IMAGES, key, HELD_S) if key else -1
        if self.image_lock < 0 or not cache.has(IMAGES, key):
            raise Refused("unprepared", "the image %s is not on this host any more" % image)
        os.set_inheritable(self.image_lock, True)
        return root_of(cache, key)

    def make_work(self, work_key: str | None, code: Tuple[str, str] | None) -> None:
        """Make the work directory with the job's code in it: the only step that touches a user's path.

        Where that path may be on a disk of its own, a child with a deadline does it.
        """
        if work_key is not None:
            self.work = os.path.join(self.home.work, work_key)
        cache = Cache(self.home)
        if code is not None and not (os.path.lexists(self.work) or cache.has(TREES, code[0])):
            raise Refused("unprepared", "the code of this run is not on this host any more")

        def act() -> None:
            if code is not None:
                put_tree(cache, code[0], self.work, code[1])
            os.makedirs(self.work, mode=0o700, exist_ok=True)

        # Nothing can be mounted below a directory that was made for this claim.
        if work_key is None or not may_be_another_mount(self.home.base, self.work):
            act()
        elif not run_with_timeout(act, STORAGE_S + (COPY_S if code else 0)):
            raise Refused("storage", "%s does not answer, or cannot be written" % self.work)

    def locks(self) -> List[int]:
        """The descriptors of all locks, those of the GPUs first."""
        return [*self.gpu_locks, *(fd for fd in (self.environment_lock, self.image_lock) if fd >= 0)]

    def take_locks(self, fds: List[int], gpus: int) -> None:
        """These are the locks of another keeper, of which so many are GPUs. What this one executes inherits them."""
        for fd in fds:
            os.set_inheritable(fd, True)
        self.gpu_locks = fds[:gpus]

    def unlock_gpus(self) -> None:
        for fd in self.gpu_locks:
            fcntl.flock(fd, fcntl.LOCK_UN)
