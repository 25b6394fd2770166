"""Clocks of the product's processes that can be set, each by itself, at their start and while they run.

Only what shows the date is set, by a library that is preloaded (wrong_clock.c). What counts the time since the start of
the machine is the machine's own, as with a real clock that somebody sets.
"""

from __future__ import annotations

import pathlib
import struct

from tests.harness import leftovers
from tests.harness.product.processes import ROLES
from tests.harness.wait_and_processes import run

SOURCE = pathlib.Path(__file__).with_name("wrong_clock.c")
# Beside the processes of the product: programs that the harness starts.
SERVICES = ("postgres", "redis")
# Each Python process begins anew with the clock of its role, whichever it inherited; a fork, when it gets its title.
CHOOSE = """\
import ctypes, os, re, sys
import setproctitle
ROLES = {roles!r}
with open("/proc/self/cmdline") as source:
    words = source.read().split("\\0")[:-1]
line = " ".join(words)
found = [role for role in ROLES if re.search(ROLES[role], line)]
file = os.path.join({folder!r}, found[0] if found else "up")
if os.environ.get("WRONG_CLOCK") != file:
    os.environ["WRONG_CLOCK"] = file
    os.execv(sys.executable, [sys.executable, *words[1:]])
give_title = setproctitle.setproctitle
def give_title_and_clock(title):
    give_title(title)
    clock = os.path.join({folder!r}, title.removeprefix("trainyard: "))
    ctypes.CDLL(None).follow_clock(clock.encode())
setproctitle.setproctitle = give_title_and_clock
"""


class WrongClocks:
    """A file for each role holds by how many seconds its clock is wrong; all processes of the role see it at once."""

    def __init__(self):
        self.folder = leftovers.scratch("clocks")
        self.library = self.folder / "wrong_clock.so"
        run("cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", self.library, SOURCE, "-ldl")
        for role in (*ROLES, *SERVICES):
            self.set(0, role)
        (self.folder / "sitecustomize.py").write_text(CHOOSE.format(roles=ROLES, folder=str(self.folder)))

    def set(self, seconds, *roles):
        """Set the clocks of these roles, or of all."""
        for role in roles or (*ROLES, *SERVICES):
            path = self.folder / role
            # In place, for it is mapped by the processes.
            with open(path, "r+b" if path.exists() else "wb") as file:
                file.write(struct.pack("=q", seconds))

    def of_product(self):
        """The environment of `trainyard up`, from which its processes inherit."""
        return {**self.of("up"), "PYTHONPATH": str(self.folder)}

    def of(self, role):
        return {"LD_PRELOAD": str(self.library), "WRONG_CLOCK": str(self.folder / role)}
