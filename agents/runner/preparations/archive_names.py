"""The names that an archive gives to its image are taken back: a name of another image is that one's again, and a name
that was nobody's is nobody's. The image has one of ours.

What all names were is noted before an archive is loaded, so that a preparation which is killed loses none: the next one
of the same archive reads the note. It believes it only of names that mean the archive's image now. What somebody has
named since stays.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Tuple

from agents.runner.files import fsync_directory, read_json, unlink, write_file
from agents.runner.home import Home
from agents.runner.preparations.programs_output import run_quietly
from agents.runner.preparations.report import HOST, Failed
from agents.runner.runtimes.engine_commands import list_images, remove_image, tag_image
from agents.runner.runtimes.loaded_images import place_of_notes


class ArchiveNames:
    """The names of one archive in one engine. The caller holds the lock of loading."""

    def __init__(self, program: str, env: Dict[str, str], home: Home, archive: str) -> None:
        self.program, self.env = program, env
        self.path = os.path.join(place_of_notes(home), "%s-%s.names" % (os.path.basename(program), archive))
        self.now: Dict[str, str] = {}

    def are_taken(self) -> bool:
        """Whether a preparation has ended before it gave the names back."""
        return os.path.exists(self.path)

    def note_before(self) -> None:
        """To be called before the archive is loaded."""
        self.now = self.names_here()
        if not self.are_taken():
            self._write({"before": self.now})

    def note_loaded(self, image: str, names: List[str]) -> None:
        """The archive is loaded: the ID of its image, and the names that it has taken."""
        noted = self._read()[0]
        before = {name: noted.get(name, "") if of == image else of for name, of in self.now.items()}
        self._write({"before": before, "image": image, "names": names})

    def give_back(self) -> None:
        """The note stays where the engine fails: the next preparation tries again."""
        before, image, names = self._read()
        now = self.names_here()
        taken = [name for name in names if now.get(name) == image]
        statuses = [self._name(name, before.get(name, "")) for name in taken]
        if not any(statuses):
            unlink(self.path)

    def _name(self, name: str, image: str) -> int:
        command = tag_image(self.program, image, name) if image else remove_image(self.program, name)
        return run_quietly(command, self.env)[0]

    def names_here(self) -> Dict[str, str]:
        """All names of images, each with its ID."""
        status, output, errors = run_quietly(list_images(self.program), self.env)
        if status:
            # Not as if nothing had a name: then names would be taken from the images of users.
            raise Failed(HOST, "the images of this host cannot be listed: %s" % errors.strip()[-600:])
        found = (line.partition(" ") for line in output.splitlines())
        return {name: image.strip().rpartition(":")[2] for name, _, image in found}

    def _read(self) -> Tuple[Dict[str, str], str, List[str]]:
        """What is noted: what the names were, the archive's image, the names that it has taken."""
        note = read_json(self.path) or {}
        before, names = note.get("before"), note.get("names")
        return (
            before if isinstance(before, dict) else {},
            str(note.get("image", "")),
            names if isinstance(names, list) else [],
        )

    def _write(self, note: Dict[str, Any]) -> None:
        place = os.path.dirname(self.path)
        os.makedirs(place, 0o700, exist_ok=True)
        write_file(self.path, json.dumps(note).encode(), durable=True)
        fsync_directory(place)
