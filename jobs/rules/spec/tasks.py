"""What the replicas of a pool run, as frozen values: a container, or a Python package; and the code that is brought."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from jobs.rules.spec.secret_variables import SecretVariable

HOST_IMAGE = "host"
# Before the path of a Python of the host. Only an alias of an image says this, because only an admin knows such paths.
HOST_WITH = "host:"
# The names of the runtimes that a pool may pin (agents/runner/runtimes/).
REDUCTION_SERVER = "reduction-server"
RUNTIMES = ("process", "python", "podman", "docker", "apptainer", REDUCTION_SERVER)
# In which numbers gradients travel to reducers: as they are, or float32 as bfloat16.
WIRES = ("", "bf16")
# Linux takes no single argument or NAME=value over 128 KiB (MAX_ARG_STRLEN); execve would fail on the host.
MAX_STRING_BYTES = 128 * 1024 - 1
# All strings of one replica together: they travel in one order, and execve allows a quarter of the stack limit.
MAX_STRINGS_BYTES = 512 * 1024
# An absolute path without `..`, hidden directories, and letters that a shell or an engine acts on.
_SIF = re.compile(r"(?:/[A-Za-z0-9_+=@~-][A-Za-z0-9._+=@~-]*)+", re.ASCII)
# An object of a bucket, by an ending that says what it is: what `docker save` and `podman save` write, or a SIF file.
_STORED = re.compile(
    r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]/[^/].{0,1000}\.(?:tar|tar\.gz|tgz|sif)", re.ASCII
)
_OF_APPTAINER = ".sif"
# An absolute path of a program: no `..`, and nothing that would be two entries of a PATH.
_PROGRAM = re.compile(r"(?:/(?!\.\.?(?:/|$))[A-Za-z0-9._+=@~-]+)+", re.ASCII)
# A file for jobs, by the SHA-256 of its bytes.
_ARTIFACT = re.compile(r"artifact:([0-9a-f]{64})", re.ASCII)


def interpreter_of(image: str) -> str:
    """The path of the Python that "host:PATH" names; empty for other images."""
    path = image.removeprefix(HOST_WITH)
    return path if path != image and len(path) <= 1000 and _PROGRAM.fullmatch(path) else ""


def is_sif(image: str) -> bool:
    """Whether this is the path of a SIF file, which Apptainer alone runs (agents/runner/preparations/sif.py)."""
    return len(image) <= 1000 and image.endswith(_OF_APPTAINER) and bool(_SIF.fullmatch(image))


def is_stored(image: str) -> bool:
    """Whether this is an archive of an image in the storage, or a SIF file there: the console ships it to hosts."""
    return bool(_STORED.fullmatch(image) or artifact_of(image))


def artifact_of(address: str) -> str:
    """The SHA-256 of the artifact that `artifact:SHA256` names; empty for other addresses."""
    found = _ARTIFACT.fullmatch(address)
    return found[1] if found else ""


def needs_apptainer(image: str) -> bool:
    """Whether this is a SIF file, wherever it lies."""
    return is_sif(image) or (is_stored(image) and image.endswith(_OF_APPTAINER))


class _Program:
    """What both kinds of tasks have: one argument vector, and variables."""

    __slots__ = ()
    env: tuple[tuple[str, str], ...]

    @property
    def argv(self) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def strings_bytes(self) -> int:
        pairs = [f"{name}={value}" for name, value in self.env]
        return sum(len(text.encode()) for text in (*self.argv, *pairs))


@dataclass(frozen=True, slots=True)
class Container(_Program):
    """`command` and `args` make one argument vector: of a program of the host, if `image` is "host". Else they replace
    the image's ENTRYPOINT and CMD, as in a Kubernetes container. `env` has no secret variables. `interpreter`: a Python
    of the host that is found first, where an alias names one."""

    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    secrets: tuple[SecretVariable, ...] = ()
    interpreter: str = ""

    # Its field in a pool, the field of it that names its image, and the one that is named where all its strings are
    # too long together.
    field: ClassVar[str] = "container_spec"
    image_field: ClassVar[str] = "image_uri"
    strings_field: ClassVar[str] = "command"

    @property
    def argv(self) -> tuple[str, ...]:
        return self.command + self.args


@dataclass(frozen=True, slots=True)
class PythonPackage(_Program):
    """Python packages that are installed, and one of their modules that is run. `executor_image`: what Vertex runs it
    in, or "host" for the Python of the host: the one that is `interpreter`, where an alias names one."""

    executor_image: str
    package_uris: tuple[str, ...]
    module: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    secrets: tuple[SecretVariable, ...] = ()
    interpreter: str = ""

    field: ClassVar[str] = "python_package_spec"
    image_field: ClassVar[str] = "executor_image_uri"
    strings_field: ClassVar[str] = "args"

    @property
    def image(self) -> str:
        return self.executor_image

    @property
    def command(self) -> tuple[str, ...]:
        return ("python3", "-m", self.module)

    @property
    def argv(self) -> tuple[str, ...]:
        return self.command + self.args


Task = Container | PythonPackage


@dataclass(frozen=True, slots=True)
class Git:
    """A revision of a repository. `credential_secret` names a stored secret that opens it."""

    url: str
    revision: str
    credential_secret: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """Files that are put into `directory` of the work directory before a run starts. One of the three sources is
    given: an artifact by its SHA-256, an archive in the storage, or a git revision."""

    artifact: str = ""
    archive_uri: str = ""
    git: Git | None = None
    directory: str = ""


def given(**fields: object) -> dict[str, object]:
    """A message without the fields that hold their default, as proto3 JSON is written."""
    return {name: value for name, value in fields.items() if value}


def task_document(task: Task) -> dict[str, object]:
    """The field of a pool that says what its replicas run."""
    if isinstance(task, PythonPackage):
        return given(
            pythonPackageSpec=given(
                executorImageUri=task.executor_image,
                packageUris=list(task.package_uris),
                pythonModule=task.module,
                args=list(task.args),
                env=_env_document(task),
            )
        )
    return given(
        containerSpec=given(
            imageUri=task.image,
            command=list(task.command),
            args=list(task.args),
            env=_env_document(task),
        )
    )


def code_document(code: Code | None) -> dict[str, object]:
    if code is None:
        return {}
    git = code.git and given(
        url=code.git.url, revision=code.git.revision, credentialSecret=code.git.credential_secret
    )
    return given(artifact=code.artifact, archiveUri=code.archive_uri, git=git, directory=code.directory)


def _env_document(task: Task) -> list[object]:
    """The variables, the secret ones last."""
    plain = [{"name": name, "value": value} for name, value in task.env]
    return [*plain, *[variable.document() for variable in task.secrets]]
