"""The container of one run: made by podman, named after the run, and removed by that name.

The engine's client is the run's first process; what counts is the container's own first process. Podman's monitor
(conmon) and that process are descendants of the keepers, whoever dies: so any of them may be killed, and a keeper still
sees how the program ended. The program writes straight into the run's log, as without a container.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any, Callable, Dict, List, Mapping, Set, Tuple

from agents.runner.cache.store import Cache
from agents.runner.files import unlink, write_file
from agents.runner.forks import fork_detached
from agents.runner.home import Home
from agents.runner.metrics.places import metrics_directory, module_for_containers
from agents.runner.processes import Process, descendants, read_process, signal_process
from agents.runner.programs import output_of
from agents.runner.reduction.files_on_hosts import directory_of
from agents.runner.runs.orders import Order, Refused, container_env, login_env
from agents.runner.runtimes.client_variables import fits_client, is_of_client
from agents.runner.runtimes.devices import device_options, network_options
from agents.runner.runtimes.docker_options import check_network, look, run_words, user_words
from agents.runner.runtimes.engine_commands import (
    APPTAINER,
    DOCKER,
    PODMAN,
    find_engine,
    remove_container_words,
)
from agents.runner.runtimes.image_user import as_login, give, python_path_of_image, user_of_image
from agents.runner.runtimes.shell_tools import tools_volume

# The exit statuses by which a client says that it has not executed the command, and the first of them that is not a
# fault of its own.
CLIENT_FAILED, NOT_EXECUTABLE = 125, 126
REMOVE_S = 60.0
# What its monitor makes where it was started, when the kernel kills a process of the container for memory.
OOM = "oom"
# Says that its engine may still make it, although its client was killed.
MAY_COME = "container.may-come"
OUT_OF_MEMORY = (True, "certain", "its container ran out of memory")
# How long a killed process may take to be gone.
KILLED_S = 2.0
# Which controllers systemd delegates to the processes of a login.
DELEGATED = "/sys/fs/cgroup/user.slice/user-{uid}.slice/user@{uid}.service/cgroup.controllers"
# Programs that do nothing but pass signals on, by what the kernel calls them: that of `--init`, and those of images.
PASS_SIGNALS_ON = frozenset({"podman-init", "catatonit", "tini", "tini-static", "dumb-init", "docker-init"})
INIT_PLACES = ("/usr/libexec/podman/catatonit", "/usr/local/libexec/podman/catatonit", "/usr/bin/catatonit")


class Container:
    """What a keeper knows of the container of its run. All of it is in files, so that the next keeper knows it too."""

    is_elsewhere = False  # are its processes outside the tree of the keepers?
    client_is_silent = False  # does its client print nothing that is for the log of the run?

    def __init__(self, directory: str, facts: Mapping[str, Any]) -> None:
        """`facts`: those of its run, with `runtime` as `describe` made it."""
        self.directory, known = directory, facts["runtime"]
        self.program, self.name = str(known["program"]), str(known["name"])
        self.kind = str(known.get("kind") or PODMAN)
        self.place = str(known.get("place") or directory)
        # What its first process was: by now another process may have that number.
        self.first: Process | None = None
        if facts["pid"] and facts["ticks"]:
            self.first = Process(facts["pid"], 0, "", facts["ticks"])
        self.client = 0  # the number of the engine's client, as far as its keeper has forked it
        self.client_status: int | None = None
        self.monitor_lost = False

    def is_up(self) -> bool:
        """Whether its program is executed: until then, its first process is the engine's own."""
        if self.first is None:
            found = read_process(self.pid_in("container.pid"))
            if found is None or _is_engine(found.pid):
                return False
            self.first = found
            unlink(os.path.join(self.directory, "container.env"))
        return True

    def is_up_at_a_stop(self) -> bool:
        """The same, when it has to be known for certain: what is not up yet is not told of a stop."""
        return self.is_up()

    def pid_in(self, name: str) -> int:
        try:
            with open(os.path.join(self.place, name)) as file:
                return int(file.read())
        except (OSError, ValueError):
            return 0

    def is_alive(self) -> bool:
        """Whether its first process lives."""
        pid = self.pid_in("container.pid")
        found = read_process(pid) if pid else None
        same = found is not None and (self.first is None or found.ticks == self.first.ticks)
        return same and found is not None and found.state not in "ZX"

    def end_of(self, client: int, pid: int, code: int, status: int) -> Tuple[int, int] | None:
        """How its program ended, if the end of this child of ours tells; else None."""
        if pid == self.pid_in("container.pid"):
            return code, status  # its monitor was killed, and it is our child since then
        exited = code == os.CLD_EXITED
        if pid == self.pid_in("conmon.pid"):
            self.monitor_lost = not exited
            return (code, status) if exited and self.was_made() and not self.is_alive() else None
        if pid == client:
            self.client_status = status if exited else -status
            if exited and self.is_up() and not self.monitor_lost and not self.is_alive():
                return code, status
        return None

    def monitor_lives(self) -> bool:
        pid = self.pid_in("conmon.pid")
        found = read_process(pid) if pid else None
        return found is not None and found.state not in "ZX"

    def was_made(self) -> bool:
        return self.pid_in("container.pid") > 0

    def never_up(self) -> bool:
        """Whether the client gave up before it had executed anything."""
        return self.client_status is not None and self.client_status >= CLIENT_FAILED and not self.was_made()

    def given_up(self) -> bool:
        """Whether nothing will tell any more how it ended."""
        return self.never_up()

    def keep_followed(self, log: int, client: int, executed: bool) -> bool:
        """Podman's monitor is a child of the keepers: nothing else has to watch the container."""
        return False

    def refusal(self, log: int) -> Tuple[str, str]:
        """(refusal, message) of one that was never up, in the words of the engine, which are at the end of the log."""
        size = os.fstat(log).st_size
        lines = os.pread(log, 4096, max(0, size - 4096)).decode("utf-8", "replace").strip().splitlines()
        errors = [line for line in lines if line.startswith(("Error", "docker: "))]
        found = (errors or lines)[-1:] or ["%s ended with status %s" % (self.program, self.client_status)]
        words = found[0][:1000]
        if "image not known" in words or "no such image" in words.lower():
            return "unprepared", words
        return ("exec_failed" if self.client_status != CLIENT_FAILED else "runtime"), words

    def programs(self, everyone: Dict[int, Process]) -> List[Process]:
        """The processes that a stop is for: the engine's own end with them. Each is told once, because a second SIGTERM
        ends many a program at once: what would pass it on is told only as long as it is alone."""
        pid = self.pid_in("container.pid")
        if pid not in everyone or not self.is_alive():
            return []
        found = {pid} | descendants({pid}, everyone)
        living = [everyone[each] for each in found if everyone[each].state not in "ZX"]
        return [each for each in living if name_of_program(each.pid) not in PASS_SIGNALS_ON] or living

    def processes(self, everyone: Dict[int, Process]) -> Set[int]:
        """Those that are no descendants of the keepers."""
        return set()

    def kill(self) -> None:
        """Kill its first process: the kernel then kills all others in it."""
        found = read_process(self.pid_in("container.pid"))
        if found is not None and self.is_alive():
            signal_process(found.pid, found.ticks, signal.SIGKILL)

    def judge_oom(
        self, by_host: Tuple[bool | None, str, str], limited: bool | None
    ) -> Tuple[bool | None, str, str]:
        """The same as `judge_oom` of the host's counts, for a container that has failed: what its engine has recorded
        comes first. It has also where another process of it was killed, and the first one has failed for that.

        Its monitor makes a file where it was started. The engine itself knows it since podman 4.6.
        """
        if os.path.exists(os.path.join(self.directory, OOM)):
            return OUT_OF_MEMORY
        command = [self.program, "inspect", "--format", "{{.State.OOMKilled}}", self.name]
        status, text = output_of(command, 20.0)
        if status == 0 and text.strip() == "true":
            return OUT_OF_MEMORY
        oom, sure, words = by_host
        # The kernel counts those kills on the host too that are for the limit of one container.
        return (
            oom,
            sure,
            "killed when its container, or this host, ran out of memory" if oom and limited else words,
        )

    def remove(self, reap: Callable[[], None], kill_engine: Callable[[], object]) -> str:
        """End it and remove it, with all that its engine keeps. Returns what the engine says if it cannot; else "".

        An engine that is at it would make it after it was removed, and one that was killed itself may have left it half
        made: then what is left of the engine is killed first.
        """
        if not self.was_made():
            kill_engine()
        self.kill()
        until = time.monotonic() + KILLED_S
        while self.is_alive() and time.monotonic() < until:
            reap()
            time.sleep(0.002)
        reap()
        trouble = remove_container(self.kind, self.program, self.name)
        if trouble:
            kill_engine()
            reap()
            trouble = remove_container(self.kind, self.program, self.name)
        # Its monitor tells how the program ended: it is not killed before it could.
        until = time.monotonic() + KILLED_S
        while self.monitor_lives() and time.monotonic() < until:
            reap()
            time.sleep(0.005)
        reap()
        return "its container %s could not be removed: %s" % (self.name, trouble) if trouble else ""


