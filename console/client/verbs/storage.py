"""`cp`, `ls` and `rm`: files of this machine, and objects of the project's storage (gs://BUCKET/NAME)."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import transfers
from ..connection import quoted
from ..errors import NOT_UNDERSTOOD, REFUSED, ClientError
from ..folders import Folder, read_folder
from ..progress import Progress
from ..session import Session
from ..tables import print_json, print_table
from ..text import harmless, size
from ..times import local
from ..transfers import Place, place

Document = Mapping[str, Any]
# So many names of what is left out are shown.
SHOWN = 8


def cp_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources", nargs="+", metavar="SOURCE", help="files, folders (-r), or gs://BUCKET/NAME"
    )
    parser.add_argument(
        "target", metavar="TARGET", help="a file, a folder, or gs://BUCKET/NAME; NAME/: into it"
    )
    parser.add_argument("-r", "--recursive", action="store_true", help="folders with all that is in them")
    parser.add_argument(
        "-L", "--follow", action="store_true", help="copy what links lead to (else they are left out)"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="say only what is left out")


def cp(session: Session) -> int:
    args = session.args
    is_out = [transfers.is_remote(source) for source in args.sources]
    if any(is_out) != all(is_out):
        raise ClientError(
            "Sources are here or in the storage, not both.", "Copy them in two calls.", NOT_UNDERSTOOD
        )
    if not transfers.is_remote(args.target) and not any(is_out):
        raise ClientError(
            "Nothing of this is in the storage.", "Give gs://BUCKET/NAME as one end.", NOT_UNDERSTOOD
        )
    if not any(is_out):
        return _up(session, place(args.target))
    if transfers.is_remote(args.target):
        return _across(session, place(args.target))
    return _down(session, Path(args.target))


def _up(session: Session, target: Place) -> int:
    args = session.args
    into = target.name == "" or target.name.endswith("/") or len(args.sources) > 1
    pairs: list[tuple[Path, Place]] = []
    folders: list[Folder] = []
    for source in map(Path, args.sources):
        if source.is_dir():
            _must_be_recursive(session, str(source))
            # As cp does: into a folder that is there it goes with its name, else it becomes that folder.
            head = target.name.rstrip("/") + "/" if target.name else ""
            head += f"{source.resolve().name}/" if into else ""
            folders.append(read_folder(source, args.follow))
            pairs += [(path, Place(target.bucket, head + name)) for path, name in folders[-1].files]
        elif source.exists():
            name = target.name.rstrip("/") + "/" * bool(target.name) + source.name if into else target.name
            pairs.append((source, Place(target.bucket, name)))
        else:
            raise ClientError(f"There is no file {source}.", "", NOT_UNDERSTOOD)
    whole = sum(path.stat().st_size for path, _ in pairs)
    with Progress(_what(pairs), whole) as progress:
        for path, to in pairs:
            transfers.send(session, path, to, progress)
    _tell_left_out(folders, args.follow)
    return _told(session, len(pairs), whole, target.uri)


def _tell_left_out(folders: Sequence[Folder], follow: bool) -> None:
    """On stderr, also where nothing else is said: who copies a folder believes that all of it is there."""
    links = [name for folder in folders for name in folder.links]
    others = [name for folder in folders for name in folder.others]
    no_file = "what is no file, cannot be read" + (", or leads in a circle" if follow else "")
    for words, names in (("links (--follow copies what they lead to)", links), (no_file, others)):
        if names:
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            shown = ", ".join(harmless(name) for name in names[:SHOWN])
            print(f"trainyard: left out, {words}: {shown}{more}", file=sys.stderr)


def _down(session: Session, target: Path) -> int:
    args = session.args
    into = target.is_dir() or args.target.endswith(("/", os.sep)) or len(args.sources) > 1
    wanted: list[tuple[Document, Place, Path]] = []
    for source in map(place, args.sources):
        found = transfers.described(session, source)
        if found is not None:
            name = source.name.rpartition("/")[2]
            wanted.append((found, source, target / name if into else target))
            continue
        _must_be_recursive(session, source.uri)
        prefix = source.name.rstrip("/") + "/" if source.name else ""
        base = target / (prefix.rstrip("/").rpartition("/")[2] or source.bucket) if into else target
        rows: list[Document] = list(transfers.listed(session, Place(source.bucket, prefix)))
        if not rows:
            raise ClientError(
                f"There is nothing at {source.uri}.", f"trainyard ls gs://{source.bucket}/ shows it."
            )
        for row in rows:
            if not row["name"].endswith("/"):
                wanted.append(
                    (row, Place(source.bucket, row["name"]), _inside(base, row["name"][len(prefix) :]))
                )
    whole = sum(int(row["sizeBytes"]) for row, _, _ in wanted)
    with Progress(_what(wanted), whole) as progress:
        for row, source, path in wanted:
            transfers.fetch(session, dict(row), source, path, progress)
    return _told(session, len(wanted), whole, str(target))


def _inside(base: Path, name: str) -> Path:
    """The file for an object. A name that would lead out of the folder is refused: names are those of other people."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part or os.sep in part for part in parts):
        raise ClientError(f"{harmless(name)!r} is no name of a file.", "Copy it alone, under another name.")
    return base.joinpath(*parts)


