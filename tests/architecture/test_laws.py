"""Each law holds in the product, and each catches a breach that is made for it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.architecture import laws
from tests.architecture.laws import LAWS, File

ROOT = Path(__file__).resolve().parents[2]


@cache
def product() -> list[File]:
    paths = (path for floor in laws.FLOORS for path in sorted((ROOT / floor).rglob("*.py")))
    return [
        File(path.relative_to(ROOT).as_posix(), path.read_text())
        for path in paths
        if "migrations" not in path.parts and "__pycache__" not in path.parts
    ]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_law_holds(law):
    breaches = [f"{file.path}:{breach}" for file in product() for breach in law(file)]
    assert not breaches, "\n" + "\n".join(breaches)


BREACHES = [
    (laws.rows_of_logs_are_read_in_one_room, "console/live/tails.py", "from jobs.models import LogPiece\n"),
    (
        laws.rows_of_logs_are_read_in_one_room,
        "jobs/logs/job_search.py",
        'READ = "SELECT data FROM jobs_logpiece"\n',
    ),
    (laws.the_time_is_asked_in_one_place, "agents/links/link.py", "import time\nx = time.time()\n"),
    (laws.the_time_is_asked_in_one_place, "agents/links/link.py", "from time import time\n"),
    (laws.the_time_is_asked_in_one_place, "jobs/sweep.py", "import datetime\nx = datetime.datetime.now()\n"),
    (laws.the_time_is_asked_in_one_place, "jobs/sweep.py", "from django.utils.timezone import now\n"),
    (laws.the_time_is_asked_in_one_place, "agents/runner/runs/keeper.py", "import time\nx = time.time()\n"),
    (laws.imports_go_down, "agents/links/link.py", "from jobs.models import Job\n"),
    (laws.imports_go_down, "jobs/host_sync/intake.py", "import console.runtime.health\n"),
    (laws.imports_go_down, "jobs/host_sync/intake.py", "from . import models\n"),
    (laws.imports_go_down, "jobs/host_sync/intake.py", "from tests.harness import hosts\n"),
    (laws.the_client_stands_alone, "console/client/session.py", "from console.auth import access\n"),
    (laws.the_client_stands_alone, "console/client/session.py", "from ..auth import access\n"),
    (laws.the_client_stands_alone, "console/client/verbs/jobs.py", "from ...auth import access\n"),
    (laws.the_client_stands_alone, "console/client/session.py", "import requests\n"),
    (laws.the_client_stands_alone, "console/client/text.py", "match 1:\n    case 1:\n        pass\n"),
    (laws.imports_stand_on_top, "jobs/host_sync/intake.py", "def take():\n    from jobs import models\n"),
    (
        laws.imports_stand_on_top,
        "console/runtime/web.py",
        "async def take():\n    if 1:\n        import os\n",
    ),
    (laws.rules_are_pure, "jobs/rules/lifecycle/decide.py", "from django.utils import timezone\n"),
    (laws.rules_are_pure, "jobs/rules/lifecycle/decide.py", "import random\n"),
    (laws.rules_are_pure, "jobs/rules/lifecycle/decide.py", "from agents.models import Host\n"),
    (laws.rules_are_pure, "jobs/rules/lifecycle/decide.py", "from agents.infra import sql\n"),
    (laws.rules_are_pure, "jobs/rules/lifecycle/decide.py", "import datetime\nx = datetime.datetime.now()\n"),
    (laws.rules_are_pure, "jobs/rules/lifecycle/decide.py", "import numpy as np\n"),
    (laws.rules_are_pure, "jobs/rules/tuning/search/bayesian.py", "import scipy\n"),
    (laws.rules_are_pure, "jobs/rules/tuning/search/bayesian.py", "x = np.random.default_rng()\n"),
    (laws.rules_are_pure, "jobs/rules/tuning/search/bayesian.py", "x = np.random.random()\n"),
    (
        laws.rules_are_pure,
        "jobs/rules/tuning/search/bayesian.py",
        "x = np.random.Generator(np.random.PCG64())\n",
    ),
    (laws.the_runner_stands_alone, "agents/runner/wire.py", "from agents import keys\n"),
    (laws.the_runner_stands_alone, "agents/runner/wire.py", "from agents.links.backoff import Wait\n"),
    (laws.the_runner_stands_alone, "agents/runner/serve.py", "import paramiko\n"),
    (laws.the_runner_stands_alone, "agents/runner/wire.py", "from agents.runner.serve import Serve\n"),
    (laws.the_runner_stands_alone, "agents/runner/runs/lifecycle.py", "from agents.runner import keeper\n"),
    (laws.the_runner_stands_alone, "agents/runner/pocket.py", "import os\n"),
    (laws.the_runner_stands_alone, "agents/runner/runs/known.py", "import importlib\n"),
    (laws.the_runner_stands_alone, "agents/runner/wire.py", "if (n := 1):\n    pass\n"),
    (laws.imports_stand_on_top, "agents/runner/serve.py", "def main():\n    import json\n"),
    (laws.ssh_is_spoken_in_agents_only, "console/consumers/shells.py", "import paramiko\n"),
    (laws.ssh_is_spoken_in_agents_only, "agents/links/fleet.py", "from celery import shared_task\n"),
    (laws.budgets_are_kept, "jobs/logs/reader.py", "x = 1\n" * 451),
    (laws.budgets_are_kept, "agents/runner/runs/lifecycle.py", "x = 1\n" * 451),
    (laws.budgets_are_kept, "jobs/logs/reader.py", "def f():\n" + "    x = 1\n" * 70),
    (laws.things_have_names, "jobs/utils.py", ""),
    (laws.things_have_names, "console/common/words.py", ""),
    (laws.state_has_two_writers, "jobs/host_sync/intake.py", "job.state = 'FAILED'\n"),
    (
        laws.state_has_two_writers,
        "jobs/host_sync/intake.py",
        "Job.objects.filter(pk=1).update(state='FAILED')\n",
    ),
    (laws.state_has_two_writers, "console/views/jobs/jobs.py", "Job.objects.bulk_update(rows, ['state'])\n"),
    (
        laws.nothing_happens_by_signal,
        "jobs/wake/announce.py",
        "from django.db.models.signals import post_save\n",
    ),
    (laws.no_command_line_is_built, "agents/ssh/install_runner.py", "subprocess.run(x, shell=True)\n"),
    (laws.no_command_line_is_built, "agents/ssh/install_runner.py", "import os\nos.system(x)\n"),
    (laws.no_comment_is_wedged_into_an_expression, "jobs/sweep.py", "f(\n    1\n)  # why\n"),
    (laws.logs_are_shown_masked, "console/live/tails.py", "from jobs.logs import stored_bytes\n"),
    (laws.nothing_is_left_for_later, "jobs/logs/reader.py", "# TO" + "DO: gaps\n"),
]


@pytest.mark.parametrize(("law", "path", "source"), BREACHES)
def test_the_law_catches_a_breach(law, path, source):
    assert list(law(File(path, source)))


def test_every_law_has_been_seen_to_catch_something():
    assert {law for law, _, _ in BREACHES} == set(LAWS)


def test_what_is_right_breaks_no_law():
    """The same code is accepted in the place where it is right, or written as it should be."""
    right = [
        File(
            "jobs/lifecycle/advance.py",
            "job.state = 'FAILED'\nJob.objects.filter(version=1).update(state='FAILED')\n",
        ),
        File(
            "jobs/rules/lifecycle/decide.py", "from datetime import datetime\nfrom jobs.rules import states\n"
        ),
        File("jobs/rules/lifecycle/retry.py", "from agents.infra.texts import said\n"),
        File(
            "jobs/rules/tuning/search/bayesian.py",
            "import numpy as np\nx = np.random.Generator(np.random.PCG64(seed))\n",
        ),
        File("agents/runner/serve.py", "import os\nfrom agents.runner.wire import encode\nx = time.time()\n"),
        File("agents/ssh/dial.py", "import paramiko\n"),
        File("console/client/verbs/jobs.py", "import json\nfrom ..session import Session\n"),
        File("console/runtime/health.py", "from agents.models import Host\nfrom jobs.models import Job\n"),
        File("jobs/logs/reader.py", "x = 1\n" * 450),
    ]
    assert [breach for law in LAWS for file in right for breach in law(file)] == []
