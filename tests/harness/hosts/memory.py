"""A memory cgroup for the login of a host, as its administrator may give one, so that limits are enforced.

It is of version 1, below the cgroup of the tests, so that a limit of the tests is a limit of the hosts as well.
"""

from __future__ import annotations

import pathlib

from tests.harness.leftovers import identity

MOUNTED = pathlib.Path("/sys/fs/cgroup")
GIVE = """
set -e
mountpoint -q "$1" || mount -t cgroup -o memory cgroup "$1"
mkdir -p "$1$2"
chown -R "$3" "$1$2"
cat /run/sshd.pid > "$1$2/cgroup.procs"
"""
TAKE = """
for again in $(seq 200); do
  for pid in $(cat "$1$2/cgroup.procs"); do echo $pid > "$1$3/cgroup.procs"; done 2>/dev/null
  rmdir "$1$2"/trainyard.* "$1$2" 2>/dev/null
  [ -d "$1$2" ] || exec umount -l "$1"
  sleep 0.05
done
ls -R "$1$2" >&2
exit 1
"""


def own():
    """Return the cgroup of these tests."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return path.rstrip("/")
    raise AssertionError("these tests make memory cgroups (v1), which this machine must allow")


def group(host):
    return f"{own()}/trainyard-{identity()}-{host.name}"


def give(host):
    """Give the host's login a memory cgroup, from the next login on."""
    host.run_inside("sh", "-c", GIVE, "sh", MOUNTED, group(host), host.user)
    end_logins(host)


def take_back(host):
    end_logins(host)
    host.run_inside("sh", "-c", TAKE, "sh", MOUNTED, group(host), own())


def end_logins(host):
    """End all logins: they would stay in their old cgroup."""
    for pid, command in host.processes(f"sshd: {host.user}"):
        if command.startswith("sshd"):
            host.run_inside("kill", "-9", str(pid), check=False)
