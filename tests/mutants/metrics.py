"""Safeguards of the metrics that programs report."""

from __future__ import annotations

from tests.mutants.safeguard import Safeguard

RUNNER = "tests/unit/agents/runner/test_metrics.py"
LAST = "tests/unit/agents/runner/test_last_metrics.py"
STORE = "tests/unit/jobs/metrics/test_metrics.py"
MAINTENANCE = "tests/unit/jobs/maintenance"
DIRECTORIES = "tests/unit/agents/runner/test_metric_directories.py"
LOGGED = "tests/unit/jobs/metrics/test_logged.py"
STUDIES = "tests/unit/jobs/tuning/test_tuning_jobs.py"
LIMITS = "tests/unit/agents/links/test_frame_limits.py"

METRICS = (
    Safeguard(
        "a-file-for-each-opening",
        "agents/runner/metrics/hypertune_file.py",
        "or self._is_being_opened():",
        "or False:",
        (f"{RUNNER}::test_thousands_of_reports_in_a_tight_loop_lose_none",),
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
        "no-end-before-the-run-is-over",
        "agents/runner/metrics/pull.py",
        "        self.is_final = is_final and run.closed\n",
        "        self.is_final = is_final\n",
        (f"{LAST}::test_no_end_is_told_before_the_run_is_over",),
    ),
    Safeguard(
        "a-keeper-waits-for-no-disk-of-a-program",
        "agents/runner/metrics/collect.py",
        "    if may_use_directories(base, directory, facts):\n        return True\n",
        "",
        (f"{LAST}::test_a_keeper_looks_into_no_directory_of_its_program",),
    ),
    Safeguard(
        "every-run-has-a-directory-for-tensorboard",
        "agents/runner/metrics/collect.py",
        " or self._in_work(TENSORBOARD_DIRECTORY)\n",
        "\n",
        (
            f"{DIRECTORIES}::test_a_run_that_was_told_no_directory_for_TensorBoard_has_one_in_its_work_directory",
        ),
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
        "no-link-of-a-container",
        "agents/runner/metrics/directories.py",
        "os.O_RDONLY | kind | os.O_NOFOLLOW | os.O_NONBLOCK",
        "os.O_RDONLY | kind | os.O_NONBLOCK",
        (f"{DIRECTORIES}::test_no_link_leads_out_of_the_directory_of_a_container",),
    ),
    Safeguard(
        "only-what-a-container-has",
        "agents/runner/metrics/places.py",
        "            return Place(source, path[len(target) + 1 :])\n    return None\n",
        '            return Place(source, path[len(target) + 1 :])\n    return Place(path, "")\n',
        (f"{DIRECTORIES}::test_a_container_gets_nothing_that_it_cannot_see",),
    ),
    Safeguard(
        "a-state-read-under-its-lock",
        "agents/runner/metrics/journal.py",
        "        self._read_state()  # another pass may have written it since\n",
        "",
        (f"{RUNNER}::test_a_pass_that_was_made_before_another_one_goes_on_behind_it",),
    ),
    Safeguard(
        "a-faulty-line-does-not-come-again",
        "jobs/metrics/logged.py",
        '        went_on = _store(run, "", None if is_last else to, now, is_awaited)\n',
        "        return False\n",
        (f"{LOGGED}::test_bytes_that_cannot_be_read_for_metrics_hold_up_nothing",),
    ),
    Safeguard(
        "a-deleted-job-is-not-waited-for",
        "jobs/metrics/points.py",
        "    give_up(runs)\n",
        "",
        (f"{STUDIES}::test_a_study_whose_trial_is_deleted_goes_on",),
    ),
    Safeguard(
        "one-answer-for-each-question",
        "agents/links/frame_limits.py",
        "        self._metrics.discard(run)\n        if kind",
        "        if kind",
        (f"{LIMITS}::test_one_answer_comes_for_each_time_that_reports_are_asked_for",),
    ),
)
