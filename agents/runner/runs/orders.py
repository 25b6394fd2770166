"""Start orders: what is to be run, checked completely before anything is done with it."""

from __future__ import annotations

import functools
import os
import pwd
import zlib
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

from agents.runner.home import is_gpu, is_key, is_run_id
from agents.runner.host.cuda import ORDER_BY_BUS
from agents.runner.metrics.places import variables, with_module
from agents.runner.reduction.files_on_hosts import directory_of
from agents.runner.wire import MAX_PAYLOAD, WireError, decode_object


class Refused(Exception):
    """This run cannot be started here; `refusal` is the word for it on the wire."""

    def __init__(self, refusal: str, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


class Order(NamedTuple):
    command: List[str]
    env: Dict[str, str]
    secrets: Tuple[str, ...]
    cpus: float | None
    gpus: List[str]
    port: int | None
    work_key: str | None
    grace_s: float
    timeout_s: float | None
    mark: str
    memory_mb: int | None
    log_budget_mb: int
    web_access: bool
    pid_namespace: bool
    address: str
    code: Tuple[str, str] | None
    runtime: Mapping[str, Any] | None
    environment: str | None
    packages: Tuple[str, str] | None
    interpreter: str
    install_log: bool
    reduction: str | None


# What a replica is in a reduction of gradients (agents/runner/reduction/).
TRAINER, REDUCER = "trainer", "reducer"
REDUCTION_ROLES = (TRAINER, REDUCER)


def unpack_order(payload: bytes, packed: bool) -> Dict[str, Any]:
    """The order document. A small packed payload that unpacks to something huge is refused, not unpacked."""
    if packed:
        unpacker = zlib.decompressobj()
        try:
            payload = unpacker.decompress(payload, MAX_PAYLOAD)
        except zlib.error as error:
            raise Refused("bad_order", "the order cannot be unpacked: %s" % error) from None
        if unpacker.unconsumed_tail or not unpacker.eof:
            raise Refused("bad_order", "the order is over %d bytes, or cut" % MAX_PAYLOAD)
    try:
        return decode_object(payload)
    except WireError as error:
        raise Refused("bad_order", "the order is %s" % error) from None


def parse_order(found: Dict[str, Any]) -> Order:
    """An Order, or Refused with the field named. Unknown keys come from a newer console and are ignored."""
    return Order(
        command=_command(found),
        env=_env(found),
        secrets=tuple(each for each in found.get("secrets") or [] if isinstance(each, str)),
        cpus=_number(found, "cpus", 0, 1e6, None),
        gpus=_gpus(found),
        port=_whole(found, "port", 1, 65535),
        work_key=_work_key(found),
        grace_s=float(_number(found, "grace_s", 0, 1e7, 10) or 0),
        timeout_s=_number(found, "timeout_s", 0, 1e9, None),
        mark=_text("mark", found.get("mark") or "")[:200],
        memory_mb=_whole(found, "memory_mb", 1, 1 << 40),
        log_budget_mb=_whole(found, "log_budget_mb", 1, 1 << 40) or 4096,
        web_access=found.get("web_access") is True,
        pid_namespace=found.get("pid_namespace") is True,
        address=_text("address", found.get("address") or "")[:255],
        code=_code(found),
        runtime=_runtime(found),
        environment=_environment(found),
        packages=_packages(found),
        interpreter=_interpreter(found),
        install_log=found.get("install_log") is True,
        reduction=found["reduction"] if found.get("reduction") in REDUCTION_ROLES else None,
    )


def _command(found: Mapping[str, Any]) -> List[str]:
    command = found.get("command")
    if not isinstance(command, list) or not command:
        raise _bad("command", "must be a list of at least one text")
    return [_text("command", part) for part in command]


def _env(found: Mapping[str, Any]) -> Dict[str, str]:
    value = found.get("env") or {}
    if not isinstance(value, dict):
        raise _bad("env", "must be an object")
    env = {_text("env", name): _text("env[%.80s]" % name, item) for name, item in value.items()}
    for name in env:
        if not name or "=" in name:
            raise _bad("env", "%.80r cannot be the name of a variable" % name)
    return env


def _gpus(found: Mapping[str, Any]) -> List[str]:
    gpus = found.get("gpus") or []
    if not isinstance(gpus, list) or not all(map(is_gpu, gpus)):
        raise _bad("gpus", "must be a list of GPU UUIDs")
    return list(dict.fromkeys(gpus))


def _work_key(found: Mapping[str, Any]) -> str | None:
    work_key = found.get("work_key")
    if work_key is not None and not is_run_id(work_key):
        raise _bad("work_key", "%.80r is not a plain name" % (work_key,))
    return work_key


def _code(found: Mapping[str, Any]) -> Tuple[str, str] | None:
    """The key of a tree of the cache, and where below the work directory it belongs."""
    code = found.get("code")
    if code is None:
        return None
    if not isinstance(code, dict) or not is_key(code.get("tree")):
        raise _bad("code", "must name a tree of the cache")
    directory = _text("code.directory", code.get("directory") or "")
    if any(part in (".", "..") for part in directory.split("/")) or directory.startswith("/"):
        raise _bad("code.directory", "%.80r is not below the work directory" % directory)
    return code["tree"], directory


def _runtime(found: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What executes the command, if it is not this host itself. Its parts are checked; unknown ones are ignored."""
    runtime = found.get("runtime")
    if runtime is None:
        return None
    if not isinstance(runtime, dict) or not isinstance(runtime.get("kind"), str):
        raise _bad("runtime", "must name its kind")
    if runtime["kind"] in ("process", "python"):
        return None
    image = _text("runtime.image", runtime.get("image"))
    if not image or image.startswith("-"):
        raise _bad("runtime.image", "%.80r is not the name of an image" % image)
    for name in ("entrypoint", "args"):
        words = runtime.get(name) or []
        if not isinstance(words, list):
            raise _bad("runtime." + name, "must be a list of texts")
        for word in words:
            _text("runtime." + name, word)
    mounts = runtime.get("mounts") or []
    if not isinstance(mounts, list) or any(not isinstance(each, list) or len(each) != 3 for each in mounts):
        raise _bad("runtime.mounts", "must be a list of [from, to, mode]")
    _whole(runtime, "shm_mb", 1, 1 << 40)
    return runtime


def _environment(found: Mapping[str, Any]) -> str | None:
    """The key of the Python environment of the cache in which the command runs."""
    runtime = found.get("runtime")
    if not isinstance(runtime, dict) or runtime.get("kind") != "python":
        return None
    if not is_key(runtime.get("environment")):
        raise _bad("runtime.environment", "must name an environment of the cache")
    return str(runtime["environment"])


def _packages(found: Mapping[str, Any]) -> Tuple[str, str] | None:
    """The key of a tree of Python packages for the Python of an image, and the index: an address, "none", or ""."""
    packages = found.get("packages")
    if packages is None:
        return None
    if not isinstance(packages, dict) or not is_key(packages.get("tree")):
        raise _bad("packages", "must name a tree of the cache")
    return packages["tree"], _text("packages.index", packages.get("index") or "")


def _interpreter(found: Mapping[str, Any]) -> str:
    """The Python of this host that the command is to find first."""
    path = _text("interpreter", found.get("interpreter") or "")
    if path and (not os.path.isabs(path) or ":" in path):
        raise _bad("interpreter", "must be a path")
    return path


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _bad(field, "must be text")
    if "\0" in value:
        raise _bad(field, "must not contain a NUL character")
    try:
        os.fsencode(value)
    except UnicodeError:
        raise _bad(field, "cannot be encoded") from None
    return value


def _number(
    found: Mapping[str, Any], field: str, low: float, high: float, default: float | None
) -> float | None:
    value = found.get(field)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise _bad(field, "must be a number from %g to %g" % (low, high))
    return value


def _whole(found: Mapping[str, Any], field: str, low: int, high: int) -> int | None:
    value = _number(found, field, low, high, None)
    return None if value is None else int(value)


def _bad(field: str, why: str) -> Refused:
    return Refused("bad_order", "%s: %s" % (field, why))


# Variables of the login that would mislead a replica.
_NOT_FOR_REPLICAS = {"SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SSH_AUTH_SOCK", "SSH_ORIGINAL_COMMAND"} | {
    "OLDPWD", "SHLVL", "_", "TRAINYARD_FAILPOINT", "TRAINYARD_NO_INOTIFY", "TRAINYARD_NO_CGROUP", "TRAINYARD_FLOOR_MB",
    "TRAINYARD_GPU_ROOT", "TRAINYARD_GPU_LOOK_S", "TRAINYARD_STORAGE_S",
}  # fmt: skip
_CUDA = frozenset({"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"})


@functools.lru_cache(maxsize=None)
def login_env() -> Dict[str, str]:
    """The environment of the login, without what would mislead a replica."""
    env = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_REPLICAS}
    user = pwd.getpwuid(os.getuid())
    env.setdefault("HOME", user.pw_dir)
    env.setdefault("USER", user.pw_name)
    env.setdefault("LOGNAME", user.pw_name)
    env.setdefault("SHELL", user.pw_shell or "/bin/sh")
    env.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    env.setdefault("LANG", "C.UTF-8")
    return env


def build_env(order: Order, directory: str, work: str, facts: Mapping[str, Any]) -> Dict[str, str]:
    """The replica's whole environment: what this host found out, the login's, the order's, and what names the run,
    whose directory this is.

    `host_env` of the facts comes from held_resources.py. An admin who set the interface for the login, and a person who
    set a variable for the job, know better. Only the login's idea of which GPUs to use is not asked for.
    """
    host_env = {str(name): str(value) for name, value in facts["host_env"].items()}
    env = dict(host_env)
    env.update((name, value) for name, value in login_env().items() if name not in _CUDA)
    env.update(CUDA_VISIBLE_DEVICES=_visible(order, host_env), CUDA_DEVICE_ORDER=ORDER_BY_BUS)
    if facts["tmp"]:
        env["TMPDIR"] = facts["tmp"]
    env.update(variables(directory, work))
    env.update(order.env)
    env.update(
        PWD=work, TRAINYARD_RUN=os.path.basename(directory), TRAINYARD_WORK=work, TRAINYARD_MARK=facts["mark"]
    )
    env["TRAINYARD_GPU_UUIDS"] = ",".join(order.gpus)
    with_module(env, directory)
    if order.reduction:
        _let_python_find(env, directory_of(_base_of(directory)))
    if order.interpreter:
        find_first(env, order.interpreter)
    if facts.get("environment"):
        enter_environment(env, str(facts["environment"]))
    return env


def container_env(
    order: Order, directory: str, work: str, facts: Mapping[str, Any], sees_all_gpus: bool = False
) -> Dict[str, str]:
    """What a container gets beside the variables of its image. It sees only its own GPUs, which are numbered from 0;
    or all of the host, as a program without a container."""
    host_env = {str(name): str(value) for name, value in facts["host_env"].items()}
    env = {name: value for name, value in host_env.items() if name not in _CUDA}
    if sees_all_gpus:
        env.update(CUDA_VISIBLE_DEVICES=_visible(order, host_env), CUDA_DEVICE_ORDER=ORDER_BY_BUS)
    elif order.gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(len(order.gpus))))
        env["CUDA_DEVICE_ORDER"] = ORDER_BY_BUS
    if facts["tmp"]:
        env["TMPDIR"] = facts["tmp"]
    env.update(variables(directory, work))
    env.update(order.env)
    env.update(TRAINYARD_RUN=os.path.basename(directory), TRAINYARD_WORK=work, TRAINYARD_MARK=facts["mark"])
    env["TRAINYARD_GPU_UUIDS"] = ",".join(order.gpus)
    if order.reduction:
        _let_python_find(env, directory_of(_base_of(directory)))
    return env


def _base_of(directory: str) -> str:
    """The directory of the deployment: `runs/<run>` is two below it."""
    return os.path.dirname(os.path.dirname(directory))


def _let_python_find(env: Dict[str, str], place: str) -> None:
    """First of all: the first `sitecustomize` is the one that Python runs."""
    before = env.get("PYTHONPATH")
    env["PYTHONPATH"] = "%s:%s" % (place, before) if before else place


def find_first(env: Dict[str, str], program: str) -> None:
    """Let this program be found before others of its name."""
    env["PATH"] = os.path.dirname(program) + ":" + env.get("PATH", os.defpath)


def enter_environment(env: Dict[str, str], environment: str) -> None:
    """Let the programs of a Python environment be found first."""
    env["VIRTUAL_ENV"] = environment
    find_first(env, os.path.join(environment, "bin", "python3"))
    env.pop("PYTHONHOME", None)


def _visible(order: Order, host_env: Mapping[str, str]) -> str:
    """Numbers are right in the order of the bus only."""
    if order.env.get("CUDA_DEVICE_ORDER", ORDER_BY_BUS) != ORDER_BY_BUS:
        return ",".join(order.gpus)
    return host_env.get("CUDA_VISIBLE_DEVICES", ",".join(order.gpus))
