"""Probe: what this host is, in one line. Anything that cannot be found out is null, never an error."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import pwd
import re
import resource
import shutil
import socket
import time
from typing import Any, Dict, List, Tuple

from agents.runner.containment import containment_level, memory_limits_here
from agents.runner.gpus import open_devices
from agents.runner.home import is_gpu
from agents.runner.linux import IN_MOVED_TO, Inotify, boot_id
from agents.runner.programs import output_of

_NETWORK_DISKS = {
    "nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "ceph", "beegfs", "afs", "9p", "fuse.sshfs"
}  # fmt: skip
_MEMORY_DISKS = {"tmpfs", "ramfs", "devtmpfs", "rootfs"}
_MOST_MOUNTS = 64


def main() -> None:
    user = pwd.getpwuid(os.getuid())
    home = os.path.expanduser("~")
    level = containment_level()
    gpus, gpu_error = probe_gpus()
    inotify = Inotify()
    document = {
        "schema": 1,
        "python": platform.python_version(),
        "boot_id": boot_id(),
        "wall": time.time(),
        "hostname": socket.gethostname(),
        "user": user.pw_name,
        "uid": user.pw_uid,
        "home": home,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_mb": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
        "disk": probe_disk(home),
        "shared": probe_shared(),
        "gpus": gpus,
        "gpu_error": gpu_error,
        "gpu_topology": probe_topology() if len(gpus) > 1 else "",
        "gpu_unseen": open_devices()[1] if gpus else 0,
        "nvidia_smi": shutil.which("nvidia-smi") is not None,
        "runtimes": probe_runtimes(),
        "containment": level,
        "memory_limits": memory_limits_here(),
        "containment_text": (
            "a cgroup per run: a stop overlooks nothing that it started"
            if level == "cgroup"
            else "no delegated cgroup: processes are followed by kinship and by a mark in their environment"
        ),
        "logout": probe_logout(user.pw_name),
        "nofile": _limit(resource.RLIMIT_NOFILE),
        "nproc": _limit(resource.RLIMIT_NPROC),
        "inotify": inotify.fd >= 0 and inotify.watch(home, IN_MOVED_TO) >= 0,
        "sshd": probe_sshd("/etc/ssh"),
    }
    os.write(1, json.dumps(document).encode("ascii") + b"\n")


def _limit(which: int) -> int:
    soft = resource.getrlimit(which)[0]
    return 2**31 - 1 if soft == resource.RLIM_INFINITY else min(soft, 2**31 - 1)


def probe_gpus() -> Tuple[List[Dict[str, Any]], str | None]:
    if shutil.which("nvidia-smi") is None:
        return [], None
    query = "--query-gpu=index,uuid,name,memory.total"
    status, text = output_of(["nvidia-smi", query, "--format=csv,noheader,nounits"])
    if status != 0:
        return [], text.strip()[:1000] or "nvidia-smi ended with status %d" % status
    found = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 4 and parts[0].isdigit() and is_gpu(parts[1]):
            memory = int(parts[3]) if parts[3].isdigit() else 0
            found.append({"index": int(parts[0]), "uuid": parts[1], "model": parts[2], "memory_mb": memory})
    return found, None


def probe_topology() -> str:
    """How near the GPUs are to each other, as nvidia-smi draws it; the console reads the drawing."""
    status, text = output_of(["nvidia-smi", "topo", "-m"])
    return text[:65536] if status == 0 else ""


def probe_disk(home: str) -> Dict[str, Any]:
    found = os.statvfs(home)
    fstype = filesystem_type(home)
    return {
        "path": home,
        "free_mb": found.f_bavail * found.f_frsize >> 20,
        "total_mb": found.f_blocks * found.f_frsize >> 20,
        "fstype": fstype,
        "local": fstype not in _NETWORK_DISKS,
        "survives_reboot": fstype not in _MEMORY_DISKS,
        "writable": os.access(home, os.W_OK),
    }


def filesystem_type(path: str) -> str:
    """The type of the file system that holds `path`: that of the longest mount point above it."""
    path = os.path.realpath(path) + "/"
    best = ("", "unknown")
    for point, fstype, _ in mounts():
        if path.startswith(point.rstrip("/") + "/") and len(point) >= len(best[0]):
            best = (point, fstype)
    return best[1]


def mounts() -> List[Tuple[str, str, str]]:
    """(mount point, type, source) of each mount; nothing is touched, so one that hangs holds nobody up."""
    found = []
    with contextlib.suppress(OSError):
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.readlines()
        for line in lines:
            before, _, after = line.partition(" - ")
            # Blanks and newlines in names stand there as octal numbers.
            words = before.split()[4:5] + after.split()[:2]
            point, fstype, source = [
                re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), word) for word in words
            ]
            found.append((point, fstype, source))
    return found


def probe_shared() -> List[Dict[str, Any]]:
    """Storage that other hosts may see too, and what is mounted below it."""
    every = mounts()
    shared = [point.rstrip("/") + "/" for point, fstype, _ in every if fstype in _NETWORK_DISKS]
    return [
        {"path": point, "fstype": fstype, "source": source, "network": fstype in _NETWORK_DISKS}
        for point, fstype, source in every
        if fstype in _NETWORK_DISKS or any(point.startswith(above) for above in shared)
    ][:_MOST_MOUNTS]


def probe_runtimes() -> List[Dict[str, str]]:
    found = []
    for name in ("docker", "podman", "apptainer", "singularity", "enroot"):
        if shutil.which(name):
            status, text = output_of([name, "version" if name == "enroot" else "--version"], 5.0)
            version = re.search(r"\d+\.\d[\w.+-]*", text) if status == 0 else None
            found.append({"name": name, "version": version.group(0) if version else ""})
    return found


def probe_logout(user: str) -> Dict[str, bool | None]:
    """Would logind kill what a login leaves behind? Null where there is no logind, which then cannot."""
    answer: Dict[str, bool | None] = {"kill_user_processes": None, "linger": None}
    if shutil.which("loginctl") is None:
        return answer
    status, text = output_of(["loginctl", "show-user", user, "--property=Linger"], 5.0)
    if status == 0 and "Linger=" in text:
        answer["linger"] = "Linger=yes" in text
    command = ["busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1"]
    status, text = output_of(command + ["org.freedesktop.login1.Manager", "KillUserProcesses"], 5.0)
    if status == 0:
        answer["kill_user_processes"] = text.split()[-1:] == ["true"]
    return answer


def probe_sshd(directory: str) -> Dict[str, int | str | None]:
    """sshd's limits as far as its files may be read: the first setting of a keyword counts, as sshd does it."""
    main = os.path.join(directory, "sshd_config")
    more = os.path.join(directory, "sshd_config.d")
    try:
        names = [os.path.join(more, name) for name in sorted(os.listdir(more)) if name.endswith(".conf")]
    except OSError:
        names = []
    found: Dict[str, str] = {}
    for name in names + [main]:
        try:
            with open(name, encoding="utf-8", errors="replace") as file:
                lines = file.read().splitlines()
        except OSError:
            return {"max_sessions": None, "max_startups": None}
        for line in lines:
            words = line.split("#")[0].replace("=", " ").split()
            if words and words[0].lower() == "match":
                break
            if len(words) == 2:
                found.setdefault(words[0].lower(), words[1])
    sessions = found.get("maxsessions", "10")
    return {
        "max_sessions": int(sessions) if sessions.isdigit() else None,
        "max_startups": found.get("maxstartups", "10:30:100"),
    }
