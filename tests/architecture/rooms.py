"""The rooms of the house, read from the imports; `python -m tests.architecture.rooms` draws them into docs/rooms.md.

A room is a folder of a storey, or a file that lies directly in it. `jobs/rules/` is divided once more, because each of
its folders is a subject of its own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.architecture.parsing import parsed

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "rooms.md"
STOREYS = ("console", "jobs", "agents")

HEAD = """# The rooms of the house

A *storey* is one of the three layers of the code: `console/`, `jobs/` and `agents/`, from top to bottom. A *room* is
a folder of a storey, or a file that lies directly in it. The *house* is all of them.

This page is made from the imports of the code (`make rooms`), and a test keeps it fresh. An arrow says "imports".
Arrows that follow from others are left out: where A imports B and B imports C, an arrow from A to C is not drawn.
Which room may import which is a law: the table in `tests/architecture/rooms.py`.
What each room is for stands at the top of `console/README.md`, `jobs/README.md` and `agents/README.md`.
"""

# Room by room, what it imports. `a/{b c}` stands for `a/b a/c`. A new arrow is a decision: write it down here.
TABLE = """
agents/clock_keeper: agents/{infra models}
agents/hosts: agents/{infra models ssh}
agents/infra:
agents/links: agents/{hosts infra models runner ssh}
agents/models: agents/{infra}
agents/runner:
agents/ssh: agents/{infra models runner}
agents/time_doubt: agents/{infra models}
console/api: console/{auth client forms large_bodies live models presenters runtime saved_views}
    jobs/rules/{lifecycle metrics notifications scheduling spec tuning} jobs/{artifacts bulk host_sync idle_rule
    lifecycle logs maintenance metrics models notifications outputs pipelines preparations projects scheduling
    secrets services shells stacks tuning}
    agents/{hosts infra models}
console/apps: console/{runtime}
console/arguments: jobs/rules/{scheduling}
console/asgi: console/{consumers runtime}
console/auth: console/{models} jobs/rules/{lifecycle} jobs/{models notifications projects shells sweep} agents/{hosts
    infra models ssh}
console/cli: console/{client}
console/client:
console/commands: console/{auth forms models presenters runtime} jobs/rules/{scheduling} jobs/{artifacts
    host_sync lifecycle maintenance models notifications projects secrets} agents/{clock_keeper hosts infra models
    ssh}
console/consumers: console/{auth live parts presenters runtime} jobs/rules/{lifecycle} jobs/{logs models shells}
    agents/{infra models runner ssh}
console/environment:
console/forms: console/{auth} jobs/rules/{notifications scheduling spec tuning} jobs/{artifacts host_sync idle_rule
    models notifications projects scheduling} agents/{hosts infra models}
console/large_bodies: jobs/{artifacts models} agents/{infra}
console/live: console/{runtime} jobs/{logs models projects} agents/{runner}
console/models: jobs/{models}
console/parts: console/{auth presenters} jobs/{models} agents/{models}
console/presenters: console/{auth forms models saved_views} jobs/rules/{lifecycle list_text metrics notifications
    scheduling spec time_text tuning} jobs/{artifacts host_sync lifecycle logs maintenance metrics models outputs
    pipelines preparations projects recordings scheduling shells stacks tuning} agents/{clock_keeper hosts infra models
    ssh time_doubt}
console/runtime: console/{auth environment large_bodies views}
    jobs/{artifacts host_sync logs maintenance models outputs wake}
    agents/{clock_keeper infra links models ssh time_doubt}
console/saved_views: console/{auth models} jobs/{models} agents/{infra}
console/settings: console/{auth environment runtime} agents/{infra}
console/templatetags: console/{auth presenters} jobs/{models} agents/{clock_keeper infra}
console/urls: console/{runtime}
console/views: console/{auth client forms large_bodies models presenters saved_views} jobs/rules/{lifecycle list_text
    scheduling spec tuning} jobs/{artifacts bulk host_sync idle_rule lifecycle maintenance models notifications outputs
    pipelines projects recordings scheduling secrets services shells stacks tuning wake} agents/{hosts infra models
    ssh}
