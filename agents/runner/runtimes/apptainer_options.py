"""What Apptainer is asked for: an unpacked image of the cache, read and not written, with the directories of the run.

It takes variables and paths in ways of its own. No value of a variable is on a command line.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from typing import Any, Dict, List, Mapping, Tuple

from agents.runner.files import read_json, write_file
from agents.runner.metrics.places import metrics_directory, module_for_containers
from agents.runner.reduction.files_on_hosts import directory_of
from agents.runner.runs.orders import Order, Refused, container_env, login_env
from agents.runner.runtimes.containers import mounts, name_of
from agents.runner.runtimes.engine_commands import APPTAINER, find_engine
from agents.runner.runtimes.shell_tools import tools_volume

# Beside an unpacked image: what it is, and what its makers have said of it.
DESCRIPTION = "image.json"
# In the directory of a run: a script that the engine reads in the container, right before it executes the program. It
# grows then. No process tells afterwards: one that ends at once is never seen.
BEGUN = "container.begun"
_BEGUN_INSIDE = "/.singularity.d/env/99-trainyard.sh"
SCRIPT = b"echo >> %s 2> /dev/null\n" % _BEGUN_INSIDE.encode()
# In front of it, where scripts of the image set this variable: nobody knows their value before.
_PREPEND = b"export PYTHONPATH=%s${PYTHONPATH:+:$PYTHONPATH}\n"
_APPEND = b"export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}%s\n"
# What an image has that names none.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Variables by which the client, or its dynamic linker, would do something else.
_FOR_THE_CLIENT = re.compile(
    r"PATH|USER_PATH|LD_\w+|APPTAINER\w*|SINGULARITY\w*|GO\w+|XDG_\w+|DBUS_\w+", re.ASCII
)
# Others cannot be set before the scripts of an image: a shell reads them. Two the engine would take for its own, and
# put them around the image's PATH.
_ANY_NAME = re.compile(r"(?!(?:PRE|AP)PEND_PATH$)[A-Za-z_]\w*", re.ASCII)


def describe(order: Order, run: str, directory: str, facts: Mapping[str, Any]) -> Dict[str, str]:
    """As for other engines. `root`, the unpacked image, is added by whoever holds it."""
    program = find_engine(APPTAINER)
    if program is None:
        raise Refused("runtime", "apptainer is not installed on this host")
    image = str((order.runtime or {})["image"])
    name = name_of(run, facts["mark"])
    return {"kind": APPTAINER, "program": program, "name": name, "image": image, "place": directory}


def command_of(
    order: Order, directory: str, work: str, facts: Mapping[str, Any]
) -> Tuple[List[str], Dict[str, str]]:
    """(argument vector, environment) of the client."""
    known, runtime = facts["runtime"], order.runtime or {}
    image = read_json(os.path.join(os.path.dirname(known["root"]), DESCRIPTION)) or {}
    env = container_env(order, directory, work, facts, sees_all_gpus=True)
    of_image, own_variables, script = image_env(image), bool(image.get("own_variables")), SCRIPT
    module = module_for_containers(directory)
    reduction = directory_of(os.path.dirname(os.path.dirname(directory))) if order.reduction else ""
    own = [(place, place, "ro") for place in (reduction, module) if place]
    if own and own_variables and "PYTHONPATH" not in order.env:
        env.pop("PYTHONPATH", None)
        script = (_PREPEND % _word(reduction) if reduction else b"") + SCRIPT
        script = (_APPEND % _word(module) if module else b"") + script
    elif own:
        path = "" if "PYTHONPATH" in order.env else of_image.get("PYTHONPATH", "")
        env["PYTHONPATH"] = ":".join(filter(None, (env.get("PYTHONPATH"), path, module)))
    volumes = [*tmp_volumes(facts["tmp"]), (work, work, "rw")]
    volumes += [(metrics_directory(directory),) * 2 + ("rw",), *own]
    volumes += [*tools_volume(order, directory), *mounts(runtime)]
    write_file(os.path.join(directory, BEGUN), script)
    volumes += [(os.path.join(directory, BEGUN), _BEGUN_INSIDE, "rw")]
    place = work if runtime.get("workdir") else str(image.get("workdir") or "/")
    words = run_words(known, place, volumes, bool(order.gpus))
    program = words_of_program(image, runtime.get("entrypoint") or [], runtime.get("args") or [])
    if not program:
        raise Refused("exec_failed", "the image %s names no program, and the job neither" % known["image"])
    return [*words, *program], client_env({**of_image, **env}, work, own_variables)


def _word(path: str) -> bytes:
    return shlex.quote(path).encode()


def has_begun(directory: str) -> bool:
    """Whether the container of this run was made: all but its program was executed, and maybe that too."""
    with contextlib.suppress(OSError), open(os.path.join(directory, BEGUN), "rb") as file:
        return bool(file.read().partition(SCRIPT)[2])
    return False


def client_env(env: Mapping[str, str], work: str, own_variables: bool = False) -> Dict[str, str]:
    """The environment of the client by which the container gets `env`. All that is in it reaches the container.

    `own_variables`: the image sets variables by scripts, which would win over those that are just there.
    """
    home = env.get("HOME", work)
    if ":" in home:  # it would be read as two: that of the host, and where it is in the container
        raise Refused("bad_order", "HOME has a colon, which Apptainer cannot set: %.200s" % home)
    found = {"PATH": login_env()["PATH"], "APPTAINER_HOME": home}
    found.update({} if own_variables else {"APPTAINERENV_PATH": PATH})
    first = _ANY_NAME if own_variables else _FOR_THE_CLIENT
    for name, value in env.items():
        if name != "HOME":
            found["APPTAINERENV_" + name if first.fullmatch(name) else name] = value
    return found


def image_env(image: Mapping[str, Any]) -> Dict[str, str]:
    """The variables of the image, as it was described when it was unpacked."""
    pairs = [str(each).partition("=")[::2] for each in image.get("env") or []]
    return {name: value for name, value in pairs if name}


def words_of_program(image: Mapping[str, Any], entrypoint: List[str], args: List[str]) -> List[str]:
    """`entrypoint` replaces the image's ENTRYPOINT, and its CMD with it; `args` replace its CMD."""
    if entrypoint:
        return [*entrypoint, *args]
    own = [str(word) for word in image.get("entrypoint") or []]
    return [*own, *(args or [str(word) for word in image.get("cmd") or []])]


def run_words(
    known: Mapping[str, Any],
    directory: str,
    volumes: List[Tuple[str, str, str]],
    has_gpus: bool,
) -> List[str]:
    """A namespace of users of its own also where the engine could do without, so that shells may join the container.
    The home and /tmp of the host are not in it; what is written elsewhere than into the volumes is kept in memory."""
    words = [known["program"], "--silent", "exec", "--userns", "--no-eval", "--writable-tmpfs"]
    words += ["--no-mount", "home,tmp,cwd", "--pwd", directory]
    if has_gpus:
        words += ["--nv"]
    for source, target, mode in volumes:
        parts = ["type=bind", "source=" + source, "destination=" + target, *(["ro"] if mode == "ro" else [])]
        words += ["--mount", ",".join(map(_field, parts))]
    return [*words, known["root"]]


def tmp_volumes(tmp: str) -> List[Tuple[str, str, str]]:
    """Its TMPDIR under the name that it has on the host, and where programs look that ask for no variable."""
    return [(tmp, target, "rw") for target in ("/tmp", "/var/tmp", tmp)] if tmp else []  # noqa: S108


def _field(text: str) -> str:
    """A field of a line of comma-separated values."""
    return '"%s"' % text.replace('"', '""')
