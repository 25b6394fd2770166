"""Which file system a path may be on, found out without touching what may hang."""

from __future__ import annotations

import os
import re


def may_be_another_mount(base: str, path: str) -> bool:
    """May `path`, below `base`, be on another file system?"""
    with open("/proc/self/mountinfo", "rb") as file:
        # In that file blanks, tabs, newlines and backslashes of names are octal numbers.
        name = re.sub(rb"[ \t\n\\]", lambda found: b"\\%03o" % ord(found.group(0)), os.fsencode(base))
        if b" " + name + b"/" in file.read():
            return True
    return any(os.path.islink(part) for part in (os.path.dirname(path), path))
