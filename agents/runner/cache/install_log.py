"""What pip printed when a Python environment was made: kept in it, and the head of the log of each run that it was made
for. A run that uses it later gets one line, for nothing was installed then.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Iterable, List

from agents.runner.cache.python_environment import STAMP
from agents.runner.files import read_json, read_plain, write_file
from agents.runner.logs.mask_patterns import MaskPatterns, blank

INSTALL_LOG = "trainyard.log"
MAX_BYTES = 256 * 1024
MAX_NAMED = 20
_VERSION, _INSTALLED = (
    re.compile(r"[0-9A-Za-z.+]{1,40}\Z"),
    re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==\S{1,80}\Z"),
)


def keep_install_log(environment: str, output: str, start: int, secrets: Iterable[str]) -> None:
    """Keep what is in the file `output` from this offset on, with the secrets masked: a log that is read on the console
    is masked by the secrets of its job alone."""
    with open(output, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        first = max(start, size - MAX_BYTES)
        file.seek(first)
        data = bytearray(file.read(size - first))
    blank(data, MaskPatterns(secrets).spans(bytes(data)))
    if first > start:
        # Whole lines: what is cut may be a half of a secret.
        cut = data.find(b"\n") + 1 or len(data)
        data[:cut] = b"trainyard: the first %d bytes of the install's output are left out\n" % (
            first + cut - start
        )
    write_file(os.path.join(environment, INSTALL_LOG), bytes(data), durable=True)


def head_of_log(environment: str, made_for_it: bool) -> bytes:
    """What the log of a run in this environment begins with. Jobs can write there, so nothing is believed of it."""
    if made_for_it:
        try:
            data = read_plain(os.path.join(environment, INSTALL_LOG), MAX_BYTES + 1024)
        except OSError:  # an earlier version has kept none
            data = b""
        if data:
            return data if data.endswith(b"\n") else data + b"\n"
    return _line(environment).encode("ascii", "replace")


def _line(environment: str) -> str:
    stamp, path = read_json(os.path.join(environment, STAMP)) or {}, os.path.join(environment, STAMP)
    version, names = _text(stamp.get("version"), _VERSION), _names(stamp.get("installed"))
    try:
        made = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(os.lstat(path).st_mtime))
    except (OSError, OverflowError, ValueError):
        made = "an unknown time"
    return (
        "trainyard: the packages were installed on this host for an earlier start, at %s, for Python %s: %s\n"
        % (
            made,
            version or "?",
            names or "?",
        )
    )


def _text(value: Any, form: re.Pattern[str]) -> str:
    return value if isinstance(value, str) and form.match(value) else ""


def _names(installed: Any) -> str:
    found: List[str] = (
        [name for name in installed if _text(name, _INSTALLED)] if isinstance(installed, list) else []
    )
    more = ["and %d more" % (len(found) - MAX_NAMED)] if len(found) > MAX_NAMED else []
    return ", ".join(found[:MAX_NAMED] + more)