def remove_container(engine: str, program: str, name: str) -> str:
    status, text = output_of(remove_container_words(engine, program, name), REMOVE_S)
    if "no such container" in text.lower():
        return ""
    return "" if status == 0 else text.strip()[-500:] or "%s ended with status %d" % (program, status)


def remove_later(directory: str, known: Mapping[str, Any], may_come: bool = False) -> None:
    """When no process of it is left, but what the engine keeps for it is; or `may_come`. Nobody waits for this."""
    if known and known.get("kind") != APPTAINER:
        engine, program, name = (str(known.get(field) or "") for field in ("kind", "program", "name"))

        def act() -> None:
            for pause in (0, 5, 30, 120):
                time.sleep(pause)
                if not remove_container(engine, program, name) and not may_come:
                    return

        fork_detached(act, directory, set(), "trainyard-remove %s" % name)


def _is_engine(pid: int) -> bool:
    """Whether the process is still the runtime's: `runc init`, for example, which waits for the start."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return True
    return os.path.basename(words[0]) in (b"runc", b"crun", b"exe", b"conmon") or not words[0]


def name_of_program(pid: int) -> str:
    """What the kernel calls a process."""
    try:
        with open("/proc/%d/comm" % pid, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def name_of(run: str, mark: str) -> str:
    """The mark's random part makes the name this run's own, also where two deployments share a login."""
    return "trainyard-%s-%s" % (run, mark[:8])


def describe(order: Order, run: str, directory: str, facts: Mapping[str, Any]) -> Dict[str, str]:
    """What is kept in the facts of the run, so that whoever closes it can remove the container.

    `place`: where the engine writes the numbers of processes. Its monitor takes no path with letters beyond ASCII.
    """
    runtime = order.runtime or {}
    kind = str(runtime.get("kind"))
    program = find_engine(kind)
    if program is None:
        raise Refused("runtime", "%s is not installed on this host" % kind)
    found = look(program) if kind == DOCKER else _may_limit_all()
    if kind == DOCKER:
        check_network(found, order)
    ascii_only = kind == PODMAN and facts["tmp"] and not directory.isascii()
    place = facts["tmp"] if ascii_only else directory
    name = name_of(run, facts["mark"])
    image = str(runtime["image"])
    return {"kind": kind, "program": program, "name": name, "image": image, "place": place, **found}


def can_limit(known: Mapping[str, Any], controller: str) -> bool:
    """Whether this container's engine can limit what it uses."""
    return controller in str(known["limits"]).split()


