"""A host on a loopback port, where namespaces are not allowed: a real sshd, the machine's user and processes."""

from __future__ import annotations

import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import sys

from tests.harness.hosts.host import Host, NeedsNamespaces
from tests.harness.leftovers import kill, owned_environment
from tests.harness.wait_and_processes import environment_of, pids, wait_for

HERE = pathlib.Path(__file__).resolve().parent
SSHD_CONFIG = """\
HostKey {dir}/host_key
UsePAM no
UseDNS no
StrictModes no
PasswordAuthentication no
PermitRootLogin yes
PidFile none
AuthorizedKeysFile {dir}/authorized_keys
ForceCommand {dir}/enter
SetEnv {environment}
"""
ENTER = """\
#!/bin/sh
cd "$HOME" || exit 1
[ -n "$SSH_ORIGINAL_COMMAND" ] && exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
exec /bin/bash -l
"""


class LoopbackHost(Host):
    proc = "/proc"

    def __init__(self, fleet, number):
        super().__init__(fleet, number)
        self.address = f"127.77.{number // 200}.{10 + number % 200}"
        self.port = free_port(self.address)
        self.user = pwd.getpwuid(os.getuid()).pw_name
        self.relay = None
        for name in ("home", "bin", "etc", "failpoints"):
            (self.dir / name).mkdir()
        self.home = str(self.dir / "home")
        self.shared = str(fleet.shared_dir)
        self.failpoints = str(self.dir / "failpoints")
        for program, source in fleet.programs.items():
            shutil.copy(source, self.dir / "bin" / program)
            (self.dir / "bin" / program).chmod(0o755)
        (self.dir / "enter").write_text(ENTER)
        (self.dir / "enter").chmod(0o755)
        self.authorize(fleet.public_key_line)
        self.write_sshd_config()
        self.gpu_state_path = "/etc/fake-gpus.json"
        self.gpu_state = {}
        self.gpus(fleet.gpus)

    def environment(self):
        return {
            "HOME": self.home,
            "PATH": f"{self.dir}/bin:/usr/local/bin:/usr/bin:/bin",
            "FAKE_GPUS": f"{self.dir}/etc/fake-gpus.json",
            "LEDGER": str(self.ledger_dir),
            "TRAINYARD_FAILPOINT": f"{self.dir}/failpoints",
            "TEST_HOST": str(self.dir),
        }

    def path(self, path):
        """Return a path below the host's directory as it is; place any other in that directory."""
        return pathlib.Path(path) if path.startswith(str(self.dir)) else self.dir / path.lstrip("/")

    def pids(self):
        mark = f"TEST_HOST={self.dir}".encode()
        return [pid for pid in pids() if mark in environment_of(pid)]

    def authorize(self, public_key_line, user=None):
        with open(self.dir / "authorized_keys", "a") as keys:
            keys.write(public_key_line.rstrip("\n") + "\n")

    def revoke(self, public_key_line, user=None):
        path = self.dir / "authorized_keys"
        kept = [
            line
            for line in path.read_text().splitlines()
            if line.split()[1:2] != public_key_line.split()[1:2]
        ]
        path.write_text("".join(f"{line}\n" for line in kept))

    def write_sshd_config(self):
        settings = " ".join(f'"{name}={value}"' for name, value in self.environment().items())
        usual = SSHD_CONFIG.format(dir=self.dir, environment=settings)
        (self.dir / "sshd_config").write_text(self.extra_sshd_config + usual)

    def install_host_key(self):
        """Do nothing: sshd reads the key for each connection."""

    def restart_sshd(self):
        """Do nothing: each connection has an sshd of its own."""

    def sshd_log(self):
        return (self.dir / "sshd_config.log").read_text()

    def inside(self, *command):
        settings = [f"{name}={value}" for name, value in self.environment().items()]
        return ["env", *settings, *[str(word) for word in command]]

    def as_user(self, *command):
        """Return an argv that runs a command as the login user, in the home directory, without SSH."""
        return self.inside("sh", "-c", 'cd && exec "$@"', "sh", *command)

    def start(self):
        if os.geteuid() == 0:  # sshd as root insists on its privilege separation directory
            pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        relay = [
            sys.executable,
            str(HERE / "relay.py"),
            self.address,
            str(self.port),
            str(self.dir / "sshd_config"),
        ]
        self.relay = subprocess.Popen(
            relay, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=owned_environment()
        )

    def finish(self):
        if self.relay.stdout.readline() != "ok\n":
            raise RuntimeError(f"{self.name}: the relay at {self.address}:{self.port} does not start")
        self.wait_for_sshd()

    def tell(self, word):
        self.relay.stdin.write(word + "\n")
        self.relay.stdin.flush()
        self.relay.stdout.readline()

    def power_off(self, hard=True):
        self.tell("reset")
        self.close()

    def reboot(self, hard=True):
        raise NeedsNamespaces("a reboot (another boot id)")

    def cut(self):
        self.tell("cut")

    def restore(self):
        self.tell("up")

    blackhole = cut
    heal = restore

    def shape(self, rate=None, loss_percent=0):
        raise NeedsNamespaces("a slow or lossy network")

    def fill_disk(self, leave_kb=0):
        raise NeedsNamespaces("a full disk")

    def free_disk(self):
        """Do nothing: such a host's disk cannot be filled."""

    def skew(self, seconds):
        raise NeedsNamespaces("a clock that is wrong")

    def close(self):
        if self.relay:
            self.relay.stdin.close()
            self.relay.wait()
            self.relay.stdout.close()
            self.relay = None
        wait_for(self.killed_all, f"the processes of {self.name} to end")

    def killed_all(self):
        left = self.pids()
        for pid in left:
            kill(pid)
        return not left


def free_port(address):
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]
