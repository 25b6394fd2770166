"""Gradients through reducers are those that one process computes, with every option of DistributedDataParallel."""

from __future__ import annotations

import json
import re

import pytest

OF_EACH = {
    *(
        "plain",
        "gradient_as_bucket_view",
        "static_graph",
        "find_unused_parameters",
        "tiny buckets",
        "one bucket",
    ),
    *("no broadcast of buffers", "no_sync", "join, divided by all", "join, divided by those with inputs"),
    *("join without inputs", "own hook", "own hook, late", "torch.float16", "torch.float64", "two models"),
    "float16 means of large sums",
}


# The same model over a group of gloo's own, in the same processes.
AS_BY_GLOO = {
    f"{name}, as by gloo"
    for name in OF_EACH
    if not name.startswith(("own hook", "two models", "float16 means", "join without"))
}


@pytest.mark.parametrize(
    ("trainers", "reducers", "inside", "wire"),
    [
        # Alone on its host or beside others, as it is or rounded: each once. The others are further sizes.
        (3, 2, 1, "bf16"),
        pytest.param(2, 2, 2, "", marks=pytest.mark.slow),
        pytest.param(2, 1, 1, "", marks=pytest.mark.exhaustive),
        pytest.param(4, 3, 1, "", marks=pytest.mark.exhaustive),
        pytest.param(8, 2, 1, "", marks=pytest.mark.exhaustive),
        pytest.param(4, 2, 2, "bf16", marks=pytest.mark.exhaustive),
        pytest.param(8, 4, 1, "bf16", marks=pytest.mark.exhaustive),
    ],
)
def test_every_option_gives_right_gradients(reduced, trainers, reducers, inside, wire):
    group = reduced(trainers, reducers, "reduced_options.py", inside=inside, wire=wire)
    ends = group.ends()
    texts = [group.text(f"trainer {rank}") for rank in range(trainers * inside)]
    assert set(ends) == {0}, texts
    for text in texts:
        found = dict(re.findall(r"^(.+): (True|False)$", text, re.M))
        assert set(found) >= OF_EACH | AS_BY_GLOO
        assert [name for name, right in found.items() if right == "False"] == []
    assert len({re.findall(r"^bits: (\w+)$", text, re.M)[0] for text in texts}) == 1
    wires = "bf16" if wire else "as they are"
    assert f"gradients go through {reducers} reducers, {wires} on the wire" in texts[0]
    # Each process of a replica exchanges a part of its own.
    assert group.text("reducer 0").count(f"all {trainers} trainers are connected") == inside


def test_what_moves_is_reported(reduced, tmp_path):
    group = reduced(2, 2, "reduced_training.py", "--steps", "30", "--width", "256")
    assert group.ends() == [0, 0], group.text("trainer 0")
    for name in ("trainer-0", "reducer-0"):
        role = name.partition("-")[0]
        last = json.loads((tmp_path / f"{name}.jsonl").read_text().splitlines()[-1])
        assert last[f"reduction/{role}_sent_mb"] > 0
        assert last[f"reduction/{role}_received_mb"] > 0
    for name, role in (("trainer-0", "trainer_waiting"), ("reducer-0", "reducer_idle")):
        line = json.loads((tmp_path / f"{name}.jsonl").read_text().splitlines()[-1])
        assert 0 <= line[f"reduction/{role}_percent"] <= 100
