"""Parse what the replicas of a pool run: `container_spec` or `python_package_spec`, and Trainyard's own `trainyard`.

`trainyard` holds what Vertex has no field for: which runtime, and which code is put into the work directory.
"""

from __future__ import annotations

import re

from agents.infra.texts import said
from jobs.rules.metrics.log_lines import ASKED as LOG_METRICS
from jobs.rules.spec.json_fields import MessageReader, shown
from jobs.rules.spec.secret_variables import NAME_RULE, SECRET_NAME, AskedSecret, read_secret
from jobs.rules.spec.tasks import (
    HOST_IMAGE,
    MAX_STRING_BYTES,
    MAX_STRINGS_BYTES,
    REDUCTION_SERVER,
    RUNTIMES,
    WIRES,
    Code,
    Container,
    Git,
    PythonPackage,
    Task,
    artifact_of,
    is_sif,
    is_stored,
)

MAX_ENV = 100
MAX_PACKAGES = 100
MAX_ARGUMENTS = 10_000
MAX_SHM_MB = 1 << 24

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,255}", re.ASCII)
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?/)?"
    rf"{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?",
    re.ASCII,
)
_OBJECT = re.compile(r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]/[^/].{0,1023}", re.ASCII)
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
# What the hosts speak (agents/runner/cache/git_checkout.py): plain http would show the code and the credential on the
# way.
_GIT_URL = re.compile(
    r"https://[^@/\s]+/[^\s]+|ssh://(?:[\w.-]+@)?[\w.:\[\]-]+/[^\s]+|[\w][\w.-]*@[\w.-]+:[^\s:-][^\s]*",
    re.ASCII,
)
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+@-]{0,254}", re.ASCII)


def read_task(pool: MessageReader, number: int, asked_secrets: list[AskedSecret], runtime: str = "") -> Task:
    """The task of a pool. Its secret variables are added to `asked_secrets`."""
    container, package = pool.message("container_spec"), pool.message("python_package_spec")
    if not container.empty and not package.empty:
        pool.complain(
            "python_package_spec", said("is given beside container_spec: a pool has one of the two.")
        )
    if not package.empty:
        return _package(package, number, asked_secrets)
    if not container.empty:
        return _container(container, number, asked_secrets, runtime == REDUCTION_SERVER)
    if runtime == REDUCTION_SERVER:
        return Container(HOST_IMAGE)
    if not pool.complained("container_spec") and not pool.complained("python_package_spec"):
        pool.complain("container_spec", said('is required: image_uri "host" and a command.'))
    return Container(HOST_IMAGE)


def read_extensions(pool: MessageReader) -> tuple[str, Code | None, str, int]:
    """The runtime that the pool pins, or "", the code that it brings, the numbers that travel to reducers, and the size
    of the shared memory of its containers, or 0."""
    fields = pool.message("trainyard")
    runtime = fields.text("runtime", maximum=64)
    if runtime and runtime not in RUNTIMES:
        fields.complain(
            "runtime",
            said(
                "is not a known value: {value}. {known}",
                value=shown(runtime),
                known=said("Known are {names}.", names=", ".join(RUNTIMES)),
            ),
        )
    message = fields.message("code")
    code = None if message.empty else _code(message)
    wire = fields.text("wire", maximum=64)
    if wire not in WIRES:
        fields.complain(
            "wire",
            said(
                "is not a known value: {value}. {known}",
                value=shown(wire),
                known=said("Known are {names}.", names=", ".join(filter(None, WIRES))),
            ),
        )
    shm_mb = fields.whole("shm_mb", default=0, minimum=0, maximum=MAX_SHM_MB)
    fields.close()
    return runtime, code, wire, shm_mb


def is_image(text: str) -> bool:
    """Whether this can be a container image: a name, an archive in the storage, or the path of a SIF file."""
    return is_sif(text) or is_stored(text) or (len(text) <= 1024 and bool(_IMAGE.fullmatch(text)))


def _image(fields: MessageReader, name: str) -> str:
    image = fields.text(name)
    if image != HOST_IMAGE and not is_image(image) and not fields.complained(name):
        fields.complain(name, _image_rule(image))
    return image


def _image_rule(image: str) -> str:
    if image.startswith("gs://"):
        return said(
            "must be an archive of an image: an object whose name ends in .tar, .tar.gz or .tgz (docker save, podman "
            "save), or in .sif for Apptainer, such as gs://bucket/train.tar, not {value}.",
            value=shown(image),
        )
    return said(
        'must be "host" (the program of the host itself is run), the name of an image such as '
        "ghcr.io/lab/train:1.2, an archive in the storage such as gs://bucket/train.tar, or the path of a SIF file "
        "such as /shared/train.sif, not {value}.",
        value=shown(image),
    )


def _container(
    fields: MessageReader, number: int, asked_secrets: list[AskedSecret], is_reduction: bool
) -> Container:
    has_image = not is_reduction or fields.has("image_uri")
    image = _image(fields, "image_uri") if has_image else HOST_IMAGE
    command = fields.texts("command", maximum=MAX_ARGUMENTS)
    args = fields.texts("args", maximum=MAX_ARGUMENTS)
    if not fields.complained("command") and not fields.complained("args"):
        if image == HOST_IMAGE and not command and not args and not is_reduction:
            fields.complain("command", said('"host" has no entrypoint: say what is to be run.'))
        elif (image == HOST_IMAGE or command) and not ((command + args) or ("-",))[0]:
            fields.complain("command", said("its first string names the program and must not be empty."))
    env, secrets = _env(fields, number)
    asked_secrets += secrets
    container = Container(image, command, args, env, tuple(asked.variable for asked in secrets))
    _check_sizes(fields, container)
    fields.close()
    return container


