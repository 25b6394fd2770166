"""The command line client as a person has it: its wheel, the oldest Python that it promises, a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
import zipfile
from pathlib import Path

from console.client import build_wheel
from tests.harness.wait_and_processes import PATIENCE_S

OLDEST = "3.9"
# Where that is not to be had, one that is older than what the server needs.
OLDER = (OLDEST, "3.10")
IS_IT = 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])'


def python():
    """The oldest interpreter that is here. Fails where there is none."""
    for version in OLDER:
        kept = sorted(Path.home().glob(f".pyenv/versions/{version}*/bin/python3"))
        for found in (shutil.which(f"python{version}"), *map(str, kept)):
            if found and subprocess.run([found, "-c", IS_IT, version], capture_output=True).returncode == 0:
                return found
    raise AssertionError(f"There is no Python {' or '.join(OLDER)} here. Run: pyenv install {OLDEST}")


class CommandLine:
    """The client, its files, and how to run it: `run` without a terminal, `terminal` with one."""

    def __init__(self, folder, interpreter=None):
        self.folder = Path(folder)
        self.interpreter = interpreter or python()
        build_wheel.build_wheel(str(self.folder))
        zipfile.ZipFile(self.folder / build_wheel.file_name()).extractall(self.folder / "installed")
        self.environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.folder),
            "PYTHONPATH": str(self.folder / "installed"),
            "TRAINYARD_CONFIG": str(self.folder / "config"),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
        }

    def words(self, *words):
        return [self.interpreter, "-m", "trainyard_client", *map(str, words)]

    def run(self, *words, stdin="", check=True, timeout=PATIENCE_S, cwd=None, **environment):
        done = subprocess.run(
            self.words(*words),
            input=stdin,
            text=True,
            capture_output=True,
            timeout=timeout,
            cwd=cwd or self.folder,
            env={**self.environment, **environment},
        )
        if check and done.returncode:
            raise AssertionError(f"trainyard {words}: exit {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def terminal(self, *words, cols=100, rows=30, cwd=None, **environment):
        return Terminal(
            self.words(*words), {**self.environment, **environment}, cols, rows, cwd or self.folder
        )


class Terminal:
    """A command on a terminal. `shown`: all that it has written."""

    def __init__(self, words, environment, cols, rows, cwd):
        self.shown = ""
        self._bytes = b""
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(cwd)
                os.execve(words[0], words, environment)
            finally:
                os._exit(127)
        self.resize(cols, rows)

    def resize(self, cols, rows):
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, text):
        os.write(self.file, text.encode())

    def is_raw(self):
        return not termios.tcgetattr(self.file)[3] & termios.ICANON

    def read(self, timeout=0.2):
        """Take what has come. False at the end."""
        ready, _, _ = select.select([self.file], [], [], timeout)
        if not ready:
            return True
        try:
            data = os.read(self.file, 65536)
        except OSError:
            data = b""
        self._bytes += data
        self.shown = self._bytes.decode(errors="replace")
        return bool(data)

    def until(self, pattern, timeout=PATIENCE_S, after=0):
        """Wait until this is shown. Returns the match."""
        deadline = time.monotonic() + timeout
        while not (found := re.compile(pattern, re.DOTALL).search(self.shown, after)):
            if time.monotonic() > deadline or not self.read():
                raise AssertionError(f"{pattern!r} was not shown:\n{self.shown[-4000:]}")
        return found

    def ended(self, timeout=PATIENCE_S):
        """Wait for the end. Returns the exit code."""
        deadline = time.monotonic() + timeout
        while self.read() and time.monotonic() < deadline:
            pass
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        raise AssertionError(f"it has not ended:\n{self.shown[-4000:]}")

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.file)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
