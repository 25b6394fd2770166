"""Archives that attack whoever unpacks them: by their names, links, kinds of entries, sizes and headers."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable


def tar(*members: tuple[str, dict], data: bytes = b"x", form: int = tarfile.PAX_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        for name, changes in members:
            info = tarfile.TarInfo(name)
            content = (
                changes.pop("data", data) if changes.get("type", tarfile.REGTYPE) == tarfile.REGTYPE else b""
            )
            info.size = len(content)
            for field, value in changes.items():
                setattr(info, field, value)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def zipped(*members: tuple[str, int], data: bytes = b"x") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, mode in members:
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr = 3, mode << 16
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[str, dict]:
    return name, {"type": kind, "linkname": target}


def zip_with_nul() -> bytes:
    """A name that ends at a NUL for one reader and goes on for another."""
    return zipped(("aaa.py.png", 0o100644)).replace(b"aaa.py.png", b"aaa.py\0png")


def zip_bomb() -> bytes:
    """Many entries that are the same packed bytes: overlapping files, as in the quine of 2019."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(1 << 20))
        first = archive.infolist()[0]
        for number in range(300):
            again = zipfile.ZipInfo(f"b{number}")
            for field in ("compress_type", "CRC", "compress_size", "file_size", "header_offset", "flag_bits"):
                setattr(again, field, getattr(first, field))
            archive.filelist.append(again)
            archive._didModify = True  # type: ignore[attr-defined]
    return file.getvalue()


