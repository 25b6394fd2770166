"""The tools that shells have on every host: py-spy, which is put there as the runner is, once for each host.

tools/install has the wheels. The program in them is linked statically, so that one for each kind of processor is
enough. On the host lies the program, for `PATH`, and the wheel, for `pip install py-spy` without an internet.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agents.ssh.dial import Connection, DialError, run_command
from agents.ssh.install_runner import BOOT_COMMAND
from agents.ssh.sockets import CONNECTION_ERRORS

log = logging.getLogger(__name__)

WHEELS = Path(sys.prefix) / "share" / "py-spy"
PUT_TIMEOUT_S = 60.0

# The host's own python3 runs this, so it keeps to Python 3.7. What arrived in part never gets the name of the whole.
PUT_PROGRAM = """
import hashlib, io, json, os, shutil, sys, tempfile, zipfile
head = json.loads(sys.stdin.buffer.readline().decode())
data = sys.stdin.buffer.read(head["size"])
if len(data) != head["size"] or hashlib.sha256(data).hexdigest() != head["sha"]:
    sys.exit("the tool arrived damaged: %d of %d bytes" % (len(data), head["size"]))
tools = os.path.join(".trainyard", "tools")
place = os.path.join(tools, head["sha"])
def write(name, content, mode):
    path = os.path.join(draft, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(path, mode)
    os.chmod(os.path.dirname(path), 0o755)
try:
    os.makedirs(tools, 0o700, exist_ok=True)
    if not os.path.isdir(place):
        draft = tempfile.mkdtemp(dir=tools, prefix=".put-")
        try:
            os.chmod(draft, 0o755)
            archive = zipfile.ZipFile(io.BytesIO(data))
            for name in archive.namelist():
                if ".data/scripts/" in name:
                    write(os.path.join("bin", os.path.basename(name)), archive.read(name), 0o755)
            write(os.path.join("wheels", head["name"]), data, 0o644)
            os.rename(draft, place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
except OSError as error:
    if not os.path.isdir(place):
        sys.exit("the tool cannot be written to ~/.trainyard/tools: %s" % error)
print("TRAINYARD-TOOL " + head["sha"])
"""


@dataclass(frozen=True, slots=True)
class Wheel:
    path: Path
    machine: str
    sha: str

    @property
    def name(self) -> str:
        """The name for pip on the host: with this tag, a pip for musl takes the wheel too."""
        package, version, python, abi, _ = self.path.stem.split("-")
        return f"{package}-{version}-{python}-{abi}-linux_{self.machine}.whl"


@cache
def wheels() -> dict[str, Wheel]:
    """The wheels that this console has, by the kind of processor (`uname -m`)."""
    found = {}
    for path in sorted(WHEELS.glob("*.whl")):
        machine = next((each for each in ("x86_64", "aarch64") if path.stem.endswith(each)), "")
        if machine:
            found[machine] = Wheel(path, machine, hashlib.sha256(path.read_bytes()).hexdigest())
    return found


def offered() -> dict[str, str]:
    """What a request for a shell says of the tools: their digests, by the kind of processor."""
    return {machine: wheel.sha for machine, wheel in wheels().items()}


def put(connection: Connection, machine: str) -> bool:
    """Put the tool on the host. False if that fails: a shell is more important than what is in it."""
    wheel = wheels().get(machine)
    if wheel is None:
        return False
    data = wheel.path.read_bytes()
    head = json.dumps({"sha": wheel.sha, "size": len(data), "name": wheel.name}).encode()
    try:
        done = run_command(
            connection,
            BOOT_COMMAND,
            repr(PUT_PROGRAM).encode() + b"\n" + head + b"\n" + data,
            timeout=PUT_TIMEOUT_S,
        )
    except (DialError, *CONNECTION_ERRORS) as problem:
        log.info("A host has not taken py-spy: %s", problem)
        return False
    if done.status != 0 or f"TRAINYARD-TOOL {wheel.sha}".encode() not in done.stdout:
        words = done.stderr.decode("utf-8", "replace").strip()[-300:]
        log.info("A host has not taken py-spy: %s", words)
        return False
    return True
