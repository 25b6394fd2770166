"""Builds the wheel `trainyard-client` from the files beside this one: a build backend (PEP 517) without dependencies.

`pip install console/client` calls it, `make client` too, and the console, which serves the wheel of its own version.
The same files give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE, NAME = "trainyard_client", "trainyard-client"
VERSION_LINE = re.compile(r'^VERSION = "([0-9a-z.]+)"$', re.MULTILINE)
# The first day that ZIP knows: the times of files on this machine are no part of the wheel.
AT = (1980, 1, 1, 0, 0, 0)
SUMMARY = "The command line of Trainyard, for people who are not on the console's machine."


def version() -> str:
    found = VERSION_LINE.search((HERE / "__init__.py").read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def file_name() -> str:
    return f"{PACKAGE}-{version()}-py3-none-any.whl"


def wheel() -> bytes:
    """The wheel as bytes."""
    files = dict(_files())
    files[f"{_info()}/RECORD"] = _record(files)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, AT)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    return made.getvalue()


def build_wheel(
    wheel_directory: str, config_settings: object = None, metadata_directory: str | None = None
) -> str:
    """What a builder calls. Returns the name of the file."""
    (Path(wheel_directory) / file_name()).write_bytes(wheel())
    return file_name()


def _info() -> str:
    return f"{PACKAGE}-{version()}.dist-info"


def _files() -> Iterator[tuple[str, bytes]]:
    """The modules of the client, and what installers ask for."""
    for path in sorted(HERE.rglob("*.py")):
        if path != HERE / "build_wheel.py" and "__pycache__" not in path.parts and "build" not in path.parts:
            yield f"{PACKAGE}/{path.relative_to(HERE).as_posix()}", path.read_bytes()
    metadata = [
        "Metadata-Version: 2.1",
        f"Name: {NAME}",
        f"Version: {version()}",
        f"Summary: {SUMMARY}",
        "License: Apache-2.0",
        "Requires-Python: >=3.9",
        "Provides-Extra: keyring",
        'Requires-Dist: keyring; extra == "keyring"',
    ]
    tags = ["Wheel-Version: 1.0", "Generator: trainyard", "Root-Is-Purelib: true", "Tag: py3-none-any"]
    scripts = ["[console_scripts]", f"trainyard = {PACKAGE}.main:main"]
    for name, lines in (("METADATA", metadata), ("WHEEL", tags), ("entry_points.txt", scripts)):
        yield f"{_info()}/{name}", ("\n".join(lines) + "\n").encode()


def _record(files: Mapping[str, bytes]) -> bytes:
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    return "\n".join([*lines, f"{_info()}/RECORD,,"]).encode() + b"\n"


if __name__ == "__main__":
    print(build_wheel("."))