jobs/artifacts: jobs/rules/{lifecycle scheduling spec storage_names} jobs/{models projects} agents/{infra
    time_doubt}
jobs/bulk: jobs/rules/{lifecycle spec} jobs/{labels models services} agents/{infra}
jobs/host_sync: jobs/rules/{lifecycle} jobs/{artifacts lifecycle logs metrics models preparations projects recordings
    scheduling secrets wake}
    agents/{hosts infra links models ssh}
jobs/idle_rule: jobs/rules/{lifecycle} jobs/{lifecycle models projects services} agents/{infra}
jobs/labels: jobs/rules/{lifecycle list_text scheduling spec} jobs/{models wake} agents/{infra}
jobs/lifecycle: jobs/rules/{lifecycle list_text metrics scheduling spec} jobs/{models outputs preparations projects
    wake} agents/{hosts infra models}
jobs/logs: jobs/rules/{lifecycle} jobs/{models secrets wake} agents/{infra links runner}
jobs/maintenance: jobs/rules/{lifecycle list_text spec storage_names} jobs/{host_sync lifecycle models preparations
    projects scheduling wake} agents/{clock_keeper hosts infra models ssh time_doubt}
jobs/management: jobs/{models}
jobs/metrics: jobs/rules/{lifecycle metrics} jobs/{logs models wake} agents/{infra links}
jobs/models: jobs/rules/{lifecycle scheduling spec tuning} agents/{infra models}
jobs/notifications: jobs/rules/{lifecycle notifications} jobs/{models projects wake} agents/{infra models}
jobs/pipelines: jobs/rules/{lifecycle spec tuning} jobs/{artifacts models outputs projects services tuning}
    agents/{infra}
jobs/outputs: jobs/rules/{lifecycle spec storage_names} jobs/{artifacts models preparations projects secrets wake}
    agents/{infra models runner ssh}
jobs/preparations: jobs/rules/{lifecycle list_text spec time_text} jobs/{artifacts models secrets wake} agents/{hosts
    infra models runner}
jobs/projects: jobs/rules/{lifecycle list_text scheduling spec} jobs/{models wake} agents/{infra models}
jobs/recordings: jobs/{logs models projects wake} agents/{infra links}
jobs/rules/lifecycle: jobs/rules/{list_text spec} agents/{infra}
jobs/rules/list_text: agents/{infra}
jobs/rules/metrics:
jobs/rules/notifications: jobs/rules/{lifecycle} agents/{infra}
jobs/rules/scheduling: jobs/rules/{list_text spec} agents/{infra}
jobs/rules/spec: jobs/rules/{list_text metrics} agents/{infra}
jobs/rules/storage_names: agents/{infra}
jobs/rules/time_text: agents/{infra}
jobs/rules/tuning: jobs/rules/{lifecycle list_text metrics spec time_text} agents/{infra}
jobs/scheduling: jobs/rules/{lifecycle list_text scheduling spec} jobs/{lifecycle models outputs projects wake}
    agents/{hosts infra models runner}
jobs/secrets: jobs/rules/{list_text spec} jobs/{models projects} agents/{infra models}
jobs/services: jobs/rules/{lifecycle scheduling spec} jobs/{host_sync lifecycle logs metrics models outputs preparations
    projects recordings scheduling secrets wake} agents/{infra}
jobs/shells: jobs/rules/{lifecycle} jobs/{lifecycle models projects recordings wake} agents/{infra}
jobs/stacks: jobs/rules/{lifecycle} jobs/{models projects} agents/{infra ssh}
jobs/sweep: jobs/{artifacts host_sync idle_rule lifecycle logs maintenance metrics models notifications outputs
    pipelines projects recordings scheduling shells tuning wake} agents/{hosts infra models time_doubt}
jobs/tasks: jobs/{lifecycle maintenance notifications outputs scheduling sweep tuning} agents/{infra links}
jobs/tuning: jobs/rules/{lifecycle list_text metrics notifications scheduling spec time_text tuning} jobs/{host_sync
    lifecycle logs metrics models notifications preparations projects scheduling secrets services wake} agents/{hosts
    infra}
