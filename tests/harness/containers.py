"""Real engines for tests: podman, Docker and Apptainer, each with images of its own, and a small one that all have."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
from pathlib import Path

from agents.runner.files import delete_tree
from agents.runner.home import Home
from agents.runner.preparations.apptainer_images import prepare_in_cache
from agents.runner.preparations.images import raise_if_failed
from agents.runner.preparations.report import Report
from agents.runner.processes import all_processes
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


def give_apptainer(host):
    """What the package of Apptainer has outside of /usr, and the file of every host that it asks for."""
    host.write("/etc/resolv.conf", "")
    for file in Path("/etc/apptainer").rglob("*"):
        if file.is_file():
            host.path(str(file.parent)).mkdir(parents=True, exist_ok=True)
            host.path(str(file)).write_bytes(file.read_bytes())
    host.path("/var/lib/apptainer/mnt/session").mkdir(parents=True, exist_ok=True)


def make_sif(place, *lines):
    """A SIF file of the small root file system, which whoever made it describes by `lines` of a definition file."""
    root_archive(place)
    definition = place / "small.def"
    definition.write_text("\n".join(["Bootstrap: localimage", f"From: {place / 'root'}", *lines, ""]))
    words = ["apptainer", "build", "--force", str(place / "small.sif"), str(definition)]
    subprocess.run(words, check=True, capture_output=True, timeout=120)
    return place / "small.sif"


class Engine:
    """An engine with a storage of its own below `place`."""

    kind = ""
    containments = ("container",)

    def __init__(self, place: Path):
        self.place = place
        self.env = {}
        place.mkdir(parents=True, exist_ok=True)

    def __call__(self, *words, check=True, timeout=120):
        env = {**os.environ, **self.env}
        done = subprocess.run([self.kind, *words], env=env, text=True, capture_output=True, timeout=timeout)
        assert not check or done.returncode == 0, f"{self.kind} {' '.join(words)}: {done.stderr}"
        return done.stdout

    def make_image(self, name=IMAGE, *changes):
        archive = root_archive(self.place)
        words = [word for change in changes for word in ("--change", change)]
        self("import", *words, str(archive), name)
        return name

    def give(self, host):
        """Let the runs of this host have the images that were made."""

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


class Apptainer(Engine):
    """An engine without a storage: what is made is copied into the cache of each host."""

    kind = "apptainer"
    containments = ("cgroup", "subreaper")

    def __init__(self, place: Path):
        super().__init__(place)
        self.home = Home("dep")
        self.home.base = str(place / "store")
        self.hosts = []
        os.makedirs(self.home.base)

    def make_image(self, name=IMAGE, *changes):
        root_archive(self.place)
        archive = self.archive(name, *changes)
        report = Report(str(self.place))
        what = {"image": name, "archive": str(archive)}
        prepare_in_cache(what, shutil.which(self.kind), report, self.home, raise_if_failed)
        for host in self.hosts[-1:]:
            self.copy(host)
        return name

    def archive(self, name, *changes):
        """As `docker save` would write it."""
        keys = {
            "ENTRYPOINT": "Entrypoint",
            "CMD": "Cmd",
            "ENV": "Env",
            "WORKDIR": "WorkingDir",
            "USER": "User",
        }
        config = {}
        for change in changes:
            word, _, value = change.partition(" ")
            lists = word in ("ENTRYPOINT", "CMD")
            if word == "ENV":
                config.setdefault("Env", []).append(value)
            else:
                config[keys[word]] = json.loads(value) if lists else value
        layer = self.place / "root.tar"
        ids = ["sha256:" + hashlib.sha256(layer.read_bytes()).hexdigest()]
        document = {"architecture": "amd64", "os": "linux", "config": config,
                    "rootfs": {"type": "layers", "diff_ids": ids}}  # fmt: skip
        manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
        path = self.place / "image.tar"
        with tarfile.open(path, "w") as file:
            for part, text in (("config.json", document), ("manifest.json", manifest)):
                data = json.dumps(text).encode()
                entry = tarfile.TarInfo(part)
                entry.size = len(data)
                file.addfile(entry, io.BytesIO(data))
            file.add(layer, "layer.tar")
        return path

    def give(self, host):
        self.hosts.append(host)
        self.copy(host)

    def copy(self, host):
        source = Path(self.home.base) / "cache" / "images"
        for deployment in ("dep", "other"):
            target = host.home / ".trainyard" / deployment / "cache" / "images"
            target.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", "--update", f"{source}/.", str(target)], check=True)

    def containers(self):
        """The engine's processes, and all in their containers, of the hosts that were given images."""
        found = []
        for pid in all_processes():
            with contextlib.suppress(OSError):  # it has just ended
                env = Path(f"/proc/{pid}/environ").read_bytes()
                ours = any(os.fsencode(str(host.home)) in env for host in self.hosts)
                if ours and any(each.startswith(b"APPTAINER") for each in env.split(b"\0")):
                    found.append(pid)
        return found

    def remove(self):
        for pid in self.containers():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        delete_tree(str(self.place))


ENGINES = {"podman": Podman, "docker": Docker, "apptainer": Apptainer}
