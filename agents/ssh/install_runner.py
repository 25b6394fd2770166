"""Put the runner on a host: under the name of its digest, verified there, by constant commands only."""

from __future__ import annotations

import hashlib
import json
from functools import cache

from agents.infra.failpoints import failpoint
from agents.ssh.dial import Connection, DialError, run_command
from agents.ssh.runner_archive import RUNNER, runner_archive

MODES = frozenset({"serve", "shell", "attach", "files", "put", "outputs", "stacks", "probe"})
PUT_TIMEOUT_S = 60.0

# Any login shell (sh, csh, fish) passes this on unchanged: it has no $, !, backslash or newline. The program follows
# on stdin.
BOOT_COMMAND = 'python3 -c "import sys; exec(eval(sys.stdin.buffer.readline()))"'

# The host's own python3 runs this, so it keeps to Python 3.7. A runner that arrived in part never gets the name of a
# whole one. What was compiled from it before goes (runner/compiled.py): nobody knows who wrote it, and the next start
# makes it anew from what was just compared. On a disk that cannot be written to it stays, as the runner does.
PUT_PROGRAM = """
import hashlib, json, os, sys, tempfile
head = json.loads(sys.stdin.buffer.readline().decode())
name = os.path.join(".trainyard", "bin", head["sha"] + ".pyz")
def whole():
    try:
        with open(name, "rb") as f:
            return hashlib.sha256(f.read()).hexdigest() == head["sha"]
    except OSError:
        return False
data = sys.stdin.buffer.read(head["size"])
if len(data) != head["size"] or hashlib.sha256(data).hexdigest() != head["sha"]:
    sys.exit("the runner arrived damaged: %d of %d bytes" % (len(data), head["size"]))
try:
    os.makedirs(os.path.dirname(name), 0o700, exist_ok=True)
    if not whole():
        fd, draft = tempfile.mkstemp(dir=os.path.dirname(name), prefix=".put-")
        try:
            with os.fdopen(fd, "wb") as f:
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
            os.rename(draft, name)
        except BaseException:
            os.unlink(draft)
            raise
        fd = os.open(os.path.dirname(name), os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
except OSError as error:
    sys.exit("the runner cannot be written to ~/.trainyard/bin: %s" % error)
if not whole():
    sys.exit("the runner reads back damaged from ~/.trainyard/bin")
for other in os.listdir(os.path.dirname(name)):
    if other.startswith(head["sha"] + ".") and other.endswith(".code"):
        try:
            os.unlink(os.path.join(os.path.dirname(name), other))
        except OSError:
            pass
print("TRAINYARD-PUT " + head["sha"])
"""


class RunnerInstallFailed(DialError):
    """The runner could not be put on the host. The message is the host's own."""


@cache
def runner_bytes() -> bytes:
    """The runner as it is sent.

    It is packed once: newer source files, and the protocol that they speak, are for the next start of this process.
    """
    return runner_archive(RUNNER)


@cache
def shipped_sha() -> str:
    return hashlib.sha256(runner_bytes()).hexdigest()


def command(sha: str, mode: str) -> str:
    """The constant command that starts the runner in the login user's home."""
    if mode not in MODES or len(sha) != 64 or not set(sha) <= set("0123456789abcdef"):
        raise ValueError(f"no such command: {sha!r} {mode!r}")
    return f"python3 .trainyard/bin/{sha}.pyz {mode}"


def put_runner(transport: Connection, program: bytes | None = None) -> str:
    """Make sure that the whole runner is on the host; returns its sha256, which is its name there."""
    data = runner_bytes() if program is None else program
    sha = hashlib.sha256(data).hexdigest()
    head = json.dumps({"sha": sha, "size": len(data)})
    failpoint("install.before")
    done = run_command(
        transport,
        BOOT_COMMAND,
        repr(PUT_PROGRAM).encode() + b"\n" + head.encode() + b"\n" + data,
        timeout=PUT_TIMEOUT_S,
    )
    failpoint("install.after")
    if done.status != 0 or f"TRAINYARD-PUT {sha}".encode() not in done.stdout:
        error = done.stderr.decode("utf-8", "replace").strip()[-1000:]
        raise RunnerInstallFailed(error or f"python3 ended with status {done.status} and said nothing")
    return sha
