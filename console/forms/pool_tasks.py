"""What a pool runs: from the fields of the form to its part of the CustomJob document, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.forms.command_line import question, read_arguments, unclosed_quote, write_arguments
from console.forms.env_rows import row_of
from jobs.rules.spec import parse, reduction
from jobs.rules.spec.runtime_choice import ENGINES, PROCESS, PYTHON
from jobs.rules.spec.tasks import HOST_IMAGE, REDUCTION_SERVER

COMMAND, IMAGE, PACKAGE = "argv", "image", "package"
KINDS = (
    ("bash", gettext_lazy("Bash script")),
    ("python3", gettext_lazy("Python script")),
    (COMMAND, gettext_lazy("Command")),
    (IMAGE, gettext_lazy("Container image")),
    (PACKAGE, gettext_lazy("Python package")),
)
# The fields of a pool that hold a task, in the document and in the form.
CONTAINER_SPEC, PACKAGE_SPEC = "containerSpec", "pythonPackageSpec"
TASKS = (CONTAINER_SPEC, PACKAGE_SPEC)
# What of `trainyard` is made of the fields of the form, or of those of the job's code.
_SHOWN = ("runtime", "code", "wire", "shmMb")
# Other runtimes follow from the task: the form carries them along.
_CARRIED = {IMAGE: "", PACKAGE: PYTHON}


def task_of(typed: Mapping[str, Any]) -> dict[str, Any]:
    """The task of a pool, as fields of the pool: what runs, the runtime if one is pinned, and how reducers send."""
    kind, env = typed["kind"], [row.document() for row in typed["env"]]
    extensions = _extensions(typed)
    pinned = {"trainyard": extensions} if extensions else {}
    if kind == PACKAGE:
        package = {
            "executorImageUri": typed["executor"].strip() or HOST_IMAGE,
            "packageUris": [line.strip() for line in typed["packages"].split("\n") if line.strip()],
            "pythonModule": typed["module"],
            "args": read_arguments(typed["args"]),
        }
        return {PACKAGE_SPEC: {**package, "env": env}, **pinned}
    if kind == IMAGE:
        container = {
            "imageUri": typed["image"],
            "command": read_arguments(typed["command"]),
            "args": read_arguments(typed["args"]),
        }
        return {CONTAINER_SPEC: {**container, "env": env}, **pinned}
    program = typed["program"]
    command = read_arguments(program) if kind == COMMAND else _script(kind, program)
    return {CONTAINER_SPEC: {"imageUri": HOST_IMAGE, "command": command, "env": env}, **pinned}


def are_reducers(pool: Mapping[str, Any]) -> bool:
    """Whether a pool of a document asks for Reduction Server, which runs no code of the job."""
    container = pool.get(CONTAINER_SPEC) or {}
    return _runtime(pool) == REDUCTION_SERVER or reduction.is_image(container.get("imageUri", ""))


def same_task(pool: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two pools run the same by the same runtime."""
    return all(pool.get(name) == other.get(name) for name in TASKS) and all(
        _ours(pool).get(name) == _ours(other).get(name) for name in ("runtime", "shmMb")
    )


def initial(pool: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the fields, from one pool of a document in its canonical form."""
    package, container = pool.get(PACKAGE_SPEC), pool.get(CONTAINER_SPEC, {})
    task = container if package is None else package
    found: dict[str, Any] = {"env": tuple(row_of(item) for item in task.get("env", []))}
    command, args = list(task.get("command", [])), list(task.get("args", []))
    if package is not None:
        return found | {
            "kind": PACKAGE,
            "executor": package.get("executorImageUri", HOST_IMAGE),
            "packages": "\n".join(package.get("packageUris", [])),
            "module": package.get("pythonModule", ""),
            "args": write_arguments(args),
            **_engine(pool),
        }
    image, runtime = container.get("imageUri", HOST_IMAGE), _runtime(pool)
    if runtime == REDUCTION_SERVER and image == HOST_IMAGE:
        image = reduction.IMAGES[0]  # which means the same, and has a field
    if image != HOST_IMAGE:
        return found | {
            "kind": IMAGE,
            "image": image,
            "command": write_arguments(command),
            "args": write_arguments(args),
            **_engine(pool),
            "wire": _ours(pool).get("wire", ""),
        }
    argv = [*command, *args]
    kind = argv[0] if len(argv) == 3 and argv[1] == "-c" and argv[0] in ("bash", "python3") else COMMAND
    return found | {"kind": kind, "program": write_arguments(argv) if kind == COMMAND else argv[2]}


def argument_problem(text: str) -> str:
    """Why a command or arguments for an image or a module cannot be read as one thing; empty if they can."""
    if unclosed_quote(text):
        return unclosed()
    part = question(text)
    if not part:
        return ""
    return _(
        "“{part}” could be meant for a shell, and none is asked here. Write one argument a line, each in double "
        "quotes; for a shell the first two lines are bash and -c."
    ).format(part=part[:60])


def unclosed() -> str:
    return _("A quote is not closed, or the line ends with a backslash.")


def _runtime(pool: Mapping[str, Any]) -> str:
    return str(_ours(pool).get("runtime") or "")


def _ours(pool: Mapping[str, Any]) -> Mapping[str, Any]:
    ours = pool.get("trainyard")
    return ours if isinstance(ours, Mapping) else {}


def _engine(pool: Mapping[str, Any]) -> dict[str, Any]:
    """What the form shows of how a container is run."""
    runtime = _runtime(pool)
    return {"runtime": runtime if runtime in ENGINES else "", "shm_mb": _ours(pool).get("shmMb")}


def _extensions(typed: Mapping[str, Any]) -> dict[str, Any]:
    """The `trainyard` of the pool, without its code. What the form does not show is as the document had it, if it is
    still one for this kind of task."""
    kind, carried = typed["kind"], _ours(typed["base"])
    found = {name: value for name, value in carried.items() if name not in _SHOWN}
    runtime = (typed["runtime"] if kind in (IMAGE, PACKAGE) else "") or _carried_runtime(typed)
    if kind in (IMAGE, PACKAGE) and typed["shm_mb"]:
        found["shmMb"] = typed["shm_mb"]
    if kind == IMAGE and typed["wire"]:
        found["wire"] = typed["wire"]  # beside another image the parser refuses it
    if kind == IMAGE and reduction.is_image(typed["image"]):
        runtime = runtime or (REDUCTION_SERVER if _runtime(typed["base"]) == REDUCTION_SERVER else "")
    return found | ({"runtime": runtime} if runtime else {})


def _carried_runtime(typed: Mapping[str, Any]) -> str:
    """The runtime that the document named, if it is still one for this kind of task."""
    carried, kind = _runtime(typed["base"]), typed["kind"]
    if kind == PACKAGE and typed["executor"].strip() not in ("", HOST_IMAGE):
        return ""
    return carried if carried == _CARRIED.get(kind, PROCESS) else ""


def _script(kind: str, program: str) -> list[str]:
    return list(parse.script_command(program, kind)) if program.strip() else []