def _package(fields: MessageReader, number: int, asked_secrets: list[AskedSecret]) -> PythonPackage:
    image = _image(fields, "executor_image_uri")
    packages = fields.texts("package_uris", maximum=MAX_PACKAGES, printable=True)
    if not packages and not fields.complained("package_uris"):
        fields.complain("package_uris", said("is required: 1 to {most} packages.", most=MAX_PACKAGES))
    for index, uri in enumerate(packages):
        if not _OBJECT.fullmatch(uri) and not artifact_of(uri):
            fields.complain(f"package_uris[{index}]", _object_rule(uri))
    module = fields.text("python_module", maximum=512)
    if not _MODULE.fullmatch(module) and not fields.complained("python_module"):
        fields.complain(
            "python_module",
            said(
                "must name a module of the packages, such as trainer.task, not {value}.", value=shown(module)
            ),
        )
    args = fields.texts("args", maximum=MAX_ARGUMENTS)
    env, secrets = _env(fields, number)
    asked_secrets += secrets
    variables = tuple(asked.variable for asked in secrets)
    package = PythonPackage(image, packages, module, args, env, variables)
    _check_sizes(fields, package)
    fields.close()
    return package


def _object_rule(value: str) -> str:
    return said("must be an object of a bucket, such as gs://bucket/name, not {value}.", value=shown(value))


def _code(fields: MessageReader) -> Code:
    artifact = fields.text("artifact", maximum=64)
    if artifact and not _SHA256.fullmatch(artifact):
        fields.complain(
            "artifact", said("must be the SHA-256 of an artifact: 64 digits and letters from a to f.")
        )
    archive = fields.text("archive_uri")
    if archive and not _OBJECT.fullmatch(archive):
        fields.complain("archive_uri", _object_rule(archive))
    message = fields.message("git")
    git = None if message.empty else _git(message)
    sources = sum(bool(source) for source in (artifact, archive, git))
    if sources != 1 and not any(fields.complained(name) for name in ("artifact", "archive_uri", "git")):
        fields.complain("artifact", said("exactly one of artifact, archive_uri and git must be given."))
    directory = fields.text("directory", maximum=255)
    if directory and not _is_below(directory):
        fields.complain(
            "directory", said("must be a path below the work directory, without .. and not absolute.")
        )
    fields.close()
    return Code(artifact, archive, git, directory)


def _is_below(directory: str) -> bool:
    parts = directory.split("/")
    return not any(part in ("", ".", "..") for part in parts)


def _git(fields: MessageReader) -> Git:
    url = fields.text("url")
    found = _GIT_URL.fullmatch(url)
    if not found and not fields.complained("url"):
        fields.complain(
            "url",
            said(
                "must be the address of a repository, such as https://example.com/lab/train.git or "
                "git@example.com:lab/train.git. A user and a password in it are refused: store them as a "
                "secret, and name it in credential_secret."
            ),
        )
    revision = fields.text("revision", maximum=255)
    if not fields.complained("revision") and (not _REVISION.fullmatch(revision) or ".." in revision):
        fields.complain("revision", said("must be a commit, a branch or a tag."))
    secret = fields.text("credential_secret", maximum=100)
    if secret and not SECRET_NAME.fullmatch(secret):
        fields.complain("credential_secret", said("names a stored secret; it {must}", must=NAME_RULE))
    fields.close()
    return Git(url, revision, secret)


def _env(fields: MessageReader, pool: int) -> tuple[tuple[tuple[str, str], ...], list[AskedSecret]]:
    """The plain variables of a pool, and the secret ones."""
    pairs: dict[str, str] = {}
    secrets: dict[str, AskedSecret] = {}
    for message in fields.messages("env", maximum=MAX_ENV):
        name = message.text("name", maximum=256)
        secret = read_secret(message, name, pool)
        value = message.text("value", maximum=MAX_STRING_BYTES, printable=False) if secret is None else ""
        if not _ENV_NAME.fullmatch(name):
            if not message.complained("name"):
                message.complain(
                    "name", said("must be letters, digits, _, . and -, and not begin with a digit.")
                )
        elif name.startswith("TRAINYARD_") and name != LOG_METRICS:
            message.complain("name", said("names that begin with TRAINYARD_ are the runner's own."))
        elif name in pairs or name in secrets:
            message.complain("name", said("{name} is given twice.", name=name))
        elif secret is not None:
            secrets[name] = secret
        else:
            pairs[name] = value
        message.close()
    return tuple(pairs.items()), list(secrets.values())


def _check_sizes(fields: MessageReader, task: Task) -> None:
    own_command = task.command if isinstance(task, Container) else ()
    sizes = {
        "command": [len(text.encode()) for text in own_command],
        "args": [len(text.encode()) for text in task.args],
        "env": [len(f"{name}={value}".encode()) for name, value in task.env],
    }
    for name, bytes_of in sizes.items():
        for index, size in enumerate(bytes_of):
            if size > MAX_STRING_BYTES:
                fields.complain(
                    f"{name}[{index}]",
                    said("has {size} bytes; Linux takes at most {most}.", size=size, most=MAX_STRING_BYTES),
                )
    total = task.strings_bytes
    if total > MAX_STRINGS_BYTES:
        fields.complain(
            task.strings_field,
            said(
                "command, args and env have {size} bytes together; at most {most}.",
                size=total,
                most=MAX_STRINGS_BYTES,
            ),
        )