def endless_header() -> bytes:
    """A header that says that the next name has 8 GiB."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 33
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20)


def nested_headers() -> bytes:
    """Thousands of headers that each describe the next one."""
    info = tarfile.TarInfo("././@PaxHeader")
    content = b"13 path=abcd\n".ljust(512, b"\0")
    info.type, info.size = tarfile.XHDTYPE, 13
    return (info.tobuf(tarfile.USTAR_FORMAT) + content) * 5000


def long_headers() -> bytes:
    """Headers of nearly the largest size, each before the next one."""
    return global_header(1000 << 10, 0) * 3


def global_header(size: int, number: int) -> bytes:
    """A header for all entries that follow."""
    value = b"key%d=%s\n" % (number, b"x" * size)
    content = b"%d %s" % (len(value) + 8, value)
    assert len(b"%d " % len(content)) == 8
    info = tarfile.TarInfo("pax_global_header")
    info.type, info.size = tarfile.XGLTYPE, len(content)
    return info.tobuf(tarfile.USTAR_FORMAT) + content.ljust(-(-len(content) // 512) * 512, b"\0")


def huge_sparse() -> bytes:
    """A file of 4 EiB in no bytes."""
    info = tarfile.TarInfo("sparse")
    info.type, info.size = tarfile.GNUTYPE_SPARSE, 0
    head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    head[483:495] = b"\x80" + (1 << 62).to_bytes(11, "big")
    head[148:156] = b"        "
    head[148:156] = b"%06o\0 " % sum(head[:512])
    return bytes(head) + bytes(1024)


def encrypted() -> bytes:
    plain = bytearray(zipped(("secret", 0o100644)))
    for signature, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = plain.index(signature) + offset
        plain[at : at + 2] = struct.pack("<H", struct.unpack("<H", plain[at : at + 2])[0] | 1)
    return bytes(plain)


# What an unpacker must refuse, and the words of the reason.
REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "up": (lambda: tar(("../x", {})), "leads out"),
    "up within": (lambda: tar(("a/../../x", {})), "leads out"),
    "up and back": (lambda: tar(("a/../b", {})), "leads out"),
    "absolute": (lambda: tar(("/tmp/x", {})), "absolute"),
    "zip up": (lambda: zipped(("../x", 0o100644)), "leads out"),
    "zip absolute": (lambda: zipped(("/tmp/x", 0o100644)), "absolute"),
    "link out": (lambda: tar(link("a", "../x")), "leads out"),
    "absolute link": (lambda: tar(link("a", "/etc")), "leads out"),
    "zip link out": (lambda: zipped(("a", stat.S_IFLNK | 0o777), data=b"../../etc"), "leads out"),
    "link through links": (
        lambda: tar(("d/e/x", {}), link("d/e/up", "../.."), link("out", "d/e/up/../../../etc")),
        "leads out",
    ),
    "links that lead out together": (
        lambda: tar(("a/b/x", {}), link("a/b/top", "../.."), link("y", "a/b/top/../z"), link("z", "y")),
        "leads out",
    ),
    "file through a link": (lambda: tar(link("a", "b"), ("a/x", {})), "below a file"),
    "file over a link": (lambda: tar(link("a", "b"), ("a", {})), "twice"),
    "directory over a link": (lambda: tar(link("a", "b"), ("a", {"type": tarfile.DIRTYPE})), "below a file"),
    "hard link out": (lambda: tar(link("a", "../../etc/passwd", tarfile.LNKTYPE)), "leads out"),
    "absolute hard link": (lambda: tar(link("a", "/etc/passwd", tarfile.LNKTYPE)), "absolute"),
    "hard link to a link": (lambda: tar(link("a", "b"), link("c", "a", tarfile.LNKTYPE)), "hard link to"),
    "hard link to nothing": (lambda: tar(link("c", "a", tarfile.LNKTYPE)), "hard link to"),
    "device": (lambda: tar(("a", {"type": tarfile.BLKTYPE, "devmajor": 8})), "device"),
    "character device": (lambda: tar(("a", {"type": tarfile.CHRTYPE})), "device"),
    "pipe": (lambda: tar(("a", {"type": tarfile.FIFOTYPE})), "pipe"),
    "zip device": (lambda: zipped(("a", stat.S_IFCHR | 0o666)), "device"),
    "twice": (lambda: tar(("a", {}), ("a", {})), "twice"),
    "twice by dots": (lambda: tar(("a", {}), ("./a", {})), "twice"),
    "file and directory": (lambda: tar(("a", {}), ("a/b", {})), "below a file"),
    "directory and file": (lambda: tar(("a/b", {}), ("a", {})), "twice"),
    "newline": (lambda: tar(("a\nb", {})), "control character"),
    "escape": (lambda: tar(("a\x1b[2Jb", {})), "control character"),
    "nul": (zip_with_nul, "control character"),
    "no text": (lambda: tar(("a\udcff", {}), form=tarfile.GNU_FORMAT), "not UTF-8"),
    "no name": (lambda: tar(("./", {"type": tarfile.REGTYPE})), "no name"),
    "long name": (lambda: tar(("n" * 256, {})), "too long"),
    "long path": (lambda: tar(("/".join(["n" * 200] * 12), {})), "too long"),
    "deep": (lambda: tar(("/".join("d" * 70), {})), "too deep"),
    "link with a newline": (lambda: tar(link("a", "b\nc")), "no name"),
    "endless header": (endless_header, "header of"),
    "nested headers": (nested_headers, "damaged"),
    "long headers": (long_headers, "headers of one entry"),
    "sparse": (huge_sparse, "bytes"),
    "encrypted": (encrypted, "encrypted"),
    "overlapping zip": (zip_bomb, "times its size|Overlap|damaged"),
    "gzip bomb": (lambda: gzip.compress(tar(("a", {"data": bytes(8 << 20)}))), "times its size"),
    "bzip2 bomb": (lambda: bz2.compress(tar(("a", {"data": bytes(8 << 20)}))), "times its size"),
    "xz bomb": (lambda: lzma.compress(tar(("a", {"data": bytes(8 << 20)}))), "times its size"),
    "zip bomb": (lambda: zipped(("a", 0o100644), data=bytes(8 << 20)), "times its size"),
    "many files": (lambda: tar(*[(f"f{number}", {}) for number in range(1200)]), "more than 1000"),
    "many directories": (
        lambda: tar(*[("/".join([f"x{number}"] * 60) + "/f", {}) for number in range(20)]),
        "more than 1000",
    ),
    "cut gzip": (lambda: gzip.compress(tar(("a", {"data": bytes(range(256)) * 99})))[:-200], "damaged|cut"),
    "cut tar": (lambda: tar(("a", {"data": b"y" * 9000}))[:3000], "damaged|cut"),
    "cut zip": (lambda: zipped(("a", 0o100644))[:-30], "damaged"),
    "damaged zip": (
        lambda: zipped(("a", 0), data=b"hello" * 50).replace(b"PK\3\4", b"PK\3\5"),
        "neither|damaged",
    ),
    "not an archive": (lambda: b"#!/bin/sh\nrm -rf /\n" * 100, "neither"),
    "empty": (lambda: b"", "neither"),
}
