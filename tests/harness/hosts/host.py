"""The interface of test hosts, whichever way they are made."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import subprocess
import time

from tests.harness.wait_and_processes import command_of, environment_of, pids, run

USER = "gpu"


class NeedsNamespaces(AssertionError):
    """A test needs a fault that only hosts in namespaces can have."""

    def __init__(self, fault):
        super().__init__(
            f"{fault} needs hosts in namespaces, and these are on loopback ports. `make test` and `tools/with-hosts"
            " COMMAND` make them: for root where `unshare --net --mount --pid` works (in a container that means"
            " --privileged), for others where users may have namespaces (uidmap, a line in /etc/subuid)."
        )


class Host:
    """What both kinds of hosts have: keys, ssh, GPUs, files, processes.

    Subclasses provide: address, port, user, home, path(), start(), finish(), power_off(), cut(), restore(), ...
    """

    def __init__(self, fleet, number):
        self.fleet = fleet
        self.number = number
        self.name = f"gpu{number:02d}"
        self.dir = fleet.dir / self.name
        self.dir.mkdir()
        self.ledger_dir = self.dir / "ledger"
        self.ledger_dir.mkdir()
        self.ledger_dir.chmod(0o777)
        self.extra_sshd_config = ""
        self.make_host_key()

    # keys and logins

    def make_host_key(self):
        for old in ("host_key", "host_key.pub"):
            (self.dir / old).unlink(missing_ok=True)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", self.dir / "host_key")

    @property
    def host_key_line(self):
        return " ".join((self.dir / "host_key.pub").read_text().split()[:2])

    def fingerprint(self):
        blob = base64.b64decode(self.host_key_line.split()[1])
        return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")

    def ssh_command(self, *command, user=None, options=()):
        """Return the argv of an OpenSSH client for this host, with the fleet's own key."""
        fixed = {
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.fleet.write_known_hosts(),
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": "10",
            "LogLevel": "ERROR",
            "KexAlgorithms": "curve25519-sha256",
        }
        words = ["ssh", "-F", "none", "-i", str(self.fleet.key), "-p", str(self.port)]
        for name, value in fixed.items():
            words += ["-o", f"{name}={value}"]
        return [*words, *options, f"{user or self.user}@{self.address}", *command]

    def ssh(self, command, user=None, check=True, timeout=60, stdin=None):
        """Run a command over real SSH as the login user."""
        words = self.ssh_command(command, user=user)
        done = subprocess.run(words, text=True, capture_output=True, timeout=timeout, input=stdin)
        if check and done.returncode:
            raise RuntimeError(
                f"ssh {self.name} {command[:200]}: exit {done.returncode}: {done.stderr[-500:]}"
            )
        return done

    def wait_for_sshd(self, timeout=60):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            try:
                with socket.create_connection((self.address, self.port), 1) as connection:
                    connection.settimeout(5)
                    if connection.recv(4) == b"SSH-":
                        return
            except OSError:
                time.sleep(0.02)
        raise TimeoutError(f"{self.name}: no sshd banner within {timeout} s")

    # files

    def read(self, path):
        return self.path(path).read_text()

    def write(self, path, text):
        self.path(path).write_text(text)

    # GPUs

    def gpus(self, count=None, **changes):
        """Set the answers of nvidia-smi: name, memory_mb, util, apps=[{gpu, pid, ...}], fail='driver'|'hang'|'lost'."""
        state = {"count": 8, "host": self.name, **self.gpu_state, **changes}
        if count is not None:
            state["count"] = count
        self.gpu_state = state
        self.write(self.gpu_state_path, json.dumps(state))

    def gpu_uuids(self):
        listing = run(*self.inside("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader")).stdout
        return listing.split()

    # processes

    def processes(self, mark):
        """Return (pid, command line) of each live process whose environment or command line has the mark."""
        found = []
        for pid in self.pids():
            command = command_of(pid, self.proc)
            if mark.encode() in environment_of(pid, self.proc) or mark in command:
                found.append((pid, command))
        return found

    def pids(self):
        return pids(self.proc)

    def run_inside(self, *command, **options):
        """Run a command on the host as its root (or as its only user), without SSH."""
        return run(*self.inside(*command), **options)

    def arm(self, point, how=""):
        """Arm a failpoint: the next process of the runner there kills itself; how="stop": suspends itself."""
        self.write(f"{self.failpoints}/{point}", how)
        self.path(f"{self.failpoints}/{point}").chmod(0o666)

    def armed(self):
        """Return the failpoints that no process has reached yet."""
        return sorted(path.name for path in self.path(self.failpoints).iterdir())

    def disarm(self):
        for path in self.path(self.failpoints).iterdir():
            path.unlink(missing_ok=True)

    def ledger_lines(self):
        """Return the lines of the replicas' ledgers on this host; an incomplete last line is left out."""
        lines = []
        for path in sorted(self.ledger_dir.glob("*.jsonl")):
            for line in path.read_text(errors="replace").split("\n")[:-1]:
                lines.append({"host": self.name, **json.loads(line)})
        return lines

    def reboot(self, hard=True):
        self.power_off(hard)
        self.start()
        self.finish()

    def new_host_key(self):
        self.make_host_key()
        self.install_host_key()
        self.restart_sshd()

    def sshd_config(self, extra):
        """Put lines above the usual ones (sshd takes the first of each) and restart sshd."""
        self.extra_sshd_config = extra.rstrip("\n") + "\n" if extra else ""
        self.write_sshd_config()
        self.restart_sshd()
