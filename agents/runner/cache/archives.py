"""Reading archives that nobody trusts: the entries of a tar or a zip file one after the other, in bounded memory."""

from __future__ import annotations

import bz2
import contextlib
import lzma
import stat
import tarfile
import zipfile
import zlib
from typing import Any, BinaryIO, Callable, Iterator, NamedTuple

BLOCK = 256 * 1024
# No larger header of an entry is read, nor more of them for one entry: a name has at most 4,096 bytes.
MAX_ENTRY_HEADER = 1 << 20
# A file that was packed with a larger dictionary cannot be read in less memory.
XZ_MEMORY = 512 << 20
# The names of all entries of a zip file are read at once.
MAX_DIRECTORY_BYTES = 48 << 20

FILE, DIRECTORY, LINK, HARD_LINK, OTHER = "file", "directory", "link", "hard link", "other"


class BadArchive(Exception):
    """The archive is damaged, of an unknown kind, or holds what is not unpacked. The message is for people."""


class Entry(NamedTuple):
    """One entry. `target` is where a link leads; `open` gives the bytes of a file."""

    name: str
    kind: str
    mode: int
    size: int
    target: str
    open: Callable[[], Any]


@contextlib.contextmanager
def in_words() -> Iterator[None]:
    """Turn what the libraries raise for a damaged or strange archive into BadArchive."""
    try:
        yield
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        RecursionError,
    ) as error:
        raise BadArchive("it is damaged: %s" % (error or repr(error))) from None
    except (NotImplementedError, RuntimeError, ValueError, OverflowError, LookupError) as error:
        raise BadArchive("it cannot be read: %s" % (error or repr(error))) from None
    except MemoryError:
        raise BadArchive("it needs too much memory") from None


def entries(file: BinaryIO) -> Iterator[Entry]:
    """The entries of an archive. Each file must be read before the next entry is asked for.

    Call it, and read the files, inside `in_words`.
    """
    file.seek(0)
    magic = file.read(512)
    file.seek(0)
    if magic[:4] in (b"PK\3\4", b"PK\5\6"):
        return _of_zip(file)
    return _of_tar(_Unpacked(file, _unpacker_for(magic)))


def _unpacker_for(magic: bytes) -> Callable[[], Any] | None:
    """What makes an unpacker for a file that begins so; None for a plain tar file."""
    if magic[:2] == b"\x1f\x8b":
        return lambda: zlib.decompressobj(31)
    if magic[:3] == b"BZh":
        return bz2.BZ2Decompressor
    if magic[:6] == b"\xfd7zXZ\0":
        return lambda: lzma.LZMADecompressor(memlimit=XZ_MEMORY)
    if magic[257:262] == b"ustar":
        return None
    raise BadArchive("it is neither a tar file (plain, gzip, bzip2, xz) nor a zip file")


