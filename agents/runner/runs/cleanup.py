"""Cleanup: deletes forgotten runs, work directories and parts of the cache that no run uses, left
cgroups, records of shells, and what other runners left beside their archives."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from typing import Any, List, Set

from agents.runner.background_tasks import BackgroundTasks
from agents.runner.cache.store import Cache, is_short_of_room
from agents.runner.compiled import DRAFT, ENDING, file_of, is_kept
from agents.runner.failpoints import failpoint
from agents.runner.files import delete_tree, read_json, read_plain, whole, write_file
from agents.runner.home import Home, is_run_id
from agents.runner.linux import boot_id
from agents.runner.outbox import Outbox
from agents.runner.processes import read_process
from agents.runner.runs.containment import delegated_cgroup, old_probes, remove_cgroup
from agents.runner.runs.facts import FACTS, Facts, load_facts
from agents.runner.runs.held_resources import remove_cgroups
from agents.runner.runs.known import Run, Runs
from agents.runner.runs.scratch import remove_scratch
from agents.runner.runtimes.containers import MAY_COME, remove_later
from agents.runner.runtimes.loaded_images import has_loaded, throw_away
from agents.runner.wire import Message

WORK_KEPT_S = 24 * 3600
WORK_KEPT_SHORT_S = 600  # on a disk that is short of room: their jobs are over, so no restart comes as a rule
RECORD_KEPT_S = 24 * 3600
DRAFT_KEPT_S = 3600
COMPILED_KEPT_S = 14 * 24 * 3600
SWEEP_EVERY_S = 600.0  # how often everything is swept, after the first sweep of a connection
IMAGES_S = 1800.0  # an engine may need minutes for one
# How long what comes next waits for more: each time costs two forks, and many short runs are forgotten one by one.
REST_S = 5.0

# How many ids of forgotten runs are kept, so that a start frame that was long on its way starts nothing twice. The ids
# of the last months are enough; the file stays small.
_REMEMBERED = 20000


def read_forgotten(home: Home) -> Set[str]:
    """The ids that never start again; the file is shortened when it has grown too long."""
    try:
        names = read_plain(home.forgotten, 1 << 24).decode("utf-8", "replace").split("\n")
    except OSError:
        return set()
    if len(names) > 2 * _REMEMBERED:
        names = names[-_REMEMBERED:]
        write_file(home.forgotten, "\n".join(names).encode())
    return set(names) - {""}


def remember_forgotten(home: Home, run: str) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(home.forgotten, flags, 0o600)
    try:
        os.write(fd, run.encode() + b"\n")
    finally:
        os.close(fd)


def move_to_trash(home: Home, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, os.path.join(home.trash, os.urandom(8).hex()))


def empty_trash(trash: str) -> List[str]:
    """Delete what is in the trash. Returns words for a person about what stays.

    The facts of a run name its cgroups and its temporary files: they stay until both are gone, and the next sweep tries
    again.
    """
    left = []
    for name in os.listdir(trash):
        path = os.path.join(trash, name)
        facts = load_facts(path)
        stays = remove_scratch(facts) if facts is not None else ""
        if facts is not None and not remove_cgroups(facts):
            continue
        if stays:
            left.append(stays)
            delete_all_but_facts(path)
        elif not delete_in_trash(path):
            left.append("%s could not be removed" % path)
    return left


def delete_all_but_facts(directory: str) -> None:
    for name in os.listdir(directory):
        if name != FACTS:
            delete_in_trash(os.path.join(directory, name))


def delete_in_trash(path: str) -> bool:
    try:
        return delete_tree(path)
    except OSError:
        return False


def sweep_cgroups(closed: List[Facts]) -> None:
    """Remove the cgroups that these closed runs, or older runners, left.

    Cgroups of other deployments, and of runs that nobody here knows, stay: each is known by its run's mark.
    """
    for facts in closed:
        remove_cgroups(facts, 0)
    for controller in ("", "memory"):
        for path in old_probes(delegated_cgroup(controller)):
            remove_cgroup(path)


def sweep_shells(home: Home) -> None:
    """Delete the records of shells whose holder was killed; a holder that ends deletes its own. They are kept for a
    day, so that whoever comes back is told why the shell is gone."""
    for name in os.listdir(home.shells) if os.path.isdir(home.shells) else ():
        path = os.path.join(home.shells, name)
        found = read_json(path) or {}
        process = read_process(whole(found.get("pid")))
        lives = process is not None and (process.ticks, boot_id()) == (
            found.get("ticks"),
            found.get("boot_id"),
        )
        with contextlib.suppress(OSError):
            if not lives and os.lstat(path).st_mtime < time.time() - RECORD_KEPT_S:
                os.unlink(path)


def sweep_programs(home: Home, own: str) -> None:
    """Delete what is left beside the archives of runners: drafts whose writers died, for those that are still being
    written are younger; and what other runners and other Pythons have compiled, which they make anew if they need it.
    `own` is the archive of this runner."""
    programs, kept = os.path.join(home.root, "bin"), os.path.basename(file_of(own)) if is_kept(own) else ""
    for name in os.listdir(programs) if os.path.isdir(programs) else ():
        draft = name.startswith((".put-", DRAFT))
        kept_s = DRAFT_KEPT_S if draft else COMPILED_KEPT_S if name.endswith(ENDING) else 0
        if kept_s and name != kept:
            with contextlib.suppress(OSError):
                if abs(time.time() - os.lstat(os.path.join(programs, name)).st_mtime) > kept_s:
                    os.unlink(os.path.join(programs, name))


def expired_work(home: Home, left: Set[str]) -> List[str]:
    """Mark the work directories of `left` as used now, then name those that no run has used for a day, or for some
    minutes on a disk that is short of room."""
    for name in left:
        with contextlib.suppress(OSError):
            os.utime(os.path.join(home.work, name))
    found, kept_s = [], WORK_KEPT_SHORT_S if is_short_of_room(home.work) else WORK_KEPT_S
    for name in os.listdir(home.work):
        with contextlib.suppress(OSError):
            if os.lstat(os.path.join(home.work, name)).st_mtime < time.time() - kept_s:
                found.append(name)
    return found


class Cleanup:
    """Handles the frame `forget`, and deletes in the background."""

    def __init__(self, runs: Runs, out: Outbox, background: BackgroundTasks) -> None:
        self.runs, self.out, self.background = runs, out, background
        self.left_work: Set[str] = set()  # of forgotten runs, not yet marked with the time
        self.told: List[str] = []  # what could not be removed the last time
        self.pending = False
        self.rests_until = -math.inf
        self.next_sweep_at = math.inf

    def tick(self, now: float) -> None:
        if (self.pending and now >= self.rests_until) or now >= self.next_sweep_at:
            self.rests_until = now + REST_S
            self.run(sweep=now >= self.next_sweep_at)

    def on_forget(self, message: Message, payload: bytes) -> None:
        name, home = message["run"], self.runs.require_home()
        directory = home.run(name)
        self.runs.check_owner()
        if os.path.isdir(directory):
            run = self.runs.find(name)
            run.refresh()
            if not run.closed:
                raise ValueError("the run is not closed")
            failpoint("before_delete")
            self.remove(run)
        self.out.send({"t": "forgotten", "run": name})

    def remove(self, run: Run) -> None:
        """Remember the id, move the directory to the trash at once, and have a child process delete it."""
        home = self.runs.require_home()
        remember_forgotten(home, run.run)
        self.runs.forgotten.add(run.run)
        self.runs.unwatch(run)
        run.shipper.close()
        run.shipper.pulled = False
        del self.runs.by_name[run.run]
        if run.facts and os.path.exists(os.path.join(run.directory, MAY_COME)):
            remove_later(run.directory, run.facts["runtime"], may_come=True)
        key = (run.facts or {}).get("work_key")
        move_to_trash(home, run.directory)
        if is_run_id(key):
            self.left_work.add(str(key))
        self.pending = True

    def run(self, sweep: bool = False) -> None:
        """Delete shared work directories that no run here uses any more, a day after their last run was forgotten.

        A day, because the restart that wants to find its files there may be ordered after its predecessor was
        forgotten; ten minutes where the disk is short of room. A child process looks at the directories, for they may
        hang; this process moves them to the trash, for it knows which run has come since. Another child deletes what
        is in the trash, however much it is.
        """
        home, left = self.runs.require_home(), set(self.left_work)
        self.pending = False
        if sweep or left:
            closed = [run.facts for run in self.runs.by_name.values() if run.facts and run.closed]

            def act() -> List[str]:
                sweep_cgroups(closed if sweep else [])
                sweep_shells(home)
                sweep_programs(home, sys.argv[0])
                Cache(home).throw_away(time.time())
                return expired_work(home, left)

            if self.background.start("sweep", act, self.end_sweep):
                self.left_work = set()
                self.next_sweep_at = time.monotonic() + SWEEP_EVERY_S if sweep else self.next_sweep_at
            else:
                self.pending = True
                self.next_sweep_at = 0.0 if sweep else self.next_sweep_at
        if sweep and has_loaded(home):
            self.background.start(
                "images", lambda: throw_away(home, time.time()), lambda answer: None, IMAGES_S
            )
        if os.listdir(home.trash):
            self.pending |= not self.background.start(
                "trash", lambda: empty_trash(home.trash), self.end_trash, math.inf
            )

    def end_trash(self, left: Any) -> None:
        """Tell once of what cannot be removed. It is tried again at each sweep."""
        found = left if isinstance(left, list) else []
        for text in found:
            if text not in self.told:
                self.out.send({"t": "error", "about": "trash", "message": text})
        self.told = found

    def end_sweep(self, names: Any) -> None:
        home = self.runs.require_home()
        used = {run.work_key or (run.facts or {}).get("work_key") for run in self.runs.by_name.values()}
        for name in names if isinstance(names, list) else ():
            if name not in used:
                with contextlib.suppress(OSError):  # a mount point cannot be moved
                    move_to_trash(home, os.path.join(home.work, name))
                    self.pending = True
