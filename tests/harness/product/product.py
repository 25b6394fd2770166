"""Start `trainyard up` on its own data directory, add people and hosts by command line, and check the invariants."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import uuid

from tests.harness import leftovers, new_database
from tests.harness.evidence import Evidence
from tests.harness.hosts.disk import fill
from tests.harness.invariants import WHEN_QUIET, check, nothing_lives_after_the_end
from tests.harness.product import collect
from tests.harness.product.client import TERMINAL, Client
from tests.harness.product.database import DatabaseReader
from tests.harness.product.forks import Forks
from tests.harness.product.logs import StoredLogs
from tests.harness.product.processes import Processes
from tests.harness.services import Postgres, Redis
from tests.harness.wait_and_processes import process_alive, run, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[3]
PASSWORD = "correct horse battery staple"
# Time is scaled, not work: a lease of 3 s makes "past the lease" a matter of seconds.
QUICK = {"LEASE_S": "3", "TICK_S": "0.5", "GRACE_S": "1", "LINK_DEAD_S": "4", "MIN_FREE_MB": "10"}
QUICK["STALL_S"] = "15"
QUICK["RETRY_WAIT_S"] = "0.05"
# Tests open hundreds of sockets with one token; test_front_door.py has limits of its own.
MANY = {"SESSION_CONNECTIONS": "5000", "PERSON_CONNECTIONS": "5000", "ADDRESS_CONNECTIONS": "5000"}
MANY["TOKEN_REQUESTS"] = "0"
QUICK["NOTIFY_PRIVATE"] = "127.0.0.0/8"  # receivers of tests
# Where the commands cannot be forked: each start of an interpreter takes a second or two.
SEVERAL = """
import json, sys
from console.cli import main
for words in json.loads(sys.argv[1]):
    code = main(words)
    print(end="\\0", flush=True)
    if code:
        sys.exit(code)
