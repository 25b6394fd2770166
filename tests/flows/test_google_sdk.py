"""Google's SDK, the newest and 1.60, unpatched, against the product on real hosts.

tests/programs/google_sdk.py holds the steps. They run once for each version, in a process of their own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.leftovers import owned_environment

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "programs" / "google_sdk.py"
STEPS = re.findall(r"^@step\ndef (\w+)", PROGRAM.read_text(), re.MULTILINE)
INTERPRETERS = {"newest": Path(sys.executable), "1.60": ROOT / "var" / "google-sdk-1.60" / "bin" / "python"}


@pytest.fixture(params=["newest", pytest.param("1.60", marks=pytest.mark.slow)], scope="module")
def version(request):
    return request.param


@pytest.fixture(scope="module")
def outcomes(shared_product, version):
    """What each step said, by name."""
    yard = shared_product.product_of("embedded")
    variables = {"NO_PROXY": "*", "PYTHONWARNINGS": "ignore", "STORAGE_EMULATOR_HOST": yard.url}
    environment = owned_environment(variables)
    done = subprocess.run(
        [INTERPRETERS[version], PROGRAM, yard.url, yard.client.token],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"step"')]
    return {line["step"]: line for line in lines}, done.stdout


@pytest.mark.parametrize("step", STEPS)
def test_the_unpatched_sdk_does(outcomes, step):
    found, output = outcomes
    assert step in found, output[-4000:]
    assert found[step]["error"] is None, found[step]["error"]