class _Unpacked:
    """The unpacked bytes of a compressed file, forward only, with as little of them in memory as is asked for."""

    def __init__(self, file: BinaryIO, new: Callable[[], Any] | None) -> None:
        self._file, self._new = file, new
        self._unpacker = new() if new else None
        self._at = 0
        self._packed = b""
        self._over = False
        self._headers_left: int | None = None

    @contextlib.contextmanager
    def headers(self) -> Iterator[None]:
        """What is read inside belongs to the headers of one entry. Skipping what is before them is free."""
        self._headers_left = MAX_ENTRY_HEADER
        yield
        self._headers_left = None

    def tell(self) -> int:
        return self._at

    def seek(self, to: int) -> None:
        """Skip to a later position. tarfile asks for nothing else of a file that is read entry by entry."""
        if to < self._at:
            raise BadArchive("it is damaged: an entry begins before the end of the one before")
        while self._at < to:
            if not self._take(min(BLOCK, to - self._at)):
                return

    def read(self, size: int) -> bytes:
        if size < 0 or size > MAX_ENTRY_HEADER:
            raise BadArchive("it has a header of %d bytes" % size)
        data = self._take(size)
        if self._headers_left is not None:
            self._headers_left -= len(data)
            if self._headers_left < 0:
                raise BadArchive("the headers of one entry have more than %d bytes" % MAX_ENTRY_HEADER)
        return data

    def _take(self, size: int) -> bytes:
        parts = []
        left = size
        while left > 0:
            part = self._more(left)
            if not part:
                break
            parts.append(part)
            left -= len(part)
        data = b"".join(parts)
        self._at += len(data)
        return data

    def _more(self, size: int) -> bytes:
        if self._unpacker is None:
            return self._file.read(size)
        while not self._over:
            if self._unpacker.eof:
                self._next_stream()
                continue
            # bz2 and lzma keep what they have not used themselves, and say so; zlib gives it back.
            hungry = getattr(self._unpacker, "needs_input", True)
            if hungry and not self._packed:
                self._packed = self._file.read(BLOCK)
            before = self._packed
            try:
                part = self._unpacker.decompress(before, size)
            except OSError as error:  # bz2 says so of damaged bytes
                raise BadArchive("it is damaged: %s" % error) from None
            self._packed = getattr(self._unpacker, "unconsumed_tail", b"")
            if part:
                return bytes(part)
            if hungry and not before and not self._unpacker.eof:
                raise EOFError("it ends too early")
        return b""

    def _next_stream(self) -> None:
        """Go on behind the end of a stream: another one may follow, or zeros, or nothing."""
        assert self._unpacker is not None and self._new is not None
        rest = (self._unpacker.unused_data or self._packed or self._file.read(BLOCK)).lstrip(b"\0")
        if not rest:
            self._over = True
            return
        self._packed, self._unpacker = rest, self._new()


def _of_tar(source: _Unpacked) -> Iterator[Entry]:
    with source.headers():
        archive = tarfile.TarFile(fileobj=source, mode="r")  # type: ignore[arg-type]
    while True:
        with source.headers():
            found = archive.next()
        if found is None:
            return
        # tarfile keeps every entry, and every global header: an archive has as many as it likes.
        archive.members = []  # type: ignore[attr-defined]
        archive.pax_headers = {}
        yield Entry(
            found.name, _kind_of_tar(found), found.mode, found.size, found.linkname, _opener(archive, found)
        )


def _opener(archive: tarfile.TarFile, found: tarfile.TarInfo) -> Callable[[], Any]:
    return lambda: archive.extractfile(found)


def _kind_of_tar(found: tarfile.TarInfo) -> str:
    if found.isdir():
        return DIRECTORY
    if found.issym():
        return LINK
    if found.islnk():
        return HARD_LINK
    return FILE if found.isreg() else OTHER


def _of_zip(file: BinaryIO) -> Iterator[Entry]:
    _check_directory(file)
    with zipfile.ZipFile(file) as archive:
        for found in archive.infolist():
            if found.flag_bits & 1:
                raise BadArchive("it is encrypted")
            mode = found.external_attr >> 16
            name, target = found.orig_filename, ""
            kind = DIRECTORY if found.is_dir() else FILE
            if stat.S_ISLNK(mode):
                with archive.open(found) as link:
                    kind, target = LINK, link.read(4097).decode("utf-8")
            elif stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                kind = OTHER
            yield Entry(name, kind, mode, found.file_size, target, _zip_opener(archive, found))


def _zip_opener(archive: zipfile.ZipFile, found: zipfile.ZipInfo) -> Callable[[], Any]:
    return lambda: archive.open(found)


def _check_directory(file: BinaryIO) -> None:
    """Refuse a zip file whose list of names is too large to be read at once."""
    end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    if not end:
        raise BadArchive("it is damaged: the list of its files is missing")
    if end[5] > MAX_DIRECTORY_BYTES:
        raise BadArchive("the names of its files have %d bytes" % end[5])
    file.seek(0)
