"""Installs the packages of a job with the Python of its image, and then executes the program, in the same process.

It is executed in the container of a run, by whatever Python the image has: so it imports nothing of the runner. It lies
in the run's own directory, beside the packages (`files/`) and what it is asked for (`asked.json`: `packages`, `index`,
`secrets`). The environment that it makes sees what the image has installed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from typing import Any, Dict, List

if __name__ == "__main__":  # the runner imports this module too, and serve forks faster without
    import subprocess

ASKED, FILES, ENVIRONMENT, TROUBLE = "asked.json", "files", "environment", "trouble"
FAILED, STOPPED = 1, 128 + signal.SIGTERM
TAIL = 900
# What pip says if nobody can be asked for a package.
_NO_INDEX = re.compile(
    "Could not find a version|No matching distribution|NewConnectionError|NameResolutionError|Network is unreachable"
    "|Temporary failure in name resolution|ConnectTimeoutError"
)
CURE = (
    "What the packages need is not in the image, and no index that this host reaches has it: add its wheels to the "
    "packages of the job, or use an image that has it."
)
NO_PIP = (
    "Python %s of the image has neither pip nor ensurepip: use an image with pip, or add a wheel of pip to the "
    "packages"
)


class Failed(Exception):
    """The packages cannot be installed. Its text is for people."""


def main(argv: List[str]) -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    # A first process of a container dies of no signal that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(STOPPED))
    try:
        install(here, read_asked(here))
    except Failed as failed:
        tell(here, str(failed))
    except OSError as error:
        tell(here, "%s: %s" % (error.strerror, error.filename))
    shutil.rmtree(os.path.join(here, FILES), ignore_errors=True)
    sys.stdout.flush()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    environment = os.path.join(here, ENVIRONMENT)
    env = dict(os.environ, VIRTUAL_ENV=environment)
    env["PATH"] = os.path.join(environment, "bin") + ":" + env.get("PATH", os.defpath)
    env.pop("PYTHONHOME", None)
    os.execvpe(argv[0], argv, env)


def read_asked(here: str) -> Dict[str, Any]:
    """What is asked for. It may have a password in it, which is not for the program. Code of the packages that pip
    builds can read it all the same: pip has it then."""
    path = os.path.join(here, ASKED)
    with open(path, encoding="utf-8") as file:
        asked: Dict[str, Any] = json.load(file)
    os.unlink(path)
    return asked


def tell(here: str, text: str) -> None:
    """Say why the program is not executed: in the log, and for the state of the run."""
    print("trainyard: " + text, flush=True)
    with open(os.path.join(here, TROUBLE), "w", encoding="utf-8") as file:
        file.write(text)
    sys.exit(FAILED)


def install(here: str, asked: Dict[str, Any]) -> None:
    environment, files = os.path.join(here, ENVIRONMENT), os.path.join(here, FILES)
    said = Output(asked.get("secrets") or [])
    env = pip_environment(asked.get("index") or "")
    words = [sys.executable, "-E", "-m", "venv", "--without-pip", "--system-site-packages", environment]
    must(said, words, env, files)
    see_libraries(environment)
    python = os.path.join(environment, "bin", "python3")
    pip = find_pip(said, python, asked["packages"], env, files)
    for command in installs(pip, asked["packages"], asked.get("index") == "none"):
        must(said, command, env, files)


def pip_environment(index: str) -> Dict[str, str]:
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    env.update(PIP_NO_INPUT="1", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_PROGRESS_BAR="off")
    env.update(PIP_NO_WARN_SCRIPT_LOCATION="1", PIP_ROOT_USER_ACTION="ignore", PYTHONUNBUFFERED="1")
    env.update(PIP_NO_CACHE_DIR="1")  # it would be thrown away with the container
    if index == "none":
        env["PIP_NO_INDEX"] = "1"
    elif index:
        env["PIP_INDEX_URL"] = index
    return env


def see_libraries(environment: str) -> None:
    """An environment made by the Python of another environment would see the libraries of neither."""
    name = "python%d.%d" % sys.version_info[:2]
    libraries = [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]
    with open(os.path.join(environment, "lib", name, "site-packages", "of-the-image.pth"), "w") as file:
        file.write("".join(path + "\n" for path in libraries))


def find_pip(said: Output, python: str, packages: List[str], env: Dict[str, str], files: str) -> List[str]:
    if said.run([python, "-m", "pip", "--version"], env, files) == 0:
        return [python, "-m", "pip"]
    for path in packages:
        if os.path.basename(path).startswith("pip-") and path.endswith(".whl"):
            return [python, "./%s/pip" % path]
    if said.run([python, "-m", "ensurepip", "--default-pip"], env, files) == 0:
        return [python, "-m", "pip"]
    raise Failed(NO_PIP % sys.version.split()[0])


def installs(pip: List[str], packages: List[str], without_index: bool) -> List[List[str]]:
    """The commands. Without an index, what builds a source archive must be installed already, so wheels come first."""
    wheels = ["./" + path for path in packages if path.endswith(".whl")]
    sources = ["./" + path for path in packages if not path.endswith(".whl")]
    found = [option for path in wheels + sources for option in ("--find-links", os.path.dirname(path))]
    if not without_index:
        return [pip + ["install"] + found + wheels + sources]
    built = [pip + ["install", "--no-build-isolation"] + found + sources] if sources else []
    return ([pip + ["install"] + found + wheels] if wheels else []) + built


def must(said: Output, command: List[str], env: Dict[str, str], files: str) -> None:
    if said.run(command, env, files):
        text = said.tail()
        cure = " " + CURE if _NO_INDEX.search(text) else ""
        raise Failed("the packages cannot be installed in the image: %s%s" % (text[-TAIL:], cure))


class Output:
    """What the programs print: shown as it comes, without what is secret, and its end kept."""

    def __init__(self, secrets: List[str]) -> None:
        self.secrets, self.end = [each.encode("utf-8") for each in secrets if each], b""

    def run(self, command: List[str], env: Dict[str, str], files: str) -> int:
        """The exit status of a program."""
        self.end = b""
        out, both = subprocess.PIPE, subprocess.STDOUT
        with open(os.devnull, "rb") as null:
            process = subprocess.Popen(command, stdin=null, stdout=out, stderr=both, cwd=files, env=env)
        with process:
            for line in process.stdout or ():
                self.show(line)
        return process.wait()

    def show(self, line: bytes) -> None:
        for secret in self.secrets:
            line = line.replace(secret, b"*" * len(secret))
        self.end = (self.end + line)[-4 * TAIL :]
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()

    def tail(self) -> str:
        return self.end.decode("utf-8", "replace").strip()


if __name__ == "__main__":
    main(sys.argv[1:])