def _may_limit_all() -> Dict[str, str]:
    return {
        "limits": " ".join(controller for controller in ("memory", "cpu", "pids") if may_limit(controller))
    }


def command_of(
    order: Order, directory: str, run: str, work: str, facts: Mapping[str, Any]
) -> Tuple[List[str], Dict[str, str]]:
    """(argument vector, environment) of the client. No value of a variable is in the vector, where others see it."""
    known, runtime = facts["runtime"], order.runtime or {}
    env = container_env(order, directory, work, facts)
    reduction = directory_of(os.path.dirname(os.path.dirname(directory))) if order.reduction else ""
    module = module_for_containers(directory)
    # The variable of the image would be lost. Where its engine does not say what it is, it stays as it is; but where
    # there is a reduction, whose hook no replica can do without, it is lost.
    path = "" if "PYTHONPATH" in order.env else python_path_of_image(_cache_of(directory), known)
    module = "" if path is None else module
    if reduction or module:
        env["PYTHONPATH"] = ":".join(filter(None, (env.get("PYTHONPATH"), path, module)))
    own = tools_volume(order, directory) + [(each, each, "ro") for each in (reduction, module) if each]
    given = {name: value for name, value in env.items() if not is_of_client(name)}
    path = os.path.join(directory, "container.env")
    rest = {name: value for name, value in env.items() if name not in given}
    for name, value in rest.items():
        if not fits_client(name, value):
            raise Refused("bad_order", "env[%.80s]: must be one line in a container" % name)
    write_file(
        path, "".join("%s=%s\n" % each for each in sorted(rest.items())).encode("utf-8", "surrogateescape")
    )
    docker = known["kind"] == DOCKER
    command = run_words(known, order, path) if docker else _podman_words(known, path)
    command += ["--label", "trainyard.run=%s" % run, "--label", "trainyard.mark=%s" % facts["mark"]]
    for name in sorted(given):
        command += ["--env", name]
    volumes = [
        (work, work, "rw"),
        (metrics_directory(directory),) * 2 + ("rw",),
        *([(facts["tmp"],) * 2 + ("rw",)] if facts["tmp"] else []),
        *own,
        *mounts(runtime),
    ]
    for volume in volumes:
        command += ["--volume", ":".join(volume)]
    # Storage that hosts share may be of many users, and may hang.
    ours = os.path.dirname(os.path.dirname(directory)) + os.sep
    written = [source for source, _target, mode in volumes if mode == "rw" and source.startswith(ours)]
    written += [source for source in (work, facts["tmp"]) if source and source not in written]
    command += [*_limits(order, runtime, known), *_user(runtime, known, directory, written)]
    command += [*device_options(order.gpus, known), *network_options(order.gpus, known)]
    if runtime.get("workdir"):
        command += ["--workdir", work]
    entrypoint, args = runtime.get("entrypoint") or [], runtime.get("args", [])
    if entrypoint and docker:  # the option takes one word: the others stand before the arguments
        command, args = [*command, "--entrypoint", entrypoint[0]], [*entrypoint[1:], *args]
    elif entrypoint:
        command += ["--entrypoint", json.dumps(entrypoint)]
    return [*command, known["image"], *args], {**login_env(), **given}


