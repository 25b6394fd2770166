"""Shell: a login's terminal, moved into the directory and environment of a run. It execs, so nothing relays keys."""

from __future__ import annotations

import json
import os
import shutil
import termios
import tty
from typing import Dict, List, NoReturn, Tuple

from agents.runner.containment import join_cgroup
from agents.runner.facts import load_facts
from agents.runner.files import read_json
from agents.runner.forks import default_signals
from agents.runner.home import Home
from agents.runner.linux import boot_id
from agents.runner.orders import Refused, build_env, parse_order
from agents.runner.wire import MAX_HEADER, SHELL_PREFACE, Message, WireError, decode_object


def main() -> NoReturn:
    """On a terminal from sshd: one line of JSON in, one line out, then bash. Exits with status 1 when refused."""
    saved = None
    if os.isatty(0):
        saved = termios.tcgetattr(0)
        tty.setraw(0)  # else the terminal would echo the request and turn our newlines into two characters
    os.write(1, SHELL_PREFACE)
    try:
        request = decode_object(_read_line(0))
        argv, env, work = open_shell(request)
        os.chdir(work)
    except (WireError, OSError, ValueError, KeyError, TypeError) as error:
        os.write(1, json.dumps({"error": "%s" % (error or repr(error))}).encode("ascii") + b"\n")
        os._exit(1)
    if saved is not None:
        saved[0] |= termios.ICRNL | termios.IXON
        saved[1] |= termios.OPOST | termios.ONLCR
        saved[3] |= (
            termios.ICANON | termios.ECHO | termios.ECHOE | termios.ECHOK | termios.ISIG | termios.IEXTEN
        )
    os.write(1, b'{"ok":true}\n')
    if saved is not None:
        termios.tcsetattr(0, termios.TCSADRAIN, saved)
    default_signals()
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(2, ("%s: %s\r\n" % (argv[0], error.strerror)).encode())
    os._exit(127)


def _read_line(fd: int) -> bytes:
    """Read one line, byte by byte: what is typed after it belongs to the shell."""
    line = b""
    while len(line) < MAX_HEADER:
        byte = os.read(fd, 1)
        if byte in (b"\n", b"\r"):
            return line
        if not byte:
            raise WireError("the connection ended before the request")
        line += byte
    raise WireError("the request is over %d bytes" % MAX_HEADER)


def open_shell(request: Message) -> Tuple[List[str], Dict[str, str], str]:
    """(argv, environment, directory) of a shell in a running run, with this process already in the run's cgroup."""
    home = Home(request["deployment"])
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
    env = build_env(order, facts["run"], facts["work"], facts)
    if facts["pid"]:
        env["TRAINYARD_PID"] = "%d" % facts["pid"]
    env["TERM"] = os.environ.get("TERM", "xterm-256color")
    for name, value in (request.get("env") or {}).items():
        env[str(name)] = str(value)
    env["TRAINYARD_MARK"] = facts["mark"]
    argv = [str(part) for part in request.get("argv") or []]
    if not argv:
        argv = [shutil.which("bash", path=env["PATH"]) or "/bin/sh", "-i"]
    for group in (facts["cgroup"], facts["memory_cgroup"]):
        if group:
            join_cgroup(group)
    return argv, env, facts["work"]
