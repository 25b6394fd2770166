"""Real engines for tests: podman and Docker, each with a storage of its own, and a small image that both have."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from tests.harness import leftovers
from tests.harness.wait_and_processes import wait_for

IMAGE = "localhost/trainyard/small:1"
# Of busybox, which is one static file.
COMMANDS = (
    *(
        "sh",
        "sleep",
        "cat",
        "echo",
        "ls",
        "env",
        "true",
        "false",
        "kill",
        "mkdir",
        "ps",
        "head",
        "dd",
        "test",
    ),
    *("touch", "yes", "id", "pwd", "mount", "df", "seq", "tail", "wc", "rm", "stty"),
)
CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=4096:4096","nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
STORAGE_CONF = """\
[storage]
driver = "overlay"
graphroot = "{place}/graph"
runroot = "{place}/run"
"""
CONTAINERD = """\
version = 2
root = "{place}/containerd"
state = "{sockets}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "{sockets}/containerd.sock"
"""
POLICY = '{"default": [{"type": "insecureAcceptAnything"}]}'
REGISTRIES = '[[registry]]\nlocation = "{registry}"\ninsecure = true\n'
OVERLAY = '[storage]\ndriver = "overlay"\n'


def give_podman(host, registry):
    """Let the login of a test host use podman without root, as its administrator would, and pull from this registry."""
    for path in ("/etc/subuid", "/etc/subgid"):
        host.write(path, f"{host.user}:100000:65536\n")
    place = f"{host.home}/.config/containers"
    host.path(place).mkdir(parents=True)
    for name, text in {
        "containers.conf": CONTAINERS_CONF,
        "policy.json": POLICY,
        "registries.conf": REGISTRIES.format(registry=registry),
        "storage.conf": OVERLAY,
    }.items():
        host.write(f"{place}/{name}", text)
    host.run_inside("chown", "-R", f"{host.user}:{host.user}", f"{host.home}/.config")


def root_archive(place):
    """The tar file of a root file system with one static program: nothing is fetched from anywhere."""
    root = place / "root"
    if not root.exists():
        (root / "bin").mkdir(parents=True)
        for directory in ("tmp", "etc", "proc", "dev"):
            (root / directory).mkdir()
        shutil.copy(shutil.which("busybox"), root / "bin" / "busybox")
        for command in COMMANDS:
            (root / "bin" / command).symlink_to("busybox")
        (root / "etc" / "passwd").write_text("root:x:0:0:root:/:/bin/sh\nada:x:1234:1234:ada:/tmp:/bin/sh\n")
        subprocess.run(["tar", "-C", str(root), "-cf", str(place / "root.tar"), "."], check=True)
    return place / "root.tar"


class Engine:
    """An engine with a storage of its own below `place`."""

    kind = ""

    def __init__(self, place: Path):
        self.place = place
        self.env = {}
        place.mkdir(parents=True, exist_ok=True)

    def __call__(self, *words, check=True):
        done = subprocess.run(
            [self.kind, *words], env={**os.environ, **self.env}, text=True, capture_output=True, timeout=120
        )
        assert not check or done.returncode == 0, f"{self.kind} {' '.join(words)}: {done.stderr}"
        return done.stdout

    def make_image(self, name=IMAGE, *changes):
        archive = root_archive(self.place)
        words = [word for change in changes for word in ("--change", change)]
        self("import", *words, str(archive), name)
        return name

    def containers(self):
        return self("ps", "--all", "--quiet").split()


class Podman(Engine):
    kind = "podman"

    def __init__(self, place: Path):
        super().__init__(place)
        (place / "containers.conf").write_text(CONTAINERS_CONF)
        (place / "storage.conf").write_text(STORAGE_CONF.format(place=place))
        self.env = {
            "CONTAINERS_CONF": str(place / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(place / "storage.conf"),
        }

    def remove(self):
        """Leave nothing mounted."""
        self("rm", "--all", "--force", "--time", "0", check=False)
        self("unmount", "--all", check=False)
        subprocess.run(["umount", str(self.place / "graph" / "overlay")], capture_output=True, check=False)
        shutil.rmtree(self.place, ignore_errors=True)


class Docker(Engine):
    """A daemon of root, which dies with the tests. It touches neither the network of this machine nor its firewall, and
    what it mounts is in a namespace of its own: nothing stays mounted where the tests are killed."""

    kind = "docker"

    def __init__(self, place: Path):
        super().__init__(place)
        (place / "daemon.json").write_text("{}")
        # The path of a socket has at most 107 bytes, and that of a test's directory may be longer.
        self.sockets = leftovers.scratch("docker")
        (place / "containerd.toml").write_text(CONTAINERD.format(place=place, sockets=self.sockets))
        self.socket, self.daemon = self.sockets / "socket", None
        self.env = {"DOCKER_HOST": f"unix://{self.socket}", "DOCKER_CONFIG": str(place / "client")}
        own = ["unshare", "--mount", "--propagation", "private"]
        self.containerd = self.spawn(*own, "containerd", "--config", place / "containerd.toml")
        wait_for((self.sockets / "containerd.sock").exists, "containerd", 60, dump=(place / "log").read_text)
        self.start()

    def start(self):
        words = ["--config-file", self.place / "daemon.json", "--host", f"unix://{self.socket}"]
        words += ["--containerd", self.sockets / "containerd.sock", "--pidfile", self.place / "pid"]
        words += ["--data-root", self.place / "data", "--exec-root", self.sockets / "exec"]
        words += ["--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"]
        enter = ["nsenter", "--target", str(self.containerd.pid), "--mount"]
        self.daemon = self.spawn(*enter, "dockerd", *words)
        wait_for(self.answers, "Docker's daemon", 60, dump=(self.place / "log").read_text)

    def spawn(self, *words):
        with open(self.place / "log", "ab") as log:
            return subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *words], stdout=log, stderr=log)

    def answers(self):
        return self("version", "--format", "{{.Server.Version}}", check=False).strip()

    def stop(self, signum=signal.SIGTERM):
        self.daemon.send_signal(signum)
        self.daemon.wait(60)

    def remove(self):
        left = self.containers()
        if left:
            self("rm", "--force", *left, check=False)
        self.stop()
        self.containerd.terminate()
        self.containerd.wait(60)
        for place in (self.place, self.sockets):
            shutil.rmtree(place, ignore_errors=True)


ENGINES = {"podman": Podman, "docker": Docker}