def _podman_words(known: Mapping[str, Any], env_file: str) -> List[str]:
    words = [known["program"], "run", "--name", known["name"], "--pull=never", "--log-driver=passthrough"]
    words += ["--network=host", "--sig-proxy=false", "--security-opt=label=disable", "--restart=no"]
    for option, name in (("--pidfile", "container.pid"), ("--conmon-pidfile", "conmon.pid")):
        words += [option, os.path.join(known["place"], name)]
    words += ["--env-file", one_of_list(env_file)]
    if any(map(os.path.exists, INIT_PLACES)):
        words += ["--init"]  # passes signals on to a program that has no handlers, and reaps orphans
    return words


# bash where the image has it. Packages that were installed for the run are found first, and our tools last.
ANY_SHELL = [
    "sh",
    "-c",
    'PATH="${VIRTUAL_ENV:+$VIRTUAL_ENV/bin:}$PATH${TRAINYARD_TOOLS:+:$TRAINYARD_TOOLS}";'
    " command -v bash >/dev/null 2>&1 && exec bash -i; exec sh -i",
]


def shell_of(
    facts: Mapping[str, Any], argv: List[str], more: Mapping[str, str]
) -> Tuple[List[str], Dict[str, str]]:
    """(argument vector, environment) of a shell in the container. It has the variables of the container, and `more`."""
    known = facts["runtime"]
    names = [part for name in sorted(more) for part in ("--env", name)]
    command = [str(known["program"]), "exec", "--interactive", "--tty", *names, str(known["name"])]
    return [*command, *(argv or ANY_SHELL)], {**login_env(), **more, "TRAINYARD_MARK": str(facts["mark"])}


