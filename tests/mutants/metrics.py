"""Safeguards of the metrics that programs report."""

from __future__ import annotations

from tests.mutants.safeguard import Safeguard

RUNNER = "tests/unit/agents/runner/test_metrics.py"
STORE = "tests/unit/jobs/metrics/test_metrics.py"
MAINTENANCE = "tests/unit/jobs/maintenance"
LIMITS = "tests/unit/agents/links/test_frame_limits.py"

METRICS = (
    Safeguard(
        "a-file-for-each-opening",
        "agents/runner/metrics/hypertune_file.py",
        "or self._is_being_opened():",
        "or False:",
        (f"{RUNNER}::test_ten_thousand_reports_in_a_tight_loop_lose_none",),
    ),
    Safeguard(
        "an-uncommitted-rest-does-not-count",
        "agents/runner/metrics/journal.py",
        "            os.ftruncate(fd, self.size)  # what a pass wrote that was killed before it said so\n"
        '            data = memoryview(b"".join(self._lines))\n            at = self.size\n',
        '            data = memoryview(b"".join(self._lines))\n            at = os.fstat(fd).st_size\n',
        (f"{RUNNER}::test_a_pass_that_is_killed_is_done_again",),
    ),
    Safeguard(
        "a-torn-record-waits",
        "agents/runner/metrics/tensorboard.py",
        '    if len(data) - at < whole:\n        return 0, b""\n',
        '    if len(data) - at < whole:\n        return whole, b""\n',
        (f"{RUNNER}::test_a_torn_tail_of_tensorboard_is_waited_for",),
    ),
    Safeguard(
        "only-the-next-piece",
        "jobs/metrics/intake.py",
        "    if piece.start != run.metrics_stored:\n        return set()\n",
        "",
        (f"{STORE}::test_pieces_are_stored_once_and_in_order_and_proved",),
    ),
    Safeguard(
        "kept-until-reports-are-here",
        "jobs/host_sync/wanted.py",
        " and bool(row.metrics_proof)",
        "",
        (f"{STORE}::test_a_run_is_not_forgotten_before_its_reports_are_here",),
    ),
    Safeguard(
        "host-kept-for-its-metrics",
        "jobs/host_sync/lost_hosts.py",
        'if closed.filter(metrics_proof="", forgotten_at=None).exists():',
        "if False:",
        (
            f"{MAINTENANCE}/test_remove_host.py::test_a_host_with_metrics_that_are_not_here_is_not_removed_while_it_answers",
            f"{MAINTENANCE}/test_edit_host.py::test_the_login_stays_until_everything_of_its_runs_is_here",
        ),
    ),
    Safeguard(
        "series-of-a-run-are-bounded",
        "jobs/metrics/points.py",
        "[: max(room, 0)]",
        "",
        (f"{STORE}::test_series_of_a_run_are_bounded",),
    ),
    Safeguard(
        "one-answer-for-each-question",
        "agents/links/frame_limits.py",
        "        self._metrics.discard(run)\n        return True\n",
        "        return True\n",
        (f"{LIMITS}::test_one_answer_comes_for_each_time_that_reports_are_asked_for",),
    ),
)
