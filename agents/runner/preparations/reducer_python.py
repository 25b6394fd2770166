"""Whether the Python that will run a reducer has numpy: asked before any replica of the job starts.

It is asked in what will run it: this host with the variables of the job, its Python environment, or a container of its
image. Both are here by then: the console asks for this when all else that the run needs is ready.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Tuple

from agents.runner.cache.images import find_image, root_of
from agents.runner.cache.python_environment import is_ready
from agents.runner.cache.store import ENVIRONMENTS, Cache
from agents.runner.files import read_json, write_file
from agents.runner.home import Home
from agents.runner.preparations.images import last_line
from agents.runner.preparations.left_processes import of_preparation
from agents.runner.preparations.report import HOST, USER, Failed, Report
from agents.runner.programs import output_of
from agents.runner.reduction.numpy_check import QUESTION, TIMEOUT_S, without_numpy
from agents.runner.runs.orders import enter_environment, find_first, login_env
from agents.runner.runtimes.apptainer_containers import NOT_EXECUTED, last_words
from agents.runner.runtimes.apptainer_options import DESCRIPTION, client_env, image_env, run_words
from agents.runner.runtimes.containers import CLIENT_FAILED, one_of_list
from agents.runner.runtimes.engine_commands import APPTAINER, DOCKER, find_engine, remove_container_words

TIMED_OUT = 124
# What podman and Docker say of an image that they do not have.
GONE = re.compile("image not known|no such image", re.IGNORECASE)


def prepare_numpy(what: Dict[str, Any], report: Report, home: Home) -> Dict[str, Any]:
    """`what`: `python`; `env`, variables that change what it imports; `environment`, the key of one of the cache, or
    `interpreter`, the path of the Python that commands find first; or `engine` and `image`, with its `id` where it is
    known. Raises Failed."""
    python, image = str(what["python"]), str(what.get("image") or "")
    env = {str(name): str(value) for name, value in what["env"].items()}
    report.message("asking %s for numpy" % python)
    if not _is_there(what, home):
        return {}  # gone since it was ready: the start is refused for that, and all of it is asked for anew
    if image:
        command, env = _in_container(what, [python, *QUESTION], env, report.directory, home)
    else:
        command, env = [python, *QUESTION], _env_of_run(what, env, home)
    status, text = output_of(command, TIMEOUT_S, env)
    if status == TIMED_OUT:
        raise Failed(HOST, "%s did not say within %d s whether it has numpy" % (python, TIMEOUT_S))
    if image and status == CLIENT_FAILED and GONE.search(text):
        return {}
    if image and _engine_failed(str(what["engine"]), status, text):
        raise Failed(HOST, last_words(text) or last_line(text) or "%s failed" % what["engine"])
    if status != 0:
        raise Failed(USER, without_numpy(python, status, text, "the image %s" % image if image else ""))
    return {}


def _is_there(what: Dict[str, Any], home: Home) -> bool:
    """Whether what it is asked in is still here. The engine itself says so of images of podman and Docker."""
    cache = Cache(home)
    if what.get("environment"):
        return is_ready(cache, str(what["environment"]))
    if what.get("engine") == APPTAINER:
        return bool(find_image(cache, str(what.get("id") or what["image"])))
    return True


def _env_of_run(what: Dict[str, Any], env: Dict[str, str], home: Home) -> Dict[str, str]:
    env = {**login_env(), **env}
    if what.get("environment"):
        enter_environment(env, Cache(home).path(ENVIRONMENTS, str(what["environment"])))
    elif what.get("interpreter"):
        find_first(env, str(what["interpreter"]))
    return {**env, **of_preparation()}


def _engine_failed(engine: str, status: int, text: str) -> bool:
    """Whether the engine has executed nothing, for a reason of its own."""
    if engine != APPTAINER:
        return status == CLIENT_FAILED
    words = last_words(text)
    return bool(words) and not NOT_EXECUTED.fullmatch(words)


def _in_container(
    what: Dict[str, Any], command: List[str], env: Dict[str, str], directory: str, home: Home
) -> Tuple[List[str], Dict[str, str]]:
    """(argument vector, environment) of a client. The container has nothing of the host, and goes with its end."""
    engine, image = str(what["engine"]), str(what.get("id") or what["image"])
    program = find_engine(engine)
    if program is None:
        raise Failed(HOST, "%s is not installed on this host" % engine)
    if engine == APPTAINER:
        return _in_apptainer(program, image, command, env, home)
    # No value of a variable is on a command line, where others see it.
    path, name = os.path.join(directory, "container.env"), "trainyard-%s" % os.path.basename(directory)[:30]
    if os.path.exists(path):  # who asked before may have been killed, and have left its container
        output_of(remove_container_words(engine, program, name), TIMEOUT_S)
    lines = ["%s=%s\n" % each for each in sorted(env.items()) if "\n" not in each[1]]
    write_file(path, "".join(lines).encode("utf-8", "surrogateescape"))
    file = path if engine == DOCKER else one_of_list(path)
    words = [
        program,
        "run",
        "--rm",
        "--pull=never",
        "--name",
        name,
        "--network=none",
        "--env-file",
        file,
        "--entrypoint",
        command[0],
    ]
    return [*words, image, *command[1:]], login_env()


def _in_apptainer(
    program: str, image: str, command: List[str], env: Dict[str, str], home: Home
) -> Tuple[List[str], Dict[str, str]]:
    cache = Cache(home)
    root = root_of(cache, find_image(cache, image))
    described = read_json(os.path.join(os.path.dirname(root), DESCRIPTION)) or {}
    words = run_words({"program": program, "root": root}, "/", [], False)
    env = {**image_env(described), **env}
    return [*words, *command], client_env(env, "/", bool(described.get("own_variables")))