jobs/wake: jobs/{models} agents/{infra models}
"""


def may_import() -> dict[str, set[str]]:
    """The table, read."""
    found = {}
    for line in re.sub(r"\n +", " ", TABLE.strip()).splitlines():
        room, _, targets = line.partition(":")
        found[room] = {
            f"{storey}{name}"
            for storey, names in re.findall(r"(\S*?)\{(.*?)\}", targets)
            for name in names.split()
        }
    return found


def product() -> Iterator[Path]:
    """Every Python file of the product, migrations left out."""
    for storey in STOREYS:
        for path in sorted((ROOT / storey).rglob("*.py")):
            if not {"migrations", "__pycache__"} & set(path.parts):
                yield path.relative_to(ROOT)


def room_of(path: Path) -> str:
    """`jobs/logs/reader.py` is in the room `jobs/logs`; a file directly in a storey is a room."""
    depth = 3 if path.parts[:2] == ("jobs", "rules") else 2
    if len(path.parts) > depth:
        return "/".join(path.parts[:depth])
    return path.with_suffix("").as_posix()


def imported(tree: ast.Module, modules: Mapping[str, str]) -> Iterator[str]:
    """The rooms that a file imports from. `modules`: the room of each module of the product."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            while name and name not in modules:
                name = name.rpartition(".")[0]
            if name:
                yield modules[name]


def module_name(path: Path) -> str:
    return path.with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")


def arrows() -> dict[str, set[str]]:
    """For each room, the other rooms that it imports."""
    paths = [path for path in product() if path.name != "__init__.py" or (ROOT / path).read_text().strip()]
    modules = {module_name(path): room_of(path) for path in paths}
    found: dict[str, set[str]] = {room: set() for room in modules.values()}
    for path in paths:
        room = room_of(path)
        found[room] |= set(imported(parsed((ROOT / path).read_text()), modules)) - {room}
    return {room: found[room] for room in sorted(found) if not room.endswith("__init__")}


def circles(graph: Mapping[str, set[str]]) -> set[str]:
    """Rooms from which a walk along the arrows comes back."""
    return {room for room in graph if room in below(graph, graph[room])}


def below(graph: Mapping[str, set[str]], rooms: set[str]) -> set[str]:
    """These rooms and all that they import, directly or not."""
    seen: set[str] = set()
    todo = set(rooms)
    while todo:
        room = todo.pop()
        seen.add(room)
        todo |= graph.get(room, set()) - seen
    return seen


def without_shortcuts(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The same graph without the arrows that follow from others."""
    return {
        room: {to for to in targets if not any(to in below(graph, graph[other]) for other in targets - {to})}
        for room, targets in graph.items()
    }


def drawing(graph: Mapping[str, set[str]]) -> str:
    """A Mermaid diagram, a box for each storey."""
    lines = ["```mermaid", "graph TD"]
    for storey in STOREYS:
        lines.append(f"    subgraph {storey}")
        lines += [
            f"        {node(room)}[{room.removeprefix(storey + '/')}]"
            for room in graph
            if room.startswith(f"{storey}/")
        ]
        lines.append("    end")
    for room, targets in without_shortcuts(graph).items():
        lines += [f"    {node(room)} --> {node(to)}" for to in sorted(targets)]
    return "\n".join([*lines, "```"])


def node(room: str) -> str:
    """Mermaid's names have no slashes."""
    return room.replace("/", "_")


def page(graph: Mapping[str, set[str]]) -> str:
    tables = []
    for storey in STOREYS:
        own = {room: targets for room, targets in graph.items() if room.startswith(f"{storey}/")}
        inside = sum(to.startswith(f"{storey}/") for targets in own.values() for to in targets)
        tables.append(f"- `{storey}/`: {len(own)} rooms, {inside} arrows inside")
    return f"{HEAD}\n{chr(10).join(tables)}\n\n{drawing(graph)}\n"


if __name__ == "__main__":
    PAGE.write_text(page(arrows()))
