"""What Python made of the runner's modules: kept in a file beside the archive, and read at each start.

Python compiles the modules of an archive anew at each start, which was most of a start. So the first start after an
installation, or after an upgrade of the host's Python, lets a process of its own compile all of them (compiling.py).
This module is compiled at every start, so it is short and imports nothing.

The file is named by the archive's digest and by what is particular to this Python. It is never waited for and never
trusted to be whole: a disk was full, a power cut tore it, another program wrote there. Each part of it has a hash, and
is read as code only if that fits. Whatever else is there, the module's source in the archive is compiled, as if there
were no file. No clock is asked.

    8 bytes   hash of the index
    8 bytes   length of the index
    index     marshal: (identity, {module: (is a package, begin, end, hash of its code)})
    code      marshal of each module's code, one after the other
"""

from __future__ import annotations

import marshal
import os
import sys

TYPE_CHECKING = False  # `typing` has it too, and would have to be imported
if TYPE_CHECKING:
    from typing import Any, Dict, Tuple

    Modules = Dict[str, Tuple[bool, int, int, bytes]]

ENDING, DRAFT = ".code", ".compiling-"
MAX_BYTES = 1 << 26
HEAD = 8


class Compiled:
    """Finds and loads the modules that are whole in the file, before Python looks into the archive."""

    def __init__(self, archive: Any, data: bytes, begin: int, modules: Modules) -> None:
        self.archive, self.data, self.begin, self.modules = archive, data, begin, modules
        self.whole = True

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        found = self.modules.get(name)
        if found is None:
            return None
        is_package, begin, end, digest = found
        code = self.data[self.begin + begin : self.begin + end]
        if hash_of(code) != digest:
            self.whole = False
            return None
        loader: Any = self
        file = self.get_filename(name)
        spec = _Spec(name, loader, origin=file, loader_state=code)
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [os.path.dirname(file)]
        return spec

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        exec(marshal.loads(module.__spec__.loader_state), module.__dict__)

    # The sources, for tracebacks and for modules that are put on the host as files.

    def get_filename(self, name: str) -> str:
        place = "%s/%s" % (self.archive.archive, name.replace(".", "/"))
        return place + ("/__init__.py" if self.modules[name][0] else ".py")

    def get_data(self, path: str) -> bytes:
        data: bytes = self.archive.get_data(path)
        return data

    def get_source(self, name: str) -> str:
        return self.get_data(self.get_filename(name)).decode()


def read_compiled(archive: Any) -> Compiled | None:
    """The modules of this archive (its importer) as this Python compiled them; None if there is no such file."""
    try:
        fd = os.open(file_of(archive.archive), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            data = os.read(fd, min(os.fstat(fd).st_size, MAX_BYTES))
        finally:
            os.close(fd)
        begin = 2 * HEAD + int.from_bytes(data[HEAD : 2 * HEAD], "little")
        index = data[2 * HEAD : begin]
        if hash_of(index) != data[:HEAD]:
            return None
        identity, modules = marshal.loads(index)
        return Compiled(archive, data, begin, modules) if identity == identity_of(archive.archive) else None
    except Exception:  # whatever it is: the runner starts without it
        return None


def is_kept(archive: str) -> bool:
    """Whether the name of an archive says what is in it. Only then something is kept beside it."""
    name = os.path.basename(archive)
    return len(name) == 68 and name.endswith(".pyz") and set(name[:64]) <= set("0123456789abcdef")


def may_keep(archive: str) -> bool:
    """Whether it is worth to try: not on a disk that is full or cannot be written to, or where a directory is in the
    way."""
    directory = os.path.dirname(os.path.abspath(archive))
    try:
        disk = os.statvfs(directory)
        has_room = os.access(directory, os.W_OK) and disk.f_bavail * disk.f_frsize > 1 << 22
        return has_room and is_kept(archive) and not os.path.isdir(file_of(archive))
    except OSError:
        return False


def identity_of(archive: str) -> str:
    """All that decides what Python makes of the sources: the archive's digest, the Python, and its options."""
    python = "%s %s %s %d" % (sys.version, sys.implementation.cache_tag, _MAGIC.hex(), sys.flags.optimize)
    return "%s %s" % (os.path.basename(archive)[:64], python)


def file_of(archive: str) -> str:
    """Hosts with different Pythons may share a home: each has a file of its own."""
    return "%s.%s%s" % (archive[: -len(".pyz")], hash_of(identity_of(archive).encode()).hex(), ENDING)


def hash_of(data: bytes) -> bytes:
    """The hash of .pyc files (PEP 552): 8 bytes. It tells damage; who means harm can write all of this directory."""
    digest: bytes = _hash(_KEY, data)
    return digest


try:  # what each Python has at its start, without an import of importlib, which takes long
    from _frozen_importlib import ModuleSpec as _Spec
    from _frozen_importlib_external import MAGIC_NUMBER as _MAGIC
    from _imp import source_hash as _hash

    _KEY = int.from_bytes(_MAGIC, "little")
except ImportError:  # another Python than CPython: nothing is kept, and file_of raises
    is_kept = may_keep = lambda archive: False
