"""Buckets that cannot be sent, and models that have a hook. Runs in the system's Python, which has torch."""

from __future__ import annotations

import subprocess

from agents.runner.reduction.files_on_hosts import put_files
from tests.harness.reduction import PYTHON

START = """
import torch, types
from trainyard_reduction.exchange import Exchange
from trainyard_reduction.group import Plan

model = types.SimpleNamespace(stream=0, number=0, shadows=False, divides_by_all=True)
"""

CANNOT = """
from trainyard_reduction import exchange as exchanges

exchange = Exchange(None, "a group that is none", 0, Plan("a session", "", [0, 0]))
exchanges.SETTLE_S = 0.01
for _ in range(2):
    try:
        exchange.reduce(model, torch.ones(4)).wait()
    except Exception as problem:
        print("a bucket could not be sent" in str(problem))
"""

# The neighbour is gone, or says that it has failed. Whether a reducer is lost is asked before the program hears of it.
SETTLES = """
result = None
link = types.SimpleNamespace(ways=[], settle=lambda: print("settled before:", not result.done()))

def gone(*_):
    raise RuntimeError("Connection closed by peer")

for mean in (gone, lambda *_: RuntimeError("another process says why")):
    exchange = Exchange(link, "a group", 0, Plan("a session", "", [0, 0]))
    exchange._inside.mean = mean
    result = torch.futures.Future()
    exchange._later(
        lambda: exchange._reduce_inside_first(0, 0, torch.ones(4), None, False, False, result), result
    )
    print(result.wait())
"""

HOOKED = """
import os

os.environ["TRAINYARD_REDUCTION_REPLICA"] = "0"
from trainyard_reduction import hook

group = object()
hook.dist = types.SimpleNamespace(
    is_initialized=lambda: True,
    get_world_size=lambda: 2,
    distributed_c10d=types.SimpleNamespace(_get_default_group=lambda: group),
)
hook.reduction_of = lambda _: types.SimpleNamespace(models=0)

class Model:
    def __init__(self, registers):
        self.process_group, self.hooks = group, []
        if registers == "a hook":
            self.register_comm_hook(None, "theirs")
        elif registers:
            self._register_builtin_comm_hook("theirs")
    def forward(self): pass
    def join_hook(self): pass
    def _match_all_reduce_for_bwd_pass(self): pass
    def register_comm_hook(self, state, hook): self._register_builtin_comm_hook(hook)
    def _register_builtin_comm_hook(self, kind):
        if self.hooks:
            raise RuntimeError("can only be called once")
        self.hooks.append(kind)

hook.patch(Model)
for registers in ("a hook", "a builtin", ""):
    model = Model(registers)
    model.forward()
    model.forward()
    print(model.hooks == ["theirs"])
"""

COMPLEX = """
from trainyard_reduction import exchange

def all_reduce(tensor, async_op):
    future = torch.futures.Future()
    future.set_result([torch.view_as_real(tensor)])
    return types.SimpleNamespace(get_future=lambda: future)

exchange.dist = types.SimpleNamespace(get_world_size=lambda: 2, all_reduce=all_reduce)
print(exchange.mean_by_group(torch.full((3,), 4 + 2j)).wait().tolist())
"""

TIMEOUT = """
import datetime
import torch.distributed as dist
from trainyard_reduction import hook

options = {"store": dist.HashStore(), "rank": 0, "world_size": 1}
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=77), **options)
print(hook.patience_of(dist.distributed_c10d._get_default_group()), hook.patience_of(None))
"""


def output_of(tmp_path, program):
    done = subprocess.run(
        [PYTHON, "-c", START + program],
        env={"PATH": "/usr/bin:/bin", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": put_files(str(tmp_path))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout.splitlines() or done.stderr


def test_a_bucket_that_cannot_be_sent_is_an_error_and_no_hang(tmp_path):
    assert output_of(tmp_path, CANNOT) == ["True", "True"]


def test_whether_a_reducer_is_lost_is_asked_before_the_program_hears_of_an_error(tmp_path):
    assert output_of(tmp_path, SETTLES) == [
        "settled before: True",
        "a bucket could not be sent: RuntimeError('Connection closed by peer')",
        "settled before: True",
        "another process says why",
    ]


def test_a_hook_that_torch_registers_while_it_makes_the_model_wins(tmp_path):
    assert output_of(tmp_path, HOOKED) == ["True", "True", "False"]


def test_complex_gradients_stay_complex(tmp_path):
    """As NCCL answers."""
    assert output_of(tmp_path, COMPLEX) == ["[(2+1j), (2+1j), (2+1j)]"]


def test_the_timeout_of_the_group_is_found(tmp_path):
    assert output_of(tmp_path, TIMEOUT) == ["77 1800"]
