"""Shell: attaches an SSH channel to a shell of a run, which a process of its own holds (`holder.py`).

The first connection makes that process. Each connection gives it the descriptors of its channel, so that nothing here
relays keys; then it only waits, because sshd closes a channel when the process on it ends.

A holder listens on an abstract socket, which needs no file: it works on a full disk and in a home on NFS, and no path
is too long. Other users of the host can see its name, but a holder and those who attach look at each other's user id.
"""

from __future__ import annotations

import array
import contextlib
import errno
import json
import os
import shutil
import socket
import struct
from typing import List, NoReturn, Tuple

from agents.runner.files import read_json, read_line, write_file
from agents.runner.forks import fork_detached
from agents.runner.home import Home, is_run_id
from agents.runner.linux import boot_id
from agents.runner.processes import read_process
from agents.runner.runs.facts import load_facts
from agents.runner.runs.orders import Refused, build_env, parse_order
from agents.runner.runtimes.containers import shell_of
from agents.runner.shells.frames import json_line
from agents.runner.shells.holder import Holder
from agents.runner.shells.recording import recorder_of
from agents.runner.shells.requests import size_of
from agents.runner.shells.terminal import Program
from agents.runner.shells.tools import ToolsMissing, add_tools
from agents.runner.wire import SHELL_PREFACE, Message, WireError, decode_object


class Gone(Exception):
    """The shell that a connection wants to attach to is not there any more."""


def main() -> NoReturn:
    """One line of JSON in, one line out, then frames, which the holder sends. Exits with status 1 when refused."""
    os.write(1, SHELL_PREFACE)
    try:
        line = read_line(0)
        control = connect(decode_object(line))
        fds = array.array("i", [0, 1])
        control.sendmsg([line], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    except ToolsMissing as missing:
        os.write(1, json_line({"error": str(missing), "missing": missing.machine}))
        os._exit(1)
    except (Gone, WireError, OSError, ValueError, KeyError, TypeError) as error:
        words = "%s" % (error or repr(error))
        os.write(1, json_line({"error": words, "gone": isinstance(error, Gone)}))
        os._exit(1)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    with contextlib.suppress(OSError):
        control.recv(1)
    os._exit(0)


def connect(request: Message) -> socket.socket:
    """A connection to the holder of the shell, which is made if the request says so. Raises Gone if there is none."""
    home, key = Home(request["deployment"]), request["shell"]
    if not is_run_id(key):
        raise ValueError("not a name of a shell: %.100r" % (key,))
    address = b"\0trainyard-shell-%d-%s-%s" % (os.getuid(), home.deployment.encode(), key.encode())
    record = os.path.join(home.shells, key + ".json")
    if request.get("new"):
        start_holder(address, *open_shell(request, home), request, home)
    control = socket.socket(socket.AF_UNIX)
    try:
        control.connect(address)
    except OSError:
        raise Gone(why_gone(record)) from None
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if uid != os.getuid():
        raise ValueError("another user of this host listens in place of the shell")
    return control


def start_holder(address: bytes, program: Program, secrets: List[str], request: Message, home: Home) -> None:
    """Fork the process that holds the shell. It listens from now on, so nobody has to wait for it."""
    record = os.path.join(home.shells, request["shell"] + ".json")
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return  # an answer was lost on the way, and the shell is there already
    listener.listen(16)

    def hold() -> None:
        process = read_process(os.getpid())
        assert process is not None
        facts = {"run": request["run"], "pid": process.pid, "ticks": process.ticks, "boot_id": boot_id()}
        with contextlib.suppress(OSError):  # a full disk: the shell works, and a person may need it for that
            os.makedirs(home.shells, 0o700, exist_ok=True)
            write_file(record, json.dumps(facts).encode())
        recorder = recorder_of(home.run(request["run"]), request, size_of(request), secrets)
        Holder(listener, program, request, record, recorder).serve()

    # Without the name of the run: the holder is no process of it, and stays a minute to tell how the shell ended.
    fork_detached(hold, home.base, {listener.fileno()}, "trainyard-shell %s" % request["shell"])
    listener.close()


def why_gone(record: str) -> str:
    """Why nobody listens for this shell any more."""
    found = read_json(record)
    if found is None:
        return "The shell has ended."
    if found.get("boot_id") != boot_id():
        return "The host was rebooted, and the shell ended with it."
    return "The process that held the shell on the host was killed."


def open_shell(request: Message, home: Home) -> Tuple[Program, List[str]]:
    """What a shell in this run executes, and where; and the secret values of the run. Raises ValueError if the run has
    none, or ToolsMissing."""
    directory = home.run(request["run"])
    facts = load_facts(directory)
    document = read_json(os.path.join(directory, "order.json"))
    if facts is None or facts["phase"] != "running" or document is None:
        raise ValueError("the run is not running")
    if facts["boot_id"] != boot_id():
        raise ValueError("the run ended with a reboot of the host")
    try:
        order = parse_order(document)
    except Refused as refused:
        raise ValueError("the run's order is damaged: %s" % refused) from None
    if not order.web_access:
        raise ValueError("this run does not allow shells")
    named = document.get("secrets")
    secrets = [order.env[name] for name in named if name in order.env] if isinstance(named, list) else []
    wanted = [str(part) for part in request.get("argv") or []]
    more = {str(name): str(value) for name, value in (request.get("env") or {}).items()}
    if facts["runtime"].get("name"):
        own = "TRAINYARD_SHELL=%s" % request["shell"]
        more.update(TERM="xterm-256color", TRAINYARD_SHELL=request["shell"])
        argv, env = shell_of(facts, wanted, more)
        return Program(argv, env, facts["work"], [], own), secrets
    os.chdir(facts["work"])  # an error is told to the person now
    env = build_env(order, directory, facts["work"], facts)
    if facts["pid"]:
        env["TRAINYARD_PID"] = "%d" % facts["pid"]
    env["TERM"] = "xterm-256color"
    # bash shows the last part of the directory in its prompt: the whole path of a run's directory fills half a line.
    env.setdefault("PROMPT_DIRTRIM", "1")
    env.update(more)
    env["TRAINYARD_MARK"] = facts["mark"]
    add_tools(env, home.tools, request.get("tools"))
    argv = wanted or [shutil.which("bash", path=env["PATH"]) or "/bin/sh", "-i"]
    groups = [group for group in (facts["cgroup"], facts["memory_cgroup"]) if group]
    return Program(argv, env, facts["work"], groups), secrets