"""
SHAPES = ("embedded", "apart")


class Product:
    """Shape "embedded": SQLite, private Redis. Shape "apart": PostgreSQL, Redis, a second dispatcher and worker."""

    # How often what is forked hashes a password. Empty: as often as the product does.
    password_rounds = "1"

    def __init__(self, shape="embedded", data_mb=None, clocks=None, forked=True, **settings):
        self.shape = shape
        self.forked = forked
        self.more_environment = clocks.of_product() if clocks else {}
        self.data = leftovers.scratch(f"product-{shape}")
        if data_mb:  # a disk of its own, so that it can be full
            run("mount", "-t", "tmpfs", "-o", f"size={data_mb}m,mode=700", "data", self.data)
        self.data.chmod(0o700)
        self.failpoints = self.data / "failpoints"
        self.failpoints.mkdir()
        self.output = self.data / "output.log"
        self.settings = {**QUICK, **MANY, "FAILPOINT": str(self.failpoints), **settings}
        self.forks = Forks(self)
        self.processes = Processes(self.data, self.forks)
        self.accepted = []
        self.extras = []
        self.fleet = None
        self.root = ROOT
        self.up = None
        self.url = None
        self.client = None
        self.key = None
        self.redis = self.service(Redis, clocks) if shape == "apart" else None
        self.postgres = self.service(Postgres, clocks) if shape == "apart" else None
        self.database = (
            self.postgres.create_database("yard") if self.postgres else str(self.data / "trainyard.sqlite3")
        )
        self.database_reader = DatabaseReader(self.database)
        self.logs = StoredLogs(self)
        self.stranger = None  # the token of a person who is in no project
        self.secrets = {}  # what must be readable nowhere
        self.sightings = []  # what viewers saw of jobs, in order

    def service(self, made, clocks):
        daemon = made()
        daemon.more_environment = clocks.of(daemon.name) if clocks else {}
        return daemon.start()

    # life

    def environment(self):
        services = {"DATABASE_URL": self.database, "REDIS_URL": self.redis.url} if self.redis else {}
        named = {f"TRAINYARD_{name}": str(value) for name, value in self.settings.items()}
        place = {"TRAINYARD_DATA": str(self.data), "TRAINYARD_PORT": str(self.port())}
        return {**leftovers.product_environment(), **self.more_environment, **named, **services, **place}

    def port(self):
        """The same after a restart, so that pages find it."""
        return int(self.url.rsplit(":", 1)[1]) if self.url else 0

    def start(self):
        """Start, and wait until it says that it is ready."""
        if self.up is None and self.root == ROOT:
            self.put_database()
        begin = self.output.stat().st_size if self.output.exists() else 0
        self.up = self.forks.start_up() if self.may_fork() else self.spawn("-m", "console.cli", "up")
        ready = re.compile(r"Trainyard is ready at (http://\S+)")

        def announced():
            if self.up.poll() is not None:
                raise AssertionError(f"trainyard up ended with {self.up.returncode}:\n{self.tail()}")
            return ready.search(self.output.read_text(errors="replace")[begin:])

        self.url = wait_for(announced, "Trainyard to be ready", timeout=240, dump=self.tail)[1]
        if self.shape == "apart":
            self.start_extra("dispatcher")
            self.start_extra("worker")
        return self

    def put_database(self):
        """Spare the first start the migrations, but not where an older version starts."""
        if self.postgres:
            new_database.fill_postgres(self.postgres, "yard")
        else:
            new_database.put_sqlite(self.database)

    def spawn(self, *words, **environment):
        with open(self.output, "ab") as output:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", sys.executable, *words],
                cwd=self.root,
                env={**self.environment(), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def start_extra(self, role):
        """Start one more dispatcher or worker, beside those of `up`. It is not restarted when it dies."""
        pid = self.forks.start_role(role)
        self.extras.append((role, pid))
        return pid

    def fork_environment(self):
        """The fork server finds the harness, too."""
        environment = self.environment()
        paths = [environment.get("PYTHONPATH"), str(ROOT)]
        # Each fork is told the port, which is known later.
        environment["TRAINYARD_PORT"] = "0"
        # Otherwise the title of a fork would be written over what /proc shows of the environment.
        environment["SPT_NOENV"] = "1"
        environment["PASSWORD_ROUNDS"] = self.password_rounds
        return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def start_beat(self):
        """Start one more beat than there should be."""
        words = [
            "-m",
            "celery",
            "-q",
            "-A",
            "console.runtime.celery_app",
            "beat",
            "-S",
            "console.runtime.beat:Scheduler",
            "--pidfile=",
        ]
        return self.spawn(*words)

    def replace_dead_extras(self):
        """Restart extra processes that have died, as `up` does with its own."""
        for role, pid in list(self.extras):
            if not process_alive(pid):
                self.extras.remove((role, pid))
                self.start_extra(role)

    def keep_extras(self, **wanted):
        """Have so many extra processes of each role: start more, or kill the newest that are too many."""
        self.replace_dead_extras()
        for role, number in wanted.items():
            pids = [pid for kind, pid in self.extras if kind == role]
            for _ in pids[number:]:
                self.extras.remove((role, pids[-1]))
                leftovers.kill(pids.pop())
            for _ in range(number - len(pids)):
                self.start_extra(role)

    def end_extras(self):
        for _, pid in self.extras:
            leftovers.kill(pid)
        self.extras.clear()
        if not self.may_fork():
            self.forks.close()

    def stop(self):
        """Stop the product as Ctrl-C does."""
        if self.up and self.up.poll() is None:
            self.processes.resume()
            self.up.send_signal(signal.SIGINT)
            self.up.wait(120)
        self.end_extras()

    def kill(self):
        """Send SIGKILL to all processes at once, as when the machine's power fails."""
        self.processes.kill_all()
        self.up.wait()
        self.end_extras()

    def close(self):
        self.processes.kill_all()
        if self.up:
            self.up.wait()
        self.end_extras()
        self.forks.remove()
        self.database_reader.close()
        for service in filter(None, (self.redis, self.postgres)):
            service.close()
        run("umount", "--lazy", self.data, check=False)
        shutil.rmtree(self.data, ignore_errors=True)

    def tail(self, size=6000):
        return self.output.read_text(errors="replace")[-size:] if self.output.exists() else ""

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_):
        self.close()

    # people and hosts, through the command line

    def command(self, *words, stdin=None, check=True):
        """Run one command. What starts processes, or has another data directory, has an interpreter of its own."""
        if self.may_fork() and words[0] != "up" and "--data" not in words:
            done = self.forks.run([words], stdin)
            done.stdout = done.stdout.removesuffix("\0")
        else:
            done = subprocess.run(
                [sys.executable, "-m", "console.cli", *words],
                cwd=ROOT,
                env=self.environment(),
                input=stdin,
                text=True,
                capture_output=True,
                timeout=240,
            )
        if check and done.returncode:
            raise AssertionError(
                f"trainyard {' '.join(words)}: exit {done.returncode}: {done.stdout}{done.stderr}"
            )
        return done

    def commands(self, *commands, stdin=None):
        """Run several commands, one after the other. Return what each printed."""
        if not self.may_fork():
            words = [sys.executable, "-c", SEVERAL, json.dumps(commands)]
            done = subprocess.run(
                words,
                cwd=self.root,
                env=self.environment(),
                input=stdin,
                text=True,
                capture_output=True,
                timeout=240,
            )
        else:
            done = self.forks.run(commands, stdin)
        if done.returncode:
            raise AssertionError(f"{commands}: exit {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout.split("\0")[:-1]

    def may_fork(self):
        """An older version has no fork server, and a process that was loaded before has the clock of before."""
        return self.forked and self.root == ROOT and not self.more_environment

    def with_admin(self):
        add = ("user", "add", "ada", "--admin", "--password-stdin")
        # Somebody who may log in and is in no project.
        stranger = (("user", "add", "eve", "--no-project", "--password-stdin"), ("token", "create", "eve"))
        _, token, self.key, _, other = self.commands(
            add, ("token", "create", "ada"), ("key",), *stranger, stdin=(PASSWORD + "\n") * 2
        )
        self.client = Client(self.url, token.strip())
        self.stranger = other.strip()
        self.secrets = {"password": PASSWORD, "token": token.strip(), "stranger's token": other.strip()}
        return self

    def with_hosts(self, fleet):
        """Add every host of the fleet to the product, and wait until each is up."""
        self.fleet = fleet
        fleet.authorize(self.key.strip())
        self.commands(*[("host", "add", *where_is(host), "--accept-first-key") for host in fleet])
        self.wait_for_hosts("up")
        return self

    def wait_for_hosts(self, status, *names, timeout=240):
        wanted = names or [host.name for host in self.fleet]

        def all_so():
            # Without the further logins of a machine, which have its name. An older version has no such column.
            machines = [row for row in self.query(HOSTS) if row.get("machine_id") is None]
            found = {row["name"]: row["status"] for row in machines}
            return all(found.get(name) == status for name in wanted)

        wait_for(all_so, f"{', '.join(wanted)} to be {status}", timeout, dump=self.tail)

    def query(self, statement):
        return self.database_reader.query(statement)

    def execute(self, statement):
        """Change a row behind the product's back, while it is stopped."""
        if self.postgres:
            self.postgres.sql(statement, "yard")
        else:
            with contextlib.closing(sqlite3.connect(self.database)) as connection, connection:
                connection.execute(statement)

    # jobs

    def submit(self, document, patience=30.0):
        job_id = self.client.submit(document, key=str(uuid.uuid4()), patience=patience)
        self.accepted.append(job_id)
        return job_id

    def runs(self, job_id):
        return self.query(f"SELECT * FROM jobs_run WHERE job_id = {job_id} ORDER BY created_at, id")

    def ledger(self, job_id=None):
        lines = [line for host in self.fleet for line in host.ledger_lines()]
        return [line for line in lines if job_id is None or line["run"].startswith(f"{job_id}-")]

    # its disk, where it has one of its own

    def fill_disk(self, leave_kb=0):
        fill(self.data, leave_kb)

    def free_disk(self):
        (self.data / "filler").unlink(missing_ok=True)

    # failpoints

    def arm(self, point, how=""):
        """Arm a failpoint: the next process that reaches it kills itself there; how="stop": suspends itself."""
        (self.failpoints / point).write_text(how)

    def armed(self):
        """Return the failpoints that no process has reached yet."""
        return {path.name for path in self.failpoints.iterdir()}

    def disarm(self):
        for path in self.failpoints.iterdir():
            path.unlink(missing_ok=True)

    # the end

    def settle(self, timeout=300):
        """Wait until every job is over, every run is closed and released, and its log is complete and verified."""
        self.disarm()
        self.processes.resume()
        states = ", ".join(f"'{state}'" for state in TERMINAL)
        jobs = f"SELECT id, state, reason FROM jobs_job WHERE state NOT IN ({states})"
        runs = (
            "SELECT id, host_id, phase, why, released_at, log_size, log_stored, log_complete_at, prove_due_at"
            " FROM jobs_run"
            " WHERE released_at IS NULL OR prove_due_at IS NOT NULL"
            " OR (log_complete_at IS NULL AND claimed_at IS NOT NULL)"
        )

        hosts = (
            "SELECT id, name, status, status_since, last_error, seen_at, runner_sha, lease_owner, lease_until, due_at"
            " FROM agents_host"
        )

        def unsettled():
            asked = {"jobs": jobs, "runs": runs, "hosts": hosts}
            return json.dumps({what: self.query(sql) for what, sql in asked.items()}, default=str, indent=1)

        def settled():
            # At each look: a process that outlives its job for a moment only is a violation too.
            check(collect.living(self, Evidence()), [nothing_lives_after_the_end], "while the jobs end")
            return not self.query(jobs) and not self.query(runs)

        wait_for(
            settled,
            "every job to be over, every run to be closed and released, and every log to be complete",
            timeout,
            every=0.2,
            dump=lambda: unsettled() + self.tail(),
        )

    def evidence(self, logs=True):
        return collect.evidence(self, logs)

    def sessions(self):
        if self.postgres is None:
            return 0
        return self.query("SELECT count(*) AS n FROM pg_stat_activity WHERE datname IS NOT NULL")[0]["n"]

    def check(self, context=""):
        """Wait until all is over, and check all invariants."""
        self.settle()
        check(self.evidence(), WHEN_QUIET, context)
        self.logs.mark_compared()

    def alive(self):
        return self.up is not None and process_alive(self.up.pid)


HOSTS = "SELECT * FROM agents_host"


def where_is(host):
    """Return the arguments of `trainyard host add` for a host."""
    return [host.name, host.address, "--user", host.user, "--port", str(host.port)]
