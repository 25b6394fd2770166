"""The house's laws (jobs/README.md tells why), each a function from one file to the places that break it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from tests.architecture.parsing import parsed

# From the top of the house down. A room may import itself and what lies below.
FLOORS = ("console", "jobs", "agents")
# Where the words of SSH may be spoken.
PARAMIKO_IN = "agents/"
# Clocks, dice and the world: what a rule gets as an argument instead.
NOT_PURE = frozenset(
    {"asyncio", "io", "os", "pathlib", "random", "secrets", "select", "socket", "subprocess", "tempfile"}
    | {"threading", "time", "uuid"}
)
# The one module of another storey that a rule may import: the sentences that rules make. It is as pure as they are.
SENTENCES = "agents.infra.texts"
# The rules that compute with arrays may import numpy.
NUMPY_IN = "jobs/rules/tuning/"
# The rule that asks an optional package, which the search imports by name.
OPTUNA_IN = "jobs/rules/tuning/search/optuna_samplers.py"
# Its dice without a seed, and those that all callers share.
NUMPY_DICE = re.compile(r"(np|numpy)\.random\.(?!Generator\(|PCG64\([^)])")
CLOCKS = frozenset({"now", "utcnow", "today", "time", "monotonic"})
# Functions that show what somebody may set, by the module or class that has them.
DATES = {
    "time": ("time", "time_ns", "localtime", "gmtime", "ctime"),
    "datetime": ("now", "utcnow", "today"),
    "date": ("today",),
}
# The clock of the database; and, imported by name, the function that Django had before.
HIDDEN_DATES = frozenset({"django.db.models.functions.Now", "django.utils.timezone.now"})
DATES_IN = frozenset({"agents/infra/clock.py"})
# Modules of the runner that tell the console what the host's clock shows, or compare it with the date of a file, or
# of what Docker has kept.
RUNNER_DATES = frozenset(
    {"cleanup", "collect", "containment", "facts", "linux", "budget", "shipper", "probe", "put"}
    | {"lifecycle", "samples", "serve", "docker_follower", "install_log", "archive_names", "loaded_images"}
)
MAX_FILE, MAX_FUNCTION = 450, 70
# The runner: what hosts get. It stands alone, and inside it imports go down too, from the first of these to the last.
RUNNER = "agents/runner/"
# fmt: off
RUNNER_STOREYS = (
    "__main__", "serve", "shells.shell", "shells.attach", "shells.stacks", "outputs.transfer", "file_access",
    "host.probe",
    "host.engine_probe", "preparations.kept", "preparations.tasks", "preparations.worker",
    "preparations.reducer_python", "preparations.images",
    "preparations.archive_names", "preparations.image_archives", "preparations.sif", "preparations.apptainer_images",
    "preparations.archive_contents", "preparations.registry",
    "preparations.left_processes", "preparations.cache_entries", "preparations.programs_output",
    "preparations.pull_guard", "preparations.report",
    "shells.holder",
    "shells.requests", "shells.viewers", "shells.terminal", "shells.ring", "shells.tools", "shells.running",
    "shells.recording_pull", "shells.recording", "cache.work", "cache.kept", "cache.put", "cache.trees",
    "cache.git_checkout", "cache.environments", "cache.packages", "preparations.long_programs", "cache.unpack",
    "cache.archives", "metrics.pull", "runs.claims", "runs.cleanup", "host.gpu_watch", "runs.samples",
    "host.load", "runs.known", "runs.keepers", "runs.keeper_pair", "runs.keeper", "runs.lifecycle",
    "runs.no_exit", "runs.held_resources", "runtimes.packages", "runtimes.install_packages", "cache.work_tree",
    "cache.install_log",
    "logs.mask_patterns", "cache.python_environment",
    "cache.images",
    "outputs.directories", "runtimes.adapters", "runtimes.apptainer_containers",
    "runtimes.apptainer_options",
    "runtimes.docker_containers", "runtimes.docker_follower", "runtimes.containers", "runtimes.image_user",
    "runtimes.shell_tools",
    "runtimes.loaded_images", "cache.store", "runtimes.devices", "runtimes.docker_options",
    "runtimes.engine_commands", "runtimes.client_variables", "runs.scratch",
    "runs.shared_memory", "host.gpus", "host.cdi",
    "logs.shipper", "logs.sent_tail", "logs.budget", "runs.facts", "background_tasks", "metrics.collect",
    "metrics.hypertune_file", "metrics.journal", "metrics.directories", "metrics.tensorboard",
    "metrics.reports", "reduction.numpy_check", "runs.replica", "runs.orders", "host.cuda", "outbox",
    "programs", "metrics.python_module", "metrics.places", "reduction.sitecustomize", "reduction.hook",
    "reduction.exchange", "reduction.inside", "reduction.staging", "reduction.group",
    "reduction.ending", "reduction.link",
    "reduction.reducer", "reduction.session", "reduction.peer", "reduction.report", "reduction.sums",
    "reduction.way", "reduction.wire", "reduction.files_on_hosts", "compiling", "forks", "files", "host.mounts",
    "runs.peers", "processes", "host.networks", "runs.namespaces", "runs.containment", "home", "linux", "failpoints",
    "logs.digest", "shells.frames", "wire", "compiled", "reduction.__init__", "__init__",
)
# fmt: on
# Modules of the runner that the Python of a job runs, with what they may import beside the standard library. Their
# files stay where they are while a job uses them, so they may also import late.
OF_JOBS = "reduction."
OF_JOBS_MAY = {"reduction.sums": "numpy", "reduction.hook": "torch", "reduction.exchange": "torch"}
OF_JOBS_MAY |= {"reduction.inside": "torch", "reduction.staging": "torch"}
WEDGED = re.compile(r"\s*[\])}]+,?\s+# (?!fmt: |type: |noqa)")
NAMELESS = frozenset({"utils", "util", "common", "helpers", "helper", "base", "manager", "misc"})
STATE_WRITERS = frozenset({"jobs/lifecycle/advance.py", "jobs/scheduling/scheduler.py"})
# The state of a GPU is another thing, below the floor of jobs, and has one writer of its own.
GPU_STATE_WRITER = "agents/hosts/gpu_quarantine.py"
# So is that of a study and of its trials.
STUDY_STATE_WRITERS = frozenset({"jobs/rules/tuning/decide.py", "jobs/tuning/drawing.py"})
RAW_LOG_READERS = frozenset(
    f"jobs/logs/{name}.py" for name in ("masking", "reader", "stored_bytes", "verify")
)
# Who touches the rows that hold bytes of logs. `live_end` shows those of jobs without secrets, the others write, move
# and verify bytes, or read only offsets and times.
LOG_ROWS = RAW_LOG_READERS | {
    f"jobs/{name}.py"
    for name in (
        "host_sync/fast_append",
        "logs/entries",
        "logs/last_printed",
        "logs/live_end",
        "logs/print_times",
        "logs/segments",
        "models/__init__",
        "models/logs",
    )
}
OLDEST_HOST_PYTHON = (3, 7)
# The command line client: what people install at their computers. It stands alone too.
CLIENT = "console/client/"
OLDEST_CLIENT_PYTHON = (3, 9)
# What loads modules as Python itself does: it executes the code that Python has made of them.
LOADERS = frozenset({"agents/runner/compiled.py"})
# What imports when nobody sees it: a runner's file may be gone by then.
LATE_IMPORTERS = frozenset({"importlib", "pkgutil", "runpy", "zipimport"})


@dataclass(frozen=True)
class File:
    """One file of the product, by its path below the repository's root."""

    path: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return parsed(self.source)

    @cached_property
    def nodes(self) -> tuple[Any, ...]:
        """Each law looks at all of them."""
        return tuple(ast.walk(self.tree))

    @property
    def floor(self) -> str:
        return self.path.split("/")[0]

    def imports(self) -> Iterator[tuple[str, ast.stmt]]:
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from ((alias.name, node) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield "." * node.level + (node.module or ""), node
                yield from ((f"{node.module}.{alias.name}", node) for alias in node.names if node.level == 0)

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    def calls(self) -> Iterator[ast.Call]:
        yield from (node for node in self.nodes if isinstance(node, ast.Call))


def top(name: str) -> str:
    return name.split(".")[0]


def imports_go_down(file: File) -> Iterator[str]:
    for name, node in file.imports():
        if name.startswith("."):
            # The client is installed under another name too.
            if not file.path.startswith(CLIENT):
                yield f"{node.lineno}: a relative import hides the direction"
        elif top(name) in FLOORS and FLOORS.index(top(name)) < FLOORS.index(file.floor):
            yield f"{node.lineno}: {file.floor} must not import {name}"
        elif top(name) == "tests":
            yield f"{node.lineno}: nothing imports the tests"


def imports_stand_on_top(file: File) -> Iterator[str]:
    for function in file.functions():
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield f"{node.lineno}: an import inside {function.name}()"


def rules_are_pure(file: File) -> Iterator[str]:
    if not file.path.startswith("jobs/rules/"):
        return
    for name, node in file.imports():
        known = name.startswith(("jobs.rules", SENTENCES)) or top(name) in sys.stdlib_module_names
        known = known or (top(name) == "numpy" and file.path.startswith(NUMPY_IN))
        known = known or (top(name) == "optuna" and file.path == OPTUNA_IN)
        if not known or top(name) in NOT_PURE:
            yield f"{node.lineno}: a rule must not import {name}"
    for call in file.calls():
        if isinstance(call.func, ast.Attribute) and call.func.attr in CLOCKS:
            yield f"{call.lineno}: a rule must not ask a clock ({call.func.attr}); `now` is an argument"
        if NUMPY_DICE.match(ast.unparse(call)):
            yield f"{call.lineno}: a rule must not throw dice without a seed: Generator(PCG64(seed))"


def runner_module(name: str) -> str:
    """The module of the runner that an imported name is, or is in."""
    parts = name.split(".")[2:]
    found = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((module for module in found if module in RUNNER_STOREYS), parts[0])


def the_runner_stands_alone(file: File) -> Iterator[str]:
    if not file.path.startswith(RUNNER):
        return
    own = file.path.removeprefix(RUNNER).removesuffix(".py").replace("/", ".")
    own = "__init__" if own.endswith("__init__") and not own.startswith(OF_JOBS) else own
    if own not in RUNNER_STOREYS:
        yield f"1: {own} has no place among the runner's modules"
        return
    for name, node in file.imports():
        if name.startswith("agents.runner."):
            below = runner_module(name)
            if below not in RUNNER_STOREYS[RUNNER_STOREYS.index(own) + 1 :]:
                yield f"{node.lineno}: {own} must not import {below}, which is not below it"
        elif top(name) not in sys.stdlib_module_names and top(name) != OF_JOBS_MAY.get(own):
            yield f"{node.lineno}: the runner is stdlib only, not {name}"
        elif top(name) in LATE_IMPORTERS and own != f"{OF_JOBS}sitecustomize":
            yield f"{node.lineno}: {name} imports what may be gone by then"
    try:
        ast.parse(file.source, feature_version=OLDEST_HOST_PYTHON)
    except SyntaxError as problem:
        yield f"{problem.lineno}: not readable by Python {OLDEST_HOST_PYTHON}: {problem.msg}"


def the_client_stands_alone(file: File) -> Iterator[str]:
    if not file.path.startswith(CLIENT):
        return
    depth = len(PurePosixPath(file.path).relative_to(CLIENT).parts)
    for name, node in file.imports():
        level = len(name) - len(name.lstrip("."))
        if level > depth:
            yield f"{node.lineno}: {name} leads out of the client"
        elif not level and top(name) not in sys.stdlib_module_names:
            yield f"{node.lineno}: the client needs nothing but Python, not {name}"
    try:
        ast.parse(file.source, feature_version=OLDEST_CLIENT_PYTHON)
    except SyntaxError as problem:
        yield f"{problem.lineno}: not readable by Python {OLDEST_CLIENT_PYTHON}: {problem.msg}"


def ssh_is_spoken_in_agents_only(file: File) -> Iterator[str]:
    for name, node in file.imports():
        if top(name) == "paramiko" and not file.path.startswith(PARAMIKO_IN):
            yield f"{node.lineno}: paramiko belongs to {PARAMIKO_IN}"
        if top(name) in ("celery", "channels", "rest_framework") and file.floor == "agents":
            yield f"{node.lineno}: agents/ has never heard of {top(name)}"


def budgets_are_kept(file: File) -> Iterator[str]:
    lines = file.source.count("\n")
    if lines > MAX_FILE:
        yield f"1: {lines} lines; split it by noun"
    for function in file.functions():
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > MAX_FUNCTION:
            yield f"{function.lineno}: {function.name}() has {length} lines"


def things_have_names(file: File) -> Iterator[str]:
    for part in (*PurePosixPath(file.path).parts[:-1], PurePosixPath(file.path).stem):
        if part in NAMELESS:
            yield f"1: {part!r} is no name; say what it is about"


def state_has_two_writers(file: File) -> Iterator[str]:
    if file.path in STATE_WRITERS | STUDY_STATE_WRITERS | {GPU_STATE_WRITER}:
        return
    for node in file.nodes:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else targets
        for target in targets:
            own = (
                isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
            )
            if isinstance(target, ast.Attribute) and target.attr == "state" and not own:
                yield f"{node.lineno}: only {sorted(STATE_WRITERS)} write a state"
        if isinstance(node, ast.Call) and names_state(node):
            yield f"{node.lineno}: only {sorted(STATE_WRITERS)} write a state"


def names_state(call: ast.Call) -> bool:
    if getattr(call.func, "attr", "") not in ("update", "bulk_update", "update_or_create"):
        return False
    by_name = any(word.arg == "state" for word in call.keywords)
    listed = any(
        isinstance(item, ast.Constant) and item.value == "state"
        for argument in (*call.args, *(word.value for word in call.keywords))
        if isinstance(argument, ast.List | ast.Tuple)
        for item in argument.elts
    )
    return by_name or listed


def nothing_happens_by_signal(file: File) -> Iterator[str]:
    for name, node in file.imports():
        if name.startswith(("django.dispatch", "django.db.models.signals", "celery.signals")):
            yield f"{node.lineno}: no signals; say it where it happens"


def no_command_line_is_built(file: File) -> Iterator[str]:
    for call in file.calls():
        for word in call.keywords:
            if word.arg == "shell" and not (
                isinstance(word.value, ast.Constant) and word.value.value is False
            ):
                yield f"{call.lineno}: shell=True; give a list"
        name = ast.unparse(call.func)
        if name == "exec" and file.path in LOADERS:
            continue
        if name in ("os.system", "os.popen", "eval", "exec", "pickle.loads", "pickle.load"):
            yield f"{call.lineno}: {name}() runs what somebody wrote"


def nothing_is_left_for_later(file: File) -> Iterator[str]:
    for number, line in enumerate(file.source.splitlines(), 1):
        if any(word in line for word in ("TO" + "DO", "FIX" + "ME", "XX" + "X:")):
            yield f"{number}: a note to do it later"


def no_comment_is_wedged_into_an_expression(file: File) -> Iterator[str]:
    """The formatter puts a comment behind a closing bracket; it belongs on a line above the statement."""
    for number, line in enumerate(file.source.splitlines(), 1):
        if WEDGED.match(line):
            yield f"{number}: a comment behind a closing bracket; put it above the statement"


def the_time_is_asked_in_one_place(file: File) -> Iterator[str]:
    """A machine's clock may be set at any moment. `timezone.now` is Trainyard's clock, which nobody can set."""
    if file.path in DATES_IN or (
        file.path.startswith(RUNNER) and PurePosixPath(file.path).stem in RUNNER_DATES
    ):
        return
    for node in file.nodes:
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).rpartition(".")[2]
            if node.attr in DATES.get(owner, ()):
                yield f"{node.lineno}: {owner}.{node.attr} can be set; ask timezone.now or clock.elapsed"
    for name, import_ in file.imports():
        module, _, what = name.rpartition(".")
        if what in DATES.get(module.rpartition(".")[2], ()) or name in HIDDEN_DATES:
            yield f"{import_.lineno}: {name} hides which clock is asked"


