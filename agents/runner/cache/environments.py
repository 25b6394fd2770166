"""Python environments: the packages that a job brings, installed once a host for each set of packages.

An environment sees what the host's Python has installed (torch, for example), as the code in Google's prebuilt images
does. It works where Python came without ensurepip, as Debian's does: then the host's own pip installs into it, or a
wheel of pip that is among the packages.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from typing import Any, Callable, Dict, List, Tuple

from agents.runner.cache.install_log import keep_install_log
from agents.runner.cache.packages import lay_out
from agents.runner.cache.python_environment import STAMP, identity, is_ready
from agents.runner.cache.store import ENVIRONMENTS, Cache
from agents.runner.files import delete_tree, read_json, write_file
from agents.runner.logs.mask_patterns import parts_of
from agents.runner.preparations.long_programs import LongProgram, Unprepared
from agents.runner.runs.orders import login_env

INSTALL_S = 3600.0
# Where the libraries of the Python are that makes the environment: if it lives in one itself, that one's too.
_LIBRARIES = """
import json, os, site, sys
paths = [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages")]
print("TRAINYARD-PYTHON " + json.dumps([sys.executable, sys.version.split()[0], paths]))
"""


def make_environment(
    cache: Cache, key: str, document: Dict[str, Any], output: str, report: Callable[[int, int, str], None]
) -> Dict[str, Any]:
    """Make the environment, unless it is here. The caller holds its lock. Returns what is in it, and whether it was
    made now. Raises Unprepared.

    `packages`: [{sha256, name}], files of the cache. `index`: the address of a package index, "none" for the packages
    alone, or "" for what the login's own pip is configured to use.
    """
    path = cache.path(ENVIRONMENTS, key)
    made = not is_ready(cache, key)
    if made:
        # A process that was killed may have left its files.
        cache.delete(ENVIRONMENTS, key)
        try:
            _Making(cache, path, document, output, report).run()
        except BaseException:
            delete_tree(path)
            raise
        finally:
            delete_tree(path + ".packages")
    found = read_json(os.path.join(path, STAMP)) or {}
    return {
        "python": found.get("version"),
        "installed": found.get("installed"),
        "made": "now" if made else "earlier",
    }


class _Making:
    def __init__(
        self,
        cache: Cache,
        path: str,
        document: Dict[str, Any],
        output: str,
        report: Callable[[int, int, str], None],
    ) -> None:
        self.cache, self.path, self.report = cache, path, report
        self.index = str(document.get("index") or "")
        self.env = self.pip_environment()
        self.python = self.find_python(str(document.get("interpreter") or "python3"))
        self.wheels, self.sources = self.lay_out(document.get("packages") or [])
        self.program = LongProgram(output, self.env, INSTALL_S)

    def pip_environment(self) -> Dict[str, str]:
        env = {
            name: value
            for name, value in login_env().items()
            if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
        }
        env.update(PIP_NO_INPUT="1", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_PROGRESS_BAR="off")
        env.update(PIP_NO_WARN_SCRIPT_LOCATION="1", PIP_ROOT_USER_ACTION="ignore", PYTHONUNBUFFERED="1")
        if self.index == "none":
            env["PIP_NO_INDEX"] = "1"
        elif self.index:
            # Not an argument: the address may have a password in it, and arguments can be seen by all users.
            env["PIP_INDEX_URL"] = self.index
        return env

    def find_python(self, name: str) -> str:
        found = shutil.which(name, path=self.env.get("PATH"))
        if not found:
            raise Unprepared("host", "missing_program", "%s is not installed on this host" % name)
        return found

    def lay_out(self, packages: List[Dict[str, str]]) -> Tuple[List[str], List[str]]:
        """Give the shipped files the names that pip reads: the wheels, and the others."""
        os.makedirs(self.path + ".packages", 0o700, exist_ok=True)
        # Relative: pip would read a ";" in the name of a home directory as part of a requirement.
        paths = ["./" + path for path in lay_out(self.cache, packages, self.path + ".packages")]
        wheels = [path for path in paths if path.endswith(".whl")]
        return wheels, [path for path in paths if path not in wheels]

    def run(self) -> None:
        executable, version, libraries = self.ask_python()
        self.must([self.python, "-m", "venv", "--without-pip", "--system-site-packages", self.path], "host")
        self.see_libraries(version, libraries)
        pip = self.find_pip()
        before = os.path.getsize(self.program.output)
        for command in self.installs(pip):
            self.must(command, "user")
        keep_install_log(self.path, self.program.output, before, parts_of(self.index))
        stamp = {
            "python": executable,
            "interpreter": identity(executable),
            "version": version,
            "installed": self.installed(pip),
        }
        write_file(os.path.join(self.path, STAMP), json.dumps(stamp).encode(), durable=True)

    def ask_python(self) -> Any:
        self.must([self.python, "-c", _LIBRARIES], "host")
        line = self.program.tail(20000).rpartition("TRAINYARD-PYTHON ")[2]
        return json.loads(line)

    def see_libraries(self, version: str, libraries: List[str]) -> None:
        """An environment made by the Python of another environment would see the libraries of neither."""
        place = os.path.join(self.path, "lib", "python%s" % ".".join(version.split(".")[:2]), "site-packages")
        with open(os.path.join(place, "of-the-host.pth"), "w") as file:
            file.write("".join(path + "\n" for path in libraries))

    def find_pip(self) -> List[str]:
        python = os.path.join(self.path, "bin", "python3")
        if self.program.run([python, "-m", "pip", "--version"], self.path + ".packages") == 0:
            return [python, "-m", "pip"]
        for wheel in self.wheels:
            if os.path.basename(wheel).startswith("pip-"):
                return [python, os.path.join(wheel, "pip")]
        if self.program.run([python, "-m", "ensurepip", "--default-pip"], self.path + ".packages") == 0:
            return [python, "-m", "pip"]
        text = (
            "Python of this host has neither pip nor ensurepip: install python3-pip or python3-venv there, "
            "or add a wheel of pip to the packages"
        )
        raise Unprepared("host", "missing_program", text)

    def installs(self, pip: List[str]) -> List[List[str]]:
        """The commands. Without an index, what builds a source archive must be installed already, so wheels come
        first."""
        found = [
            option
            for path in self.wheels + self.sources
            for option in ("--find-links", os.path.dirname(path))
        ]
        if self.index != "none":
            return [[*pip, "install", *found, *self.wheels, *self.sources]]
        commands = []
        if self.wheels:
            commands.append([*pip, "install", *found, *self.wheels])
        if self.sources:
            commands.append([*pip, "install", "--no-build-isolation", *found, *self.sources])
        return commands

    def installed(self, pip: List[str]) -> List[str]:
        """name==version of what was installed here."""
        if self.program.run([*pip, "list", "--local", "--format=freeze"], self.path + ".packages"):
            return []
        lines = self.program.tail(16000).splitlines()
        return [line for line in lines if re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*==[^\s]+\Z", line)][-500:]

    def must(self, command: List[str], whose: str) -> None:
        if self.program.run(command, self.path + ".packages", lambda tail: self.report(0, 0, "")):
            raise Unprepared(whose, "python", "the packages cannot be installed: %s" % self.program.tail(900))