def one_of_list(path: str) -> str:
    """A path as the value of an option that takes several, with commas between them."""
    return '"%s"' % path.replace('"', '""')


def mounts(runtime: Mapping[str, Any]) -> List[Tuple[str, str, str]]:
    found = []
    for mount in runtime.get("mounts") or []:
        source, target, mode = (str(part) for part in mount)
        absolute = source.startswith("/") and target.startswith("/")
        if ":" in source + target or not absolute or mode not in ("rw", "ro"):
            raise Refused("bad_order", "runtime.mounts: %.200r" % (mount,))
        found.append((source, target, mode))
    return found


def _limits(order: Order, runtime: Mapping[str, Any], known: Mapping[str, Any]) -> List[str]:
    shm_mb = runtime.get("shm_mb") or (order.memory_mb or _host_memory_mb()) // 2
    command = ["--shm-size", "%dm" % max(64, int(shm_mb))]
    if order.memory_mb and can_limit(known, "memory"):
        command += ["--memory", "%dm" % order.memory_mb, "--memory-swap", "%dm" % order.memory_mb]
    # A machine type with memory of its own has so many CPUs; that of "host" leaves both to the host.
    if order.memory_mb and order.cpus and can_limit(known, "cpu"):
        command += ["--cpus", "%g" % order.cpus]
    # Podman's own limit is 2,048 threads, which ranks with their workers exceed. Docker has none.
    if known["kind"] == PODMAN and can_limit(known, "pids"):
        command += ["--pids-limit=-1"]
    return command


def may_limit(controller: str) -> bool:
    """Whether the engine can limit what a container uses: as root, or where cgroups (v2) delegate this to the login.
    One that is asked for a limit that it cannot set starts nothing."""
    if os.getuid() == 0:
        return True
    try:
        with open(DELEGATED.format(uid=os.getuid())) as file:
            return controller in file.read().split()
    except OSError:
        return False


def _host_memory_mb() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20


def _cache_of(directory: str) -> Cache:
    """That of the deployment of which the run with this directory is."""
    return Cache(Home(os.path.basename(os.path.dirname(os.path.dirname(directory)))))


def _user(
    runtime: Mapping[str, Any], known: Mapping[str, Any], directory: str, written: List[str]
) -> List[str]:
    """The image's user, who can write into the directories of the run; or ours."""
    is_root = os.getuid() == 0
    if known["kind"] == DOCKER and not is_root:
        return user_words(known)
    if runtime.get("user") == "ours":
        keep = [] if is_root else ["--userns=keep-id"]
        return [*keep, "--user", "%d:%d" % (os.getuid(), os.getgid())]
    program, image, name = (str(known[each]) for each in ("program", "image", "name"))
    user = user_of_image(_cache_of(directory), program, image, name, directory)
    if not is_root:
        return as_login(user)
    give(user, written)
    return []
