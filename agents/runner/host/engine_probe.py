"""Whether podman, Docker and Apptainer work for this login, and what they lack: a part of the probe."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Tuple

from agents.runner.preparations.programs_output import NO_ANSWER, run_quietly
from agents.runner.runtimes.apptainer_containers import last_words
from agents.runner.runtimes.apptainer_options import client_env, run_words
from agents.runner.runtimes.containers import INIT_PLACES
from agents.runner.runtimes.docker_options import INIT_PLACES as DOCKER_INIT_PLACES
from agents.runner.runtimes.docker_options import is_rootless, limits_of, parse_info, takes_cdi, words_of
from agents.runner.runtimes.engine_commands import APPTAINER, DOCKER, PODMAN, find_engine

# A host that is busy takes seconds. The whole probe has 30 (agents/hosts/enrolment.py).
TIMEOUT_S = 8.0
# Where the programs of a host are, and their libraries.
_PROGRAMS = ("/bin", "/lib", "/lib64", "/usr")
# Ranges of ids for users without root: a line for a user's name or number.
_RANGES = ("/etc/subuid", "/etc/subgid")


def probe_engines() -> Dict[str, Dict[str, Any] | None]:
    """What is known of each engine. They are asked side by side: two that hang take no longer than one."""
    probes = {PODMAN: probe_podman, DOCKER: probe_docker, APPTAINER: probe_apptainer}
    with ThreadPoolExecutor(len(probes)) as pool:
        asked = {name: pool.submit(probe) for name, probe in probes.items()}
        return {name: each.result() for name, each in asked.items()}


def probe_podman() -> Dict[str, Any] | None:
    """What podman says about itself, and its own words if it does not work; None without podman. `missing`: what it
    needs of the host for full use, by the name of the part. `answered`: one that hung, or was killed, has not said
    whether it works."""
    program = find_engine(PODMAN)
    if program is None:
        return None
    status, output, errors = run_quietly([program, "info", "--format", "json"], dict(os.environ), TIMEOUT_S)
    host = _host(output) if status == 0 else {}
    return {
        "answered": status != NO_ANSWER and status >= 0,
        "works": bool(host),
        "error": "" if host else _last_line(errors),
        "rootless": os.getuid() != 0,
        "cgroup": str(host.get("cgroupVersion") or ""),
        "missing": missing_parts(host.get("cgroupControllers")),
    }


def probe_docker() -> Dict[str, Any] | None:
    """The same of Docker's daemon, as far as this login reaches it."""
    program = find_engine(DOCKER)
    if program is None:
        return None
    command = [program, "info", "--format", "{{json .}}"]
    status, output, errors = run_quietly(command, dict(os.environ), TIMEOUT_S)
    found = parse_info(output)
    works = status == 0 and bool(found.get("ServerVersion")) and not found.get("ServerErrors")
    missing = [] if "memory" in limits_of(found) else ["cgroup"]
    missing += [] if any(map(os.path.exists, DOCKER_INIT_PLACES)) else ["init"]
    return {
        "answered": status != NO_ANSWER and status >= 0,
        "works": works,
        "error": "" if works else words_of("%s\n%s" % (errors, output))[:300] or _last_line(""),
        "rootless": is_rootless(found),
        "cgroup": "v%s" % found["CgroupVersion"] if found.get("CgroupVersion") else "",
        "missing": missing if works else [],
        "cdi": works and takes_cdi(found),
    }


def probe_apptainer() -> Dict[str, Any] | None:
    """Whether a start like those of runs works: it has no daemon to ask. The image is an empty directory, into which
    programs of the host are mounted."""
    program = find_engine(APPTAINER)
    if program is None:
        return None
    try:
        status, errors = _start_apptainer(program)
    except OSError as error:  # no directory can be made: no run would start either
        status, errors = 1, str(error)
    return {
        "answered": status != NO_ANSWER and status >= 0,
        "works": status == 0,
        "error": "" if status == 0 else last_words(errors)[:300] or _last_line(errors),
        "rootless": os.getuid() != 0,
        "cgroup": "",
        "missing": [] if shutil.which("unsquashfs") else ["squashfs"],
    }


def _start_apptainer(program: str) -> Tuple[int, str]:
    """(exit status, errors) of a container in which a program of this host is started."""
    top = os.path.join(os.path.expanduser("~"), ".trainyard")
    with tempfile.TemporaryDirectory(dir=top if os.path.isdir(top) else None) as image:
        places = [(path, path, "ro") for path in _PROGRAMS if os.path.isdir(path)]
        words = run_words({"program": program, "root": image}, "/", places, has_gpus=False)
        status, _, errors = run_quietly([*words, "true"], client_env({}, "/"), TIMEOUT_S)
    return status, errors


def missing_parts(controllers: object) -> List[str]:
    """`controllers`: those of cgroups that podman may use, as it says."""
    missing = []
    if os.getuid() != 0:
        if shutil.which("newuidmap") is None or shutil.which("newgidmap") is None:
            missing.append("newuidmap")
        if not all(_has_range(path) for path in _RANGES):
            missing.append("subuid")
    if isinstance(controllers, list) and "memory" not in controllers:
        missing.append("cgroup")
    if not any(map(os.path.exists, INIT_PLACES)):
        missing.append("init")
    return missing


def _has_range(path: str) -> bool:
    user = pwd.getpwuid(os.getuid())
    line = re.compile(r"(?:%s|%d):\d+:[1-9]" % (re.escape(user.pw_name), user.pw_uid))
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return any(line.match(each) for each in file)
    except OSError:
        return False


def _host(output: str) -> Dict[str, Any]:
    try:
        found = json.loads(output)["host"]
    except (ValueError, LookupError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _last_line(errors: str) -> str:
    lines = [line.strip() for line in errors.strip().splitlines() if line.strip()]
    return (lines or ["it said nothing"])[-1][:300]
