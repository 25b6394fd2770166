"""Which file system a path may be on, found out without touching what may hang."""

from __future__ import annotations

import os
import re

from agents.runner.linux import read_kernel_file

# Compiled here, and not in each fresh fork.
_OCTAL = re.compile(rb"[ \t\n\\]")


def may_be_another_mount(base: str, path: str) -> bool:
    """May `path`, below `base`, be on another file system?"""
    # In that file blanks, tabs, newlines and backslashes of names are octal numbers.
    name = _OCTAL.sub(lambda found: b"\\%03o" % ord(found.group(0)), os.fsencode(base))
    if b" " + name + b"/" in read_kernel_file("/proc/self/mountinfo"):
        return True
    return any(os.path.islink(part) for part in (os.path.dirname(path), path))
