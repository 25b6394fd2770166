"""A Docker daemon of an ordinary login on a test host, as `dockerd-rootless.sh` starts one."""

from __future__ import annotations

import json
import shlex
import subprocess

from tests.harness.wait_and_processes import wait_for

# As in Debian's dockerd-rootless.sh: what root's daemon has left in /run is another daemon's.
DAEMON = (
    "ip link set lo up; rm -f /run/docker /run/containerd /run/xtables.lock; "
    "exec dockerd --rootless --host unix://{run}/docker.sock --data-root {home}/docker "
    "--exec-root {run}/exec --pidfile {run}/docker.pid --config-file {home}/daemon.json "
    "--storage-driver=vfs --bridge=none --iptables=false --ip-forward=false --ip-masq=false"
)


class DockerWithoutRoot:
    """Its network is its own and leads nowhere: rootlesskit's ways out of it need a device that a test host lacks."""

    def __init__(self, host):
        self.host, self.run = host, f"{host.home}/docker-run"
        for path in ("/etc/subuid", "/etc/subgid"):
            host.write(path, f"{host.user}:100000:65536\n")
        context = {"currentContext": "rootless"}
        self.as_login("sh", "-c", f"mkdir -m 700 -p {self.run} .docker && echo '{{}}' > daemon.json")
        self.as_login(
            "docker", "context", "create", "rootless", "--docker", f"host=unix://{self.run}/docker.sock"
        )
        # What `docker context use` writes.
        self.as_login("sh", "-c", f"echo {shlex.quote(json.dumps(context))} > .docker/config.json")
        self.start()

    def start(self):
        daemon = DAEMON.format(run=self.run, home=self.host.home)
        words = ["rootlesskit", "--copy-up=/etc", "--copy-up=/run", "unshare", "--net", "sh", "-c", daemon]
        with open(self.host.dir / "docker.log", "ab") as log:
            self.daemon = subprocess.Popen(
                self.host.as_user("env", f"XDG_RUNTIME_DIR={self.run}", *words), stdout=log, stderr=log
            )
        wait_for(self.answers, "Docker without root", 60, dump=(self.host.dir / "docker.log").read_text)

    def as_login(self, *words, **options):
        return subprocess.run(
            self.host.as_user(*words), text=True, capture_output=True, timeout=120, check=True, **options
        ).stdout

    def __call__(self, *words, **options):
        return self.as_login("docker", *words, **options)

    def answers(self):
        words = self.host.as_user("docker", "version", "--format", "{{.Server.Version}}")
        return subprocess.run(words, capture_output=True, timeout=30).returncode == 0

    def containers(self):
        return self("ps", "--all", "--quiet").split()

    def load(self, archive, name, *changes):
        """An image from the tar file of a root file system."""
        with open(archive, "rb") as file:
            done = subprocess.run(
                self.host.as_user(
                    "docker",
                    "import",
                    *[word for change in changes for word in ("--change", change)],
                    "-",
                    name,
                ),
                stdin=file,
                capture_output=True,
                timeout=120,
            )
        assert done.returncode == 0, done.stderr
        return name

    def close(self):
        """The host is shut down after this, and with it all that the daemon has started."""
        self.daemon.kill()
        self.daemon.wait(60)