def logs_are_shown_masked(file: File) -> Iterator[str]:
    """The stored bytes of a log may contain secrets. Who shows them reads them by jobs/logs/reader.py."""
    if file.path in RAW_LOG_READERS:
        return
    for name, node in file.imports():
        if name.startswith("jobs.logs.stored_bytes"):
            yield f"{node.lineno}: {name} does not mask secrets; read by jobs.logs.reader"


def rows_of_logs_are_read_in_one_room(file: File) -> Iterator[str]:
    """The table with the pieces of logs has their bytes too: another reader of it could show them unmasked."""
    if file.path in LOG_ROWS:
        return
    for name, node in file.imports():
        if name.rpartition(".")[2] == "LogPiece":
            yield f"{node.lineno}: {name} holds bytes that may be secret; read by jobs.logs.reader"
    for node in file.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "jobs_logpiece" in node.value:
            yield f"{node.lineno}: the pieces of logs are read as bytes; read by jobs.logs.reader"


LAWS = (
    the_time_is_asked_in_one_place,
    imports_go_down,
    imports_stand_on_top,
    rules_are_pure,
    the_runner_stands_alone,
    the_client_stands_alone,
    ssh_is_spoken_in_agents_only,
    budgets_are_kept,
    things_have_names,
    state_has_two_writers,
    nothing_happens_by_signal,
    no_command_line_is_built,
    nothing_is_left_for_later,
    no_comment_is_wedged_into_an_expression,
    logs_are_shown_masked,
    rows_of_logs_are_read_in_one_room,
)
