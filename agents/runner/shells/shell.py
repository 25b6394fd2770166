"""Shell: makes a shell of a run if the request says so, and attaches an SSH channel to it as `attach.py` does."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
from typing import Dict, List, NoReturn, Tuple

from agents.runner.files import write_file
from agents.runner.forks import fork_detached
from agents.runner.home import Home
from agents.runner.linux import boot_id
from agents.runner.processes import read_process
from agents.runner.runs.facts import Facts
from agents.runner.runs.orders import build_env
from agents.runner.runtimes.adapters import pid_of_program, shell_of
from agents.runner.shells.attach import attach, record_of, refuse
from agents.runner.shells.holder import Holder
from agents.runner.shells.recording import recorder_of
from agents.runner.shells.requests import size_of
from agents.runner.shells.running import running_run
from agents.runner.shells.terminal import Program
from agents.runner.shells.tools import ToolsMissing, add_tools, place_of
from agents.runner.wire import Message


def main() -> NoReturn:
    attach(make)


def make(address: bytes, request: Message, home: Home) -> None:
    """Make the shell that is to listen on this address, if the request says so."""
    if not request.get("new"):
        return
    try:
        program, secrets = open_shell(request, home)
    except ToolsMissing as missing:
        refuse({"error": str(missing), "missing": missing.machine})
    start_holder(address, program, secrets, request, home)


def start_holder(address: bytes, program: Program, secrets: List[str], request: Message, home: Home) -> None:
    """Fork the process that holds the shell. It listens from now on, so nobody has to wait for it."""
    record = record_of(home, request["shell"])
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


def open_shell(request: Message, home: Home) -> Tuple[Program, List[str]]:
    """What a shell in this run executes, and where; and the secret values of the run. Raises ValueError if the run has
    none, or ToolsMissing."""
    directory, facts, order, secrets = running_run(home.run(request["run"]))
    wanted = [str(part) for part in request.get("argv") or []]
    more = {str(name): str(value) for name, value in (request.get("env") or {}).items()}
    groups = [group for group in (facts["cgroup"], facts["memory_cgroup"]) if group]
    if facts["runtime"].get("name"):
        own = "TRAINYARD_SHELL=%s" % request["shell"]
        more.update(TERM="xterm-256color", TRAINYARD_SHELL=request["shell"])
        more.update(variables_of_tools(directory, facts, place_of(home.tools, request.get("tools"))))
        argv, env = shell_of(facts, wanted, more)
        return Program(argv, env, facts["work"], groups, own), secrets
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
    return Program(argv, env, facts["work"], groups), secrets


def variables_of_tools(directory: str, facts: Facts, place: str) -> Dict[str, str]:
    """What a shell in a container needs to use the tools at this place on the host, which is mounted there."""
    pid = pid_of_program(directory, facts)
    found = {"TRAINYARD_PID": "%d" % pid} if pid else {}
    if place:
        found["TRAINYARD_TOOLS"] = os.path.join(place, "bin")
    return found
