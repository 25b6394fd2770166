"""A private PostgreSQL and a private Redis, on Unix sockets in a scratch directory, gone with the harness."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
from urllib.parse import quote

from tests.harness import leftovers
from tests.harness.wait_and_processes import children_of, process_alive, run, succeeds, wait_for

POSTGRES_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "200",
    "log_min_messages": "warning",
}


class Daemon:
    """One server process that can be killed, stopped and started again on the same data."""

    name = "daemon"
    account = ()  # setpriv's options for another user; in the same call, because a change of user unsets PDEATHSIG

    def __init__(self):
        self.dir = leftovers.scratch(self.name)
        self.log = self.dir / "log"
        self.process = None
        self.more_environment = {}

    def command(self):
        raise NotImplementedError

    def answers(self):
        raise NotImplementedError

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["setpriv", *self.account, "--pdeathsig", "KILL", *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=leftovers.owned_environment(self.more_environment),
                start_new_session=True,
            )
        wait_for(self.answers_or_fell, f"{self.name} to answer", dump=self.log_text)
        return self

    def answers_or_fell(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended with {self.process.returncode}:\n{self.log_text()}")
        return self.answers()

    def log_text(self):
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """Send SIGKILL, as the kernel does when memory runs out."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def pause(self):
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)

    def close(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


class Redis(Daemon):
    name = "redis"

    def __init__(self):
        super().__init__()
        self.socket = self.dir / "s"

    @property
    def url(self):
        return f"unix://{self.socket}?db=0"

    def command(self):
        options = {
            "--port": "0",
            "--unixsocket": self.socket,
            "--dir": self.dir,
            "--save": "",
            "--appendonly": "no",
        }
        return [redis_program("redis-server"), *[str(word) for pair in options.items() for word in pair]]

    def cli(self, *words):
        return run(redis_program("redis-cli"), "-s", self.socket, *words).stdout

    def answers(self):
        return succeeds(redis_program("redis-cli"), "-s", str(self.socket), "ping")

    def flush(self):
        self.cli("FLUSHALL")


class Postgres(Daemon):
    """initdb once, then a database per product; PostgreSQL refuses to run as root, so root runs it as `postgres`."""

    name = "postgres"

    def __init__(self):
        super().__init__()
        self.programs = postgres_programs()
        self.data = self.dir / "data"
        self.data.mkdir()
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            for path in (self.dir, self.data):
                os.chown(path, account.pw_uid, account.pw_gid)
            self.account = ("--reuid=postgres", "--regid=postgres", "--clear-groups")
        init = [self.programs / "initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "--no-sync"]
        run("setpriv", *self.account, *init, "-E", "UTF8", "--locale=C")

    def command(self):
        settings = [word for name, value in POSTGRES_SETTINGS.items() for word in ("-c", f"{name}={value}")]
        return [self.programs / "postgres", "-D", self.data, "-k", self.dir, *settings]

    def answers(self):
        return succeeds(str(self.programs / "pg_isready"), "-q", "-h", str(self.dir), "-U", "postgres")

    def kill(self):
        """Send SIGKILL to the whole server, and wait for the end of all its processes.

        Its children, each of which has a session of its own, would notice by themselves. But as long as one of them
        has the shared memory, another server refuses to start.
        """
        if self.process and self.process.poll() is None:
            self.pause()  # from now on it forks no more
            pids = [self.process.pid, *children_of(self.process.pid)]
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()
            wait_for(lambda: not any(map(process_alive, pids)), "all processes of PostgreSQL to end")
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def create_database(self, name):
        self.sql(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def dump(self, name, path):
        """What docs/operating.md says about a backup."""
        run(self.programs / "pg_dump", "-h", self.dir, "-U", "postgres", "-f", path, name)

    def restore(self, name, path):
        self.sql(f'DROP DATABASE "{name}" WITH (FORCE)')
        self.create_database(name)
        self.load(name, path)

    def load(self, name, path):
        """Run the statements of a file."""
        run(self.programs / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", self.dir, "-U", "postgres",
            "-d", name, "-f", path)  # fmt: skip

    def url(self, name):
        return f"postgresql://postgres@{quote(str(self.dir), safe='')}/{name}"

    def sql(self, statement, database="postgres"):
        """Run one statement and return its rows as lists of strings."""
        options = [
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            self.dir,
            "-U",
            "postgres",
            "-d",
            database,
        ]
        output = run(self.programs / "psql", *options, "-c", statement).stdout
        return [line.split("|") for line in output.splitlines()]


def redis_program(name):
    """Return the path of the machine's program, else of the one in the Python wheel."""
    beside = pathlib.Path(sys.prefix, "bin", name)
    found = shutil.which(name) or (str(beside) if beside.exists() else None)
    if found is None:
        raise RuntimeError(f"the tests need {name}: apt-get install redis-server, or `make install`")
    return found


def postgres_programs():
    """Return the directory of initdb, postgres and psql: the newest that is installed."""
    on_path = shutil.which("initdb")
    installed = [path.parent for path in pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if on_path:
        return pathlib.Path(on_path).resolve().parent
    if not installed:
        raise RuntimeError(
            "the tests need PostgreSQL's programs (initdb, postgres): apt-get install postgresql"
        )
    return max(installed, key=lambda path: float(path.parent.name))
