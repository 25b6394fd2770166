"""The engine of a run: which module knows its containers, their commands and their shells."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

from agents.runner.processes import all_processes
from agents.runner.runs.orders import Order
from agents.runner.runtimes.apptainer_containers import ApptainerContainer, shell_in
from agents.runner.runtimes.apptainer_options import command_of as apptainer_command
from agents.runner.runtimes.apptainer_options import describe as describe_apptainer
from agents.runner.runtimes.containers import ANY_SHELL, Container
from agents.runner.runtimes.containers import command_of as container_command
from agents.runner.runtimes.containers import describe as describe_container
from agents.runner.runtimes.containers import shell_of as container_shell
from agents.runner.runtimes.docker_containers import DockerContainer
from agents.runner.runtimes.engine_commands import APPTAINER, DOCKER
from agents.runner.runtimes.shell_tools import number_inside

_CONTAINERS = {DOCKER: DockerContainer, APPTAINER: ApptainerContainer}


def container_of(directory: str, facts: Mapping[str, Any]) -> Container:
    return _CONTAINERS.get(str(facts["runtime"].get("kind")), Container)(directory, facts)


def describe(order: Order, run: str, directory: str, facts: Mapping[str, Any]) -> Dict[str, str]:
    """What is kept in the facts of the run."""
    kind = (order.runtime or {}).get("kind")
    if kind == APPTAINER:
        return describe_apptainer(order, run, directory, facts)
    return describe_container(order, run, directory, facts)


def command_of(
    order: Order, directory: str, run: str, work: str, facts: Mapping[str, Any]
) -> Tuple[List[str], Dict[str, str]]:
    """(argument vector, environment) of the engine's client."""
    if is_of_this_host(facts["runtime"]):
        return apptainer_command(order, directory, work, facts)
    return container_command(order, directory, run, work, facts)


def shell_of(
    facts: Mapping[str, Any], argv: List[str], more: Mapping[str, str]
) -> Tuple[List[str], Dict[str, str]]:
    """(argument vector, environment) of a shell in the container. It has the variables of the container, and `more`."""
    if is_of_this_host(facts["runtime"]):
        return shell_in(facts, argv or ANY_SHELL, more)
    return container_shell(facts, argv, more)


def pid_of_program(directory: str, facts: Mapping[str, Any]) -> int:
    """The number of the program in its container, for a debugger in a shell there; 0 if it is not known."""
    if is_of_this_host(facts["runtime"]):
        return number_inside(int(facts["pid"] or 0))
    programs = container_of(directory, facts).programs(all_processes())
    oldest = min(programs, key=lambda each: (each.ticks, each.pid), default=None)
    return number_inside(oldest.pid) if oldest is not None else 0


def is_of_this_host(known: Mapping[str, Any]) -> bool:
    """Whether its processes are in the cgroup of the run, as a program's of the host: the engine makes none."""
    return str(known["kind"]) == APPTAINER
