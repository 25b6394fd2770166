"""A real podman for tests: its configuration for machines without systemd, and a small image that it has."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

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


class Podman:
    """An engine with a storage of its own below `place`."""

    def __init__(self, place: Path):
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        (place / "containers.conf").write_text(CONTAINERS_CONF)
        (place / "storage.conf").write_text(STORAGE_CONF.format(place=place))
        self.env = {
            "CONTAINERS_CONF": str(place / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(place / "storage.conf"),
        }

    def __call__(self, *words, check=True):
        done = subprocess.run(
            ["podman", *words], env={**os.environ, **self.env}, text=True, capture_output=True, timeout=120
        )
        assert not check or done.returncode == 0, f"podman {' '.join(words)}: {done.stderr}"
        return done.stdout

    def make_image(self, name=IMAGE, *changes):
        """An image of one static program: nothing is fetched from anywhere."""
        root = self.place / "root"
        if not root.exists():
            (root / "bin").mkdir(parents=True)
            for directory in ("tmp", "etc", "proc", "dev"):
                (root / directory).mkdir()
            shutil.copy(shutil.which("busybox"), root / "bin" / "busybox")
            for command in COMMANDS:
                (root / "bin" / command).symlink_to("busybox")
            (root / "etc" / "passwd").write_text(
                "root:x:0:0:root:/:/bin/sh\nada:x:1234:1234:ada:/tmp:/bin/sh\n"
            )
            subprocess.run(["tar", "-C", str(root), "-cf", str(self.place / "root.tar"), "."], check=True)
        words = [word for change in changes for word in ("--change", change)]
        self("import", *words, str(self.place / "root.tar"), name)
        return name

    def containers(self):
        return self("ps", "--all", "--quiet").split()

    def remove(self):
        """Leave nothing mounted."""
        self("rm", "--all", "--force", "--time", "0", check=False)
        self("unmount", "--all", check=False)
        subprocess.run(["umount", str(self.place / "graph" / "overlay")], capture_output=True, check=False)
        shutil.rmtree(self.place, ignore_errors=True)