def _across(session: Session, target: Place) -> int:
    args = session.args
    into = target.name == "" or target.name.endswith("/") or len(args.sources) > 1
    pairs: list[tuple[Place, Place]] = []
    for source in map(place, args.sources):
        head = target.name.rstrip("/") + "/" * bool(target.name)
        if transfers.described(session, source) is not None:
            name = head + source.name.rpartition("/")[2] if into else target.name
            pairs.append((source, Place(target.bucket, name)))
            continue
        _must_be_recursive(session, source.uri)
        prefix = source.name.rstrip("/") + "/" if source.name else ""
        head += f"{prefix.rstrip('/').rpartition('/')[2] or source.bucket}/" if into else ""
        for below in transfers.listed(session, Place(source.bucket, prefix)):
            name = head + below["name"][len(prefix) :]
            pairs.append((Place(source.bucket, below["name"]), Place(target.bucket, name)))
    for one, other in pairs:
        transfers.copy(session, one, other)
    return _told(session, len(pairs), 0, target.uri)


def _must_be_recursive(session: Session, what: str) -> None:
    if not session.args.recursive:
        raise ClientError(
            f"{what} is a folder, or is not there.", "Give -r to copy a folder.", NOT_UNDERSTOOD
        )


def _what(found: Sequence[object]) -> str:
    return "Copying" if len(found) == 1 else f"Copying {len(found)} files"


def _told(session: Session, count: int, whole: int, to: str) -> int:
    if not session.args.quiet:
        sizes = f", {size(whole)}" if whole else ""
        print(f"Copied {count} {'file' if count == 1 else 'files'}{sizes} to {harmless(to)}")
    return 0


def ls_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("place", nargs="?", default="", help="gs://BUCKET/BEGIN; without one, the buckets")
    parser.add_argument("-r", "--recursive", action="store_true", help="all names that begin so")
    parser.add_argument("-l", "--long", action="store_true", help="with sizes and times")
    parser.add_argument("--json", action="store_true", help="for programs")


def ls(session: Session) -> int:
    args = session.args
    if not args.place:
        rows = session.api.get(f"/api/v1/projects/{quoted(session.project)}/buckets")["buckets"]
        if args.json:
            print_json(rows)
        else:
            cells = [(row["uri"], local(row["createTime"]), row["createdBy"]) for row in rows]
            print_table(("bucket", "made", "by"), cells, "There is no bucket yet.")
        return 0
    to = place(args.place)
    if (
        not args.recursive
        and to.name
        and not to.name.endswith("/")
        and transfers.described(session, to) is None
    ):
        to = Place(to.bucket, to.name + "/")
    rows = list(transfers.listed(session, to, "" if args.recursive else "/"))
    if args.json:
        print_json(rows)
        return 0
    if args.long:
        print_table(("size", "changed", "name"), [_row(to, row) for row in rows], "There is nothing.")
        return 0
    for row in rows:
        print(_row(to, row)[2])
    return 0


def _row(to: Place, row: Document) -> tuple[str, str, str]:
    if "prefix" in row:
        return "", "", harmless(f"gs://{to.bucket}/{row['prefix']}")
    return size(int(row["sizeBytes"])), local(row["updateTime"]), harmless(str(row["uri"]))


def rm_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("places", nargs="+", metavar="gs://BUCKET/NAME", help="what is deleted")
    parser.add_argument("-r", "--recursive", action="store_true", help="all below a name that is a folder")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def rm(session: Session) -> int:
    args = session.args
    wanted: list[Place] = []
    for to in map(place, args.places):
        if transfers.described(session, to) is not None:
            wanted.append(to)
            continue
        if not args.recursive:
            raise ClientError(f"There is no object {to.uri}.", "Give -r to delete all below it.")
        below = Place(to.bucket, to.name.rstrip("/") + "/" if to.name else "")
        wanted += [Place(to.bucket, row["name"]) for row in transfers.listed(session, below)]
    if args.recursive and not args.yes and wanted and not _agreed(wanted):
        return REFUSED
    for to in wanted:
        session.api.request("DELETE", transfers.object_path(session, to))
    print(f"Deleted {len(wanted)} {'object' if len(wanted) == 1 else 'objects'}")
    return 0


def _agreed(wanted: Sequence[Place]) -> bool:
    if not sys.stdin.isatty():
        raise ClientError("Deleting cannot be undone.", "Give --yes if you mean it.", NOT_UNDERSTOOD)
    asked = f"Delete {len(wanted)} objects such as {harmless(wanted[0].uri)}? [y/N] "
    return input(asked).strip().lower() in ("y", "yes")


ARGUMENTS: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {
    "cp": cp_arguments,
    "ls": ls_arguments,
    "rm": rm_arguments,
}
