"""A few GPU hosts on one machine, with real sshd, made in a fraction of a second each."""

from __future__ import annotations

import itertools
import pathlib
import shutil
import threading

from tests.harness import leftovers
from tests.harness.hosts.loopback import LoopbackHost
from tests.harness.hosts.namespaced import NamespacedHost
from tests.harness.hosts.network import (
    namespaces_work,
    private_network,
    second_network,
    time_namespaces_work,
)
from tests.harness.wait_and_processes import run, succeeds

# Several fleets of one process never share a name or an address.
NUMBERS = itertools.count()
HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE.parents[1] / "programs"
TOOLS = {
    "/usr/sbin/sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "setpriv": "util-linux",
}


class Fleet:
    """`with Fleet(3) as fleet: fleet[0].ssh("nvidia-smi -L")`.

    The tier "namespaces" (root) gives each host its own IP, processes, boots and disk; "ports" is for everywhere else.
    """

    def __init__(
        self, size, gpus=8, disk_mb=256, tier=None, own_boot_id=True, binds=None, networks=1, cgroups=False
    ):
        need_tools()
        leftovers.clear()
        self.size = size
        self.numbers = [next(NUMBERS) for _ in range(size)]
        self.gpus = gpus
        self.disk_mb = disk_mb
        # Without `own_boot_id`, nothing is mounted over a host's /proc, so that a login may mount a /proc of its own.
        self.binds = binds or {}  # directory on each host -> directory of this machine, read-only
        self.networks = networks
        self.cgroups = cgroups  # those of this machine, for engines of containers
        self.tier = tier or ("namespaces" if namespaces_work() else "ports")
        self.dir = leftovers.scratch("fleet")
        self.key = self.dir / "key"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "tests", "-f", self.key)
        # Each host has it at `host.shared`, as the disk of a file server.
        self.shared_dir = self.dir / "shared"
        self.shared_dir.mkdir()
        self.shared_dir.chmod(0o1777)
        self.programs = {"nvidia-smi": HERE / "fake_nvidia_smi.py"}
        self.programs.update({path.stem.replace("_", "-"): path for path in sorted(PROGRAMS.glob("*.py"))})
        if self.tier == "namespaces":
            private_network()
            if networks > 1:
                second_network()
            self.own_time = time_namespaces_work()
            self.hosts = [NamespacedHost(self, number, disk_mb, own_boot_id) for number in self.numbers]
        else:
            self.own_time = False
            self.hosts = [LoopbackHost(self, number) for number in self.numbers]

    @property
    def public_key_line(self):
        return self.key.with_suffix(".pub").read_text().strip()

    def write_known_hosts(self):
        lines = [f"[{host.address}]:{host.port} {host.host_key_line}\n" for host in self.hosts]
        lines += [f"{host.address} {host.host_key_line}\n" for host in self.hosts if host.port == 22]
        path = self.dir / "known_hosts"
        # Another thread's ssh may be reading it.
        written = self.dir / f"known_hosts.{threading.get_ident()}"
        written.write_text("".join(lines))
        return written.rename(path)

    def authorize(self, public_key_line):
        """Let the holder of this key log in to every host as the login user."""
        for host in self.hosts:
            host.authorize(public_key_line)

    def boot(self):
        try:
            for host in self.hosts:
                host.start()
            for host in self.hosts:
                host.finish()
        except BaseException:
            self.close()
            raise
        return self

    def close(self):
        for host in self.hosts:
            host.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __getitem__(self, number):
        return self.hosts[number]

    def __iter__(self):
        return iter(self.hosts)

    def __len__(self):
        return self.size

    def __enter__(self):
        return self.boot()

    def __exit__(self, *_):
        self.close()


def need_tools():
    missing = sorted({package for tool, package in TOOLS.items() if not succeeds("which", tool)})
    if missing:
        raise RuntimeError(f"test hosts need {', '.join(missing)}: apt-get install {' '.join(missing)}")
