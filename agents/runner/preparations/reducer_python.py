"""Whether the Python that will run a reducer has numpy: asked before any replica of the job starts.

It is asked in what will run it: this host with the variables of the job, its Python environment, or a container of its
image. Both are here by then: the console asks for this when all else that the run needs is ready.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Tuple

from agents.runner.cache.images import find_image, root_of
from agents.runner.cache.store import ENVIRONMENTS, Cache
from agents.runner.files import read_json, write_file
from agents.runner.home import Home
from agents.runner.preparations.images import last_line
from agents.runner.preparations.report import HOST, USER, Failed, Report
from agents.runner.programs import output_of
from agents.runner.reduction.numpy_check import QUESTION, TIMEOUT_S, without_numpy
from agents.runner.runs.orders import enter_environment, login_env
from agents.runner.runtimes.apptainer_options import DESCRIPTION, client_env, image_env, run_words
from agents.runner.runtimes.containers import CLIENT_FAILED, one_of_list
from agents.runner.runtimes.engine_commands import APPTAINER, DOCKER, find_engine, remove_container_words


def prepare_numpy(what: Dict[str, Any], report: Report, home: Home) -> Dict[str, Any]:
    """`what`: `python`; `env`, variables that change what it imports; `environment`, the key of one of the cache; or
    `engine` and `image`, with its `id` where it is known. Raises Failed."""
    python, image = str(what["python"]), str(what.get("image") or "")
    env = {str(name): str(value) for name, value in what["env"].items()}
    report.message("asking %s for numpy" % python)
    if image:
        command, env = _in_container(what, [python, *QUESTION], env, report.directory, home)
    else:
        command, env = [python, *QUESTION], {**login_env(), **env}
        if what.get("environment"):
            enter_environment(env, Cache(home).path(ENVIRONMENTS, str(what["environment"])))
    status, text = output_of(command, TIMEOUT_S, env)
    if status == CLIENT_FAILED and image:
        raise Failed(HOST, last_line(text) or "%s failed" % what["engine"])
    if status != 0:
        raise Failed(USER, without_numpy(python, status, text, "the image %s" % image if image else ""))
    return {}


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
    key = find_image(cache, image)
    if not key:
        raise Failed(HOST, "the image %s is not on this host any more" % image)
    root = root_of(cache, key)
    described = read_json(os.path.join(os.path.dirname(root), DESCRIPTION)) or {}
    words = run_words({"program": program, "root": root}, "/", [], False)
    env = {**image_env(described), **env}
    return [*words, *command], client_env(env, "/", bool(described.get("own_variables")))
