"""The root disk of a host in namespaces: a tmpfs of a fixed size, which can be full, or a part of this machine's disk.
Both survive reboots."""

from __future__ import annotations

import errno
import os
import pathlib
import shutil

from tests.harness.wait_and_processes import run

UID = 1777
DIRECTORIES = [
    "local-bin",
    "usr",
    "proc",
    "sys",
    "dev",
    "run",
    "tmp",
    "opt",
    "mnt",
    "srv",
    "home",
    "root",
    "var/log",
    "var/lib",
    "var/cache",
    "var/ledger",
    "var/skew",
    "var/failpoints",
    "etc/ssh",
]
FROM_ETC = [
    "alternatives",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "nsswitch.conf",
    "profile",
    "profile.d",
    "bash.bashrc",
    "localtime",
    "timezone",
    "services",
    "protocols",
    "terminfo",
    "login.defs",
    "host.conf",
    "gai.conf",
    "inputrc",
    "python3",
    "python3.11",
    "debian_version",
    "os-release",
]
MERGED = ("bin", "sbin", "lib", "lib64", "lib32", "libx32")


# Only the runner (started as `python3`) sees the skewed clock, not the replicas, whose ledgers have to be true.
PYTHON = """\
#!/bin/sh
[ -e /var/skew/seconds ] && export PYTHONPATH=/var/skew
exec /usr/bin/python3 "$@"
"""
SKEWED = """\
import time
def skewed(true=time.time):
    try:
        with open("/var/skew/seconds") as source:
            return true() + float(source.read())
    except (OSError, ValueError):
        return true()
with open("/proc/self/cmdline") as own:
    if ".trainyard/bin/" in own.read():
        time.time = skewed
"""


def lay_out(disk, name, size_mb, user, hosts_file, programs):
    """Mount a disk at `disk` and put a small system on it; /usr is bind-mounted at boot.

    `size_mb` None: what lies on it lies on this machine's disk, for more bytes than its memory holds.
    """
    if size_mb is None:
        run("mount", "--bind", disk, disk)
    else:
        run("mount", "-t", "tmpfs", "-o", f"size={size_mb}m,mode=755", name, disk)
    for directory in DIRECTORIES:
        (disk / directory).mkdir(parents=True)
    for directory in MERGED:
        if pathlib.Path("/", directory).is_symlink():
            (disk / directory).symlink_to(f"usr/{directory}")
    (disk / "var/failpoints").chmod(0o777)
    (disk / "var/run").symlink_to("/run")
    (disk / "var/tmp").mkdir()
    (disk / "var/tmp").chmod(0o1777)
    (disk / "root").chmod(0o700)
    present = [f"/etc/{each}" for each in FROM_ETC if os.path.lexists(f"/etc/{each}")]
    run("cp", "-a", *present, disk / "etc", check=False)
    accounts(disk, user)
    (disk / "etc/hostname").write_text(name + "\n")
    (disk / "etc/hosts").write_text(hosts_file)
    (disk / "local-bin/python3").write_text(PYTHON)
    (disk / "local-bin/python3").chmod(0o755)
    (disk / "var/skew/sitecustomize.py").write_text(SKEWED)
    for program, source in programs.items():
        shutil.copy(source, disk / "local-bin" / program)
        (disk / "local-bin" / program).chmod(0o755)


def fill(directory, leave_kb):
    """Take all free space but leave_kb. Tries again when another process writes meanwhile."""
    for tries_left in reversed(range(100)):
        space = os.statvfs(directory)
        size = space.f_bavail * space.f_bsize - leave_kb * 1024
        try:
            if size > 0:
                with open(directory / "filler", "wb") as filler:
                    os.posix_fallocate(filler.fileno(), 0, size)
            return
        except OSError as problem:
            if problem.errno != errno.ENOSPC or not tries_left:
                raise


def accounts(disk, user):
    """Make the login user and root, both by key only. For sshd a user without a shadow entry is locked."""
    passwd = pathlib.Path("/etc/passwd").read_text()
    (disk / "etc/passwd").write_text(f"{passwd}{user}:*:{UID}:{UID}::/home/{user}:/bin/bash\n")
    (disk / "etc/group").write_text(pathlib.Path("/etc/group").read_text() + f"{user}:x:{UID}:\n")
    (disk / "etc/shadow").write_text(f"root:*:19000:0:99999:7:::\n{user}:*:19000:0:99999:7:::\n")
    (disk / "etc/shadow").chmod(0o600)
    for home, uid in ((disk / "home" / user, UID), (disk / "root", 0)):
        keys = home / ".ssh"
        keys.mkdir(parents=True)
        (keys / "authorized_keys").touch()
        keys.chmod(0o700)
        (keys / "authorized_keys").chmod(0o600)
        for path in (home, keys, keys / "authorized_keys"):
            os.chown(path, uid, uid)
