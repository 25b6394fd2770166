"""Safeguards of the Reduction Server."""

from __future__ import annotations

from tests.mutants.safeguard import Safeguard

HERE = "agents/runner/reduction"
TESTS = "tests/unit/agents/runner/reduction"
NUMPY = "tests/unit/jobs/preparations/test_reducer_python.py"
LOSSES = f"{TESTS}/test_losses.py"
SUMS = f"{TESTS}/test_wire_and_sums.py"
# With one process in each replica, and with two.
OPTIONS = f"{TESTS}/test_gradients.py::test_every_option_gives_right_gradients"

REDUCTION = (
    Safeguard(
        "a-lost-reducer-ends-the-first-process",
        f"{HERE}/ending.py",
        "            os.kill(first, signal.SIGABRT)\n",
        "            pass\n",
        (f"{LOSSES}::test_the_first_process_of_the_run_ends_by_SIGABRT_and_none_above_it",),
    ),
    Safeguard(
        "a-reducer-that-has-done-its-part-is-lost",
        "jobs/rules/lifecycle/retry.py",
        "    if reducer and _exited_0(run):\n        return EndClass.TRANSIENT\n",
        "",
        (
            "tests/unit/jobs/rules/lifecycle/test_retry.py::"
            "test_a_reducer_that_exits_with_0_runs_the_whole_job_again",
        ),
    ),
    Safeguard(
        "numpy-is-asked-for-before-the-start",
        "jobs/preparations/kinds.py",
        ", EnvironmentKind(), NumpyKind())",
        ", EnvironmentKind())",
        (f"{NUMPY}::test_no_replica_starts_before_the_python_of_the_reducers_has_numpy",),
    ),
    Safeguard(
        "numpy-is-asked-for-in-an-image-that-is-there",
        "jobs/host_sync/prepared.py",
        "    found = found.exclude(reducer_python.waits_for_others(runs))\n",
        "",
        (f"{NUMPY}::test_an_image_is_asked_when_it_is_there",),
    ),
    Safeguard(
        "a-lost-trainer-is-no-lost-reducer",
        f"{HERE}/session.py",
        "            self.fail(GONE, ",
        "            self.fail(REDUCER_LOST, ",
        (f"{LOSSES}::test_a_killed_trainer_is_an_error_of_the_others_and_not_the_whole_job_again",),
    ),
    Safeguard(
        "a-reducer-says-that-it-is-there",
        f"{HERE}/reducer.py",
        "            peer.beat(now)\n",
        "            pass\n",
        (
            f"{TESTS}/test_links_and_peers.py::"
            "test_a_trainer_that_pauses_is_waited_for_however_much_the_others_have_sent",
        ),
    ),
    Safeguard(
        "a-stopped-reducer-leaves-last",
        f"{HERE}/reducer.py",
        "while not (self._leaving and not self._of and not self._greeted):",
        "while not self._leaving:",
        (f"{LOSSES}::test_a_reducer_that_is_stopped_serves_until_the_last_trainer_has_left",),
    ),
    Safeguard(
        "a-secret-is-proved",
        f"{HERE}/wire.py",
        '    if not hmac.compare_digest(proof, _proof(secret, b"trainer", nonce + hello)):\n',
        "    if not proof:\n",
        (f"{SUMS}::test_both_ends_prove_that_they_know_the_secret",),
    ),
    Safeguard(
        "what-is-no-number-stays-none",
        f"{HERE}/sums.py",
        "        rounded[nothing] = 0x7FC0\n",
        "        pass\n",
        (f"{SUMS}::test_bfloat16_rounds_to_even_and_keeps_what_is_no_number",),
    ),
    Safeguard(
        "sums-of-16-bits-in-32",
        f"{HERE}/sums.py",
        "return numpy.frombuffer(data, numpy.float16).astype(numpy.float32)",
        "return numpy.frombuffer(data, numpy.float16).copy()",
        (f"{SUMS}::test_the_mean_of_16_bits_is_made_in_32",),
    ),
    Safeguard(
        "a-trainer-that-is-waited-for-is-read",
        f"{HERE}/session.py",
        "        return any(peer.index in stream.missing() for stream in self.streams.values())\n",
        "        return False\n",
        (f"{SUMS}::test_a_trainer_far_ahead_waits_unless_the_others_wait_for_it",),
    ),
    Safeguard(
        "a-copy-is-waited-for",
        f"{HERE}/staging.py",
        "        done.synchronize()\n        return host, small\n",
        "        return host, small\n",
        (
            f"{TESTS}/test_staging.py::test_a_copy_is_read_when_it_is_whole_and_a_buffer_is_filled_again_when_it_is_read",
        ),
    ),
    Safeguard(
        "only-a-group-over-all-replicas",
        f"{HERE}/group.py",
        "    if set(replicas) != wanted:\n",
        "    if not replicas:\n",
        (f"{TESTS}/test_injection.py::test_only_a_group_over_all_replicas_goes_through_the_reducers",),
    ),
    Safeguard(
        "reducers-without-a-GPU",
        "jobs/rules/spec/reduction.py",
        "        if pool.machine.accelerator_count:\n",
        "        if False:\n",
        (
            "tests/unit/jobs/rules/spec/test_reduction.py::test_what_reducers_cannot_have_is_refused_at_its_field",
        ),
    ),
    Safeguard(
        "sums-in-the-order-of-the-trainers",
        f"{HERE}/session.py",
        "self._mean(heads, bucket.kind",
        "self._mean(heads[self.buckets % 2 :] + heads[: self.buckets % 2], bucket.kind",
        (f"{SUMS}::test_each_sum_begins_with_the_first_trainer",),
    ),
    Safeguard(
        "numbers-of-16-bits-are-rounded-and-not-cut",
        f"{HERE}/sums.py",
        "    wide += 0x7FFF\n",
        "",
        (f"{SUMS}::test_bfloat16_rounds_to_the_nearest_and_ties_to_even",),
    ),
    Safeguard(
        "ties-of-16-bits-go-to-even",
        f"{HERE}/sums.py",
        "    wide &= 1\n    wide += 0x7FFF\n",
        "    wide[...] = 0x8000\n",
        (f"{SUMS}::test_bfloat16_rounds_to_the_nearest_and_ties_to_even",),
    ),
    Safeguard(
        "a-sum-is-rounded-once",
        f"{HERE}/sums.py",
        "            total += decode(chunk, kind)\n",
        "            total = decode(encode(total + decode(chunk, kind), kind).tobytes(), kind)\n",
        (f"{SUMS}::test_a_sum_of_16_bits_is_rounded_once",),
    ),
    Safeguard(
        "trainers-without-inputs-are-not-counted",
        f"{HERE}/session.py",
        "max(1, senders) if first.by_senders else self.count",
        "self.count",
        (f"{SUMS}::test_those_without_inputs_are_counted_only_where_all_are",),
    ),
    Safeguard(
        "trainers-that-disagree",
        f"{HERE}/session.py",
        "            if head[:4] != first[:4]:\n",
        "            if False:\n",
        (f"{SUMS}::test_trainers_that_disagree_are_told_who_and_what",),
    ),
    Safeguard(
        "a-silent-reducer-is-lost",
        f"{HERE}/link.py",
        "            if way.lost:\n                self._lose(",
        "            if False:\n                self._lose(",
        (
            f"{TESTS}/test_links_and_peers.py::"
            "test_a_reducer_that_falls_silent_is_lost_and_one_that_is_heard_is_not",
        ),
    ),
    Safeguard(
        "a-mean-gets-into-its-bucket",
        f"{HERE}/exchange.py",
        "                tensor.copy_(small)\n            result.set_result(error or tensor)\n",
        "                pass\n            result.set_result(error or tensor)\n",
        (OPTIONS,),
    ),
    Safeguard(
        "the-programs-own-hook-wins",
        f"{HERE}/hook.py",
        "    if model.user is not None:\n        return model.user[1]",
        "    if False:\n        return model.user[1]",
        (OPTIONS,),
    ),
    Safeguard(
        "a-bucket-of-one-without-inputs-says-so",
        f"{HERE}/hook.py",
        "        model.shadows = True\n",
        "        pass\n",
        (OPTIONS,),
    ),
    Safeguard(
        "a-bucket-that-cannot-be-sent",
        f"{HERE}/exchange.py",
        '                    result.set_result(ReductionFailed("a bucket could not be sent: %r" % problem))\n',
        "                    pass\n",
        (f"{TESTS}/test_exchange.py::test_a_bucket_that_cannot_be_sent_is_an_error_and_no_hang",),
    ),
    Safeguard(
        "all-processes-of-a-replica-count",
        f"{HERE}/inside.py",
        "            dist.reduce(part, rank, group=self._group)\n",
        "",
        (OPTIONS,),
    ),
    Safeguard(
        "a-replica-gives-its-mean-to-all-inside",
        f"{HERE}/inside.py",
        "                dist.broadcast(part, rank, group=self._group)\n",
        "                pass\n",
        (OPTIONS,),
    ),
    Safeguard(
        "several-processes-are-divided-by-all",
        f"{HERE}/inside.py",
        "part[:-1].mul_(scale)",
        "part[:-1]",
        (OPTIONS,),
    ),
)
