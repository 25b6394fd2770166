"""A host in namespaces, with its own network, processes, boots, disk and users: nearly a machine."""

from __future__ import annotations

import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

from tests.harness.hosts.disk import fill, lay_out
from tests.harness.hosts.host import USER, Host
from tests.harness.hosts.network import BRIDGE, GATEWAY, SECOND_BRIDGE, SECOND_SUBNET, SUBNET
from tests.harness.wait_and_processes import run, succeeds

HERE = pathlib.Path(__file__).resolve().parent
SSHD_CONFIG = """\
Port 22
HostKey /etc/ssh/ssh_host_ed25519_key
UsePAM no
UseDNS no
PasswordAuthentication no
PermitRootLogin prohibit-password
PrintMotd no
Subsystem sftp /usr/lib/openssh/sftp-server
SetEnv TRAINYARD_FAILPOINT=/var/failpoints
PidFile /run/sshd.pid
"""
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RESTART_SSHD = (
    "P=$(cat /run/sshd.pid); kill $P; while [ -e /proc/$P/exe ]; do sleep .01; done;"
    " /usr/sbin/sshd -f /etc/ssh/sshd_config -E /var/log/sshd.log"
)


class NamespacedHost(Host):
    port = 22
    user = USER
    home = f"/home/{USER}"
    shared = "/mnt/shared"
    failpoints = "/var/failpoints"
    gpu_state_path = "/etc/fake-gpus.json"

    def __init__(self, fleet, number, disk_mb, own_boot_id):
        super().__init__(fleet, number)
        self.address = address_of(number)
        # Its address in the second network of the fleet, if there is one.
        self.second_address = address_of(number, SECOND_SUBNET) if fleet.networks > 1 else ""
        self.own_boot_id = own_boot_id
        self.cable = f"v{self.name}"
        self.delay_process = None
        self.up = False
        self.boot = None
        self.pid = None
        self.disk = self.dir / "disk"
        self.disk.mkdir()
        others = [each for each in fleet.numbers if each != number]
        names = "".join(f"{address_of(each)} gpu{each:02d}\n" for each in others)
        # Debian and Ubuntu write the second line: a program that looks up its own name finds 127.0.1.1.
        hosts_file = f"127.0.0.1 localhost\n127.0.1.1 {self.name}\n{names}"
        lay_out(self.disk, self.name, disk_mb, USER, hosts_file, fleet.programs)
        for user in (USER, "root"):
            self.authorize(fleet.public_key_line, user)
        self.write_sshd_config()
        self.install_host_key()
        self.gpu_state = {}
        self.gpus(fleet.gpus)

    # files: through the running host, else straight onto its disk

    def path(self, path):
        if self.up:
            return pathlib.Path(f"/proc/{self.pid}/root{path}")
        return self.disk / path.lstrip("/")

    @property
    def proc(self):
        return f"/proc/{self.pid}/root/proc"

    def authorize(self, public_key_line, user=USER):
        home = self.home if user == USER else "/root"
        with self.path(f"{home}/.ssh/authorized_keys").open("a") as keys:
            keys.write(public_key_line.rstrip("\n") + "\n")

    def revoke(self, public_key_line, user=USER):
        home = self.home if user == USER else "/root"
        path = self.path(f"{home}/.ssh/authorized_keys")
        kept = [
            line
            for line in path.read_text().splitlines()
            if line.split()[1:2] != public_key_line.split()[1:2]
        ]
        path.write_text("".join(f"{line}\n" for line in kept))

    def write_sshd_config(self):
        self.write("/etc/ssh/sshd_config", self.extra_sshd_config + SSHD_CONFIG)

    def install_host_key(self):
        for ours, theirs, mode in (("host_key", "", 0o600), ("host_key.pub", ".pub", 0o644)):
            path = self.path(f"/etc/ssh/ssh_host_ed25519_key{theirs}")
            path.write_bytes((self.dir / ours).read_bytes())
            path.chmod(mode)

    def sshd_log(self):
        return self.read("/var/log/sshd.log")

    # running things inside

    def inside(self, *command):
        """Return an argv that runs a command as the host's root, in all its namespaces."""
        spaces = (
            ["-m", "-u", "-i", "-n", "-p", "-T"] if self.fleet.own_time else ["-m", "-u", "-i", "-n", "-p"]
        )
        return ["nsenter", "-t", str(self.pid), *spaces, "-r", "-w", "--", "env", PATH, *map(str, command)]

    def as_user(self, *command):
        """Return an argv that runs a command as the login user, in the home directory, without SSH."""
        lines = f'cd && exec env HOME={self.home} USER={USER} "$@"'
        drop = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        return self.inside(*drop, "env", f"HOME={self.home}", "sh", "-c", lines, "sh", *command)

    def restart_sshd(self):
        self.run_inside("sh", "-c", RESTART_SSHD)

    # power

    def start(self):
        """Begin a boot and return at once. In the main thread only: the host dies with the thread that started it."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("start hosts from the main thread: PR_SET_PDEATHSIG goes by thread")
        (self.dir / "pid").unlink(missing_ok=True)
        boot_id = f"{random.getrandbits(32):08x}-0000-4000-8000-{random.getrandbits(48):012x}"
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "DIR": str(self.dir),
            "SHARED": str(self.fleet.shared_dir),
            "NAME": self.name,
            "ADDRESS": self.address,
            "SECOND": self.second_address,
            "GATEWAY": GATEWAY,
            "BOOT_ID": boot_id if self.own_boot_id else "",
            "CGROUPS": "yes" if self.fleet.cgroups else "",
            "BINDS": "".join(f"{source} {target}\n" for target, source in self.fleet.binds.items()),
        }
        spaces = ["--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child"]
        if self.fleet.own_time:
            now = (int(time.clock_gettime(time.CLOCK_BOOTTIME)), int(time.monotonic()))
            spaces += ["--time", "--boottime", str(-now[0]), "--monotonic", str(-now[1])]
        with open(self.dir / "boot.log", "ab") as log:
            self.boot = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", *spaces, "sh", str(HERE / "init.sh")],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    def finish(self):
        """Plug in the network cable and wait until sshd answers."""
        self.pid = int(self.wait_in_boot(self.written_pid))
        # a fixed MAC: a stale ARP entry would hide the host for 30 s after a reboot
        mac = f"02:77:00:00:{self.number // 256:02x}:{self.number % 256:02x}"
        plug = f"link add {self.cable} type veth peer name eth0 address {mac} netns {self.pid}\n"
        plug += f"link set {self.cable} master {BRIDGE} up\n"
        if self.second_address:
            plug += f"link add w{self.name} type veth peer name eth1 netns {self.pid}\n"
            plug += f"link set w{self.name} master {SECOND_BRIDGE} up\n"
        run("ip", "-batch", "-", stdin=plug)
        self.boot.stdin.write(b"go\n")
        self.boot.stdin.close()
        self.up = True
        # not by connecting: a SYN that is lost while the interface comes up costs a second
        self.wait_in_boot(self.path("/run/host/up").exists)
        self.wait_for_sshd()

    def written_pid(self):
        path = self.dir / "pid"
        text = path.read_text() if path.exists() else ""
        return text.strip() if text.endswith("\n") else ""

    def wait_in_boot(self, condition):
        deadline = time.monotonic() + 60
        while not (value := condition()):
            if self.boot.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"{self.name} does not boot: {(self.dir / 'boot.log').read_text()[-1000:]}"
                )
            time.sleep(0.003)
        return value

    def power_off(self, hard=True):
        """Power off. hard: peers get no packet any more. Else connections are closed as the processes end."""
        if hard:
            run("ip", "link", "del", self.cable)
        os.kill(self.pid, signal.SIGKILL)
        self.boot.wait()
        self.up = False
        if not hard:
            # It may be gone with the host's network.
            run("ip", "link", "del", self.cable, check=False)

    # faults

    def cut(self):
        """Unplug the cable: the carrier is lost."""
        run("ip", "link", "set", self.cable, "down")

    def restore(self):
        run("ip", "link", "set", self.cable, "up")

    def blackhole(self):
        """Let the switch drop all packets, without a sign: the carrier stays."""
        run("bridge", "link", "set", "dev", self.cable, "state", "0")

    def heal(self):
        run("bridge", "link", "set", "dev", self.cable, "state", "3")

    def shape(self, rate=None, loss_percent=0, delay_ms=0):
        """Limit the bandwidth both ways ('256kbit'), lose packets in and out, delay each way. shape() undoes all."""
        enter = ["nsenter", "-t", str(self.pid), "-n", "--"]
        for prefix, device in (([], self.cable), (enter, "eth0")):
            run(*prefix, "tc", "qdisc", "del", "dev", device, "root", check=False)
            if rate:
                queue = ["tbf", "rate", rate, "burst", "32kb", "latency", "400ms"]
                run(*prefix, "tc", "qdisc", "add", "dev", device, "root", *queue)
        run(*enter, "nft", "delete", "table", "inet", "loss", check=False)
        if loss_percent:
            run(*enter, "nft", "-f", "-", stdin=loss_rules(loss_percent))
        self.remove_delay()
        if delay_ms:
            self.add_delay(delay_ms)

    def add_delay(self, delay_ms):
        """Put a delay between the host's cable and the switch. No other fault may be made until it is removed."""
        near, far = f"n{self.name}", f"f{self.name}"
        pair = f"link add {near} type veth peer name {far}\nlink set {near} master {BRIDGE} up\nlink set {far} up\n"
        run("ip", "-batch", "-", stdin=f"{pair}link set {self.cable} nomaster\n")
        words = [sys.executable, str(HERE / "network_delay.py"), self.cable, far, str(delay_ms)]
        self.delay_process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.delay_process.stdout.readline() == "ready\n", "a delay needs packet sockets"

    def remove_delay(self):
        if self.delay_process:
            self.delay_process.communicate()
            self.delay_process = None
            plug = f"link del n{self.name}\nlink set {self.cable} master {BRIDGE}\n"
            run("ip", "-batch", "-", stdin=plug, check=False)

    def fill_disk(self, leave_kb=0):
        """Take all free space of the host's disk but leave_kb."""
        fill(self.disk, leave_kb)

    def free_disk(self):
        (self.disk / "filler").unlink(missing_ok=True)

    def skew(self, seconds):
        """Skew the wall clock of runners that start from now on; further calls change the skew while they run."""
        self.write("/var/skew/seconds", str(seconds))

    def unskew(self):
        self.path("/var/skew/seconds").unlink(missing_ok=True)

    def close(self):
        self.remove_delay()
        if self.boot and self.boot.poll() is None:
            if self.pid:
                os.kill(self.pid, signal.SIGKILL)
            else:
                self.boot.kill()
            self.boot.wait()
        if self.boot and not self.boot.stdin.closed:
            self.boot.stdin.close()
        succeeds("umount", "--lazy", self.disk)


def address_of(number, subnet=SUBNET):
    return f"{subnet}.{number // 200}.{10 + number % 200}"


def loss_rules(percent):
    drop = f'"eth0" numgen random mod 100 < {percent} drop'
    return f"""table inet loss {{
  chain in {{
    type filter hook input priority 0;
    iifname {drop}
  }}
  chain out {{
    type filter hook output priority 0;
    oifname {drop}
  }}
}}
"""
