"""The safeguards that `make mutants` takes out, each with the tests that must fail then.

A safeguard is a few words of the code that protect against something rare: a race, a power cut, a host that lies. It
can be lost in a change that no ordinary test notices. Whoever adds one adds a line here.
"""

from __future__ import annotations

from tests.mutants.compiled import COMPILED
from tests.mutants.kept_on_hosts import KEPT_ON_HOSTS
from tests.mutants.logins import LOGINS
from tests.mutants.metrics import METRICS
from tests.mutants.packages_in_images import PACKAGES_IN_IMAGES
from tests.mutants.preparations import PREPARATIONS
from tests.mutants.races import RACES
from tests.mutants.reduction import REDUCTION
from tests.mutants.safeguard import Safeguard
from tests.mutants.shells import SHELLS
from tests.mutants.stored_files import STORED_FILES
from tests.mutants.studies_that_go_on import STUDIES_THAT_GO_ON
from tests.mutants.time_and_connections import TIME_AND_CONNECTIONS
from tests.mutants.tuning import TUNING

RUNNER = "tests/unit/agents/runner"
RULES = "tests/unit/jobs/rules/lifecycle"
LIFECYCLE = "tests/unit/jobs/lifecycle"
VIEWS = "tests/unit/console/views"


SAFEGUARDS = (
    Safeguard(
        "key-accepted-during-a-check",
        "agents/hosts/offered_key.py",
        "    if accepted and same_key(accepted, offered):\n        return False\n",
        "",
        (
            "tests/unit/agents/hosts/test_enrolment.py::"
            "test_a_key_that_is_accepted_during_a_check_does_not_wait_again",
        ),
    ),
    Safeguard(
        "note-of-a-key-that-is-shown-no-more",
        "agents/hosts/enrolment.py",
        "    offered_key.forget(host, now)\n    try:\n",
        "    try:\n",
        (
            "tests/unit/agents/hosts/test_offered_key.py::"
            "test_a_host_that_shows_its_accepted_key_again_loses_the_note",
        ),
    ),
    Safeguard(
        "pass-lock-of-a-move",
        "jobs/scheduling/reorder.py",
        "        lock_pass()\n",
        "",
        (f"{LIFECYCLE}/test_races.py::test_a_job_is_not_moved_in_the_middle_of_a_pass",),
        postgresql=True,
    ),
    Safeguard(
        "stamp-of-a-move",
        "jobs/scheduling/reorder.py",
        "if stamp(pins) != seen:",
        "if not seen:",
        ("tests/unit/jobs/scheduling/test_reorder.py::test_a_queue_that_changed_meanwhile_is_noticed",),
    ),
    # -- a clone runs the same --
    Safeguard(
        "same-bytes-of-a-clone",
        "jobs/services.py",
        "copied = cloned_from if same_bytes else None",
        "copied = None",
        (
            f"{VIEWS}/test_new_job_brings.py::test_a_clone_brings_the_same_bytes_unless_it_is_asked_for_new_ones",
        ),
    ),
    Safeguard(
        "only-own-jobs-are-cloned",
        "console/views/jobs/new_job.py",
        "rows = access.visible(request.user, Job.objects.filter(pk=int(named)))",
        "rows = Job.objects.filter(pk=int(named))",
        (f"{VIEWS}/test_new_job_brings.py::test_a_form_that_is_no_clone_or_of_a_job_of_others_says_nothing",),
    ),
    # -- a run is stopped whole, and proved so --
    Safeguard(
        "cgroup-kill",
        "agents/runner/runs/lifecycle.py",
        'try_write(os.path.join(self.facts["cgroup"], "cgroup.kill"), "1")',
        "pass",
        (f"{RUNNER}/test_cgroups.py::test_the_kernel_kills_what_no_search_finds",),
    ),
    Safeguard(
        "cgroup-in-the-search",
        "agents/runner/runs/lifecycle.py",
        '| cgroup_pids(self.facts["cgroup"])',
        "",
        (f"{RUNNER}/test_cgroups.py::test_a_stop_asks_every_process_of_the_cgroup_to_end",),
    ),
    Safeguard(
        "cgroup-in-the-proof",
        "agents/runner/runs/lifecycle.py",
        'or cgroup_pids(self.facts["cgroup"])',
        "",
        (f"{RUNNER}/test_cgroups.py::test_a_run_is_not_proved_closed_while_its_cgroup_holds_a_process",),
    ),
    Safeguard(
        "freeze-before-kill",
        "agents/runner/processes.py",
        "signal_process(process.pid, process.ticks, signal.SIGSTOP)",
        "pass",
        (f"{RUNNER}/test_stop.py::test_no_process_is_killed_before_all_are_frozen",),
    ),
    Safeguard(
        "start-ticks-of-a-pid",
        "agents/runner/processes.py",
        "if found is None or found.ticks != ticks:",
        "if found is None:",
        (f"{RUNNER}/test_stop.py::test_a_stranger_with_a_reused_pid_is_never_signalled",),
    ),
    Safeguard(
        "deadline-in-serve",
        "agents/runner/runs/claims.py",
        "run.stop = deadline if run.stop is None else min(run.stop, deadline)",
        "run.stop = deadline",
        (f"{RUNNER}/test_stop.py::test_serve_does_not_lengthen_a_deadline_that_it_cannot_write",),
    ),
    Safeguard(
        "deadline-in-the-file",
        "agents/runner/runs/claims.py",
        "run.stop = min(run.stop, read_deadline(directory) or run.stop)",
        "pass",
        (f"{RUNNER}/test_stop.py::test_a_later_stop_does_not_change_the_deadline_that_serve_has_written",),
    ),
    Safeguard(
        "deadline-in-the-keeper",
        "agents/runner/runs/lifecycle.py",
        "self.deadline = min(self.deadline, deadline)",
        "self.deadline = deadline",
        (f"{RUNNER}/test_stop.py::test_a_keeper_never_lets_a_later_stop_lengthen_its_deadline",),
    ),
    Safeguard(
        "descriptors-of-the-run-before",
        "agents/runner/runs/keeper_pair.py",
        "        close_all_but({0, 1, 2, self.outer.fileno()})\n",
        "",
        (f"{RUNNER}/test_keepers.py::test_a_keeper_takes_the_next_run_with_nothing_of_the_one_before",),
    ),
    Safeguard(
        "pair-whose-inner-keeper-was-killed",
        "agents/runner/runs/keeper_pair.py",
        "        while not os.waitpid(self.inner, os.WNOHANG)[0]:\n",
        "        while True:\n",
        (f"{RUNNER}/test_keepers.py::test_a_free_pair_of_which_one_is_killed_ends",),
    ),
    Safeguard(
        "locks-of-the-outer-keeper",
        "agents/runner/runs/keeper.py",
        ", *self.held.locks()])",
        "])",
        (
            f"{RUNNER}/test_keepers.py::"
            "test_a_killed_inner_keeper_frees_no_gpu_of_a_program_that_closed_what_it_inherited",
        ),
    ),
    Safeguard(
        "children-left-by-a-look",
        "agents/runner/runs/keeper.py",
        "if not has_no_child():",
        "if False:",
        (f"{RUNNER}/test_gpus.py::test_what_a_look_at_the_gpus_leaves_behind_is_none_of_the_runs_processes",),
    ),
    Safeguard(
        "event-of-a-pair-that-is-gone",
        "agents/runner/serve.py",
        "elif fd == self.out.fd and event &",
        "elif event &",
        (f"{RUNNER}/test_keepers.py::test_pairs_that_are_killed_while_a_start_waits_end_no_connection",),
    ),
    # -- a power cut --
    Safeguard(
        "claim-synced",
        "agents/runner/runs/keeper_pair.py",
        """            fsync_directory(self.home.runs)
            self.socket.send(SYNCED)""",
        """            self.socket.send(SYNCED)""",
        (f"{RUNNER}/test_power_cut.py::test_a_claim_is_synced_before_its_command_is_executed",),
    ),
    Safeguard(
        "documents-synced",
        "agents/runner/files.py",
        """        if durable:
            os.fsync(fd)""",
        "",
        (
            f"{RUNNER}/test_power_cut.py::test_an_end_is_synced_before_it_is_told",
            f"{RUNNER}/test_power_cut.py::test_a_tombstone_is_synced_before_it_is_told",
        ),
    ),
    Safeguard(
        "tombstone-synced",
        "agents/runner/runs/claims.py",
        "                fsync_directory(self.runs.require_home().runs)\n",
        "",
        (f"{RUNNER}/test_power_cut.py::test_a_tombstone_is_synced_before_it_is_told",),
    ),
    Safeguard(
        "segment-synced",
        "jobs/logs/storage.py",
        "        sync(path)\n",
        "",
        ("tests/unit/jobs/logs/test_power_cut.py",),
    ),
    Safeguard(
        "segment-directories-synced",
        "jobs/logs/storage.py",
        '[: name.count("/") + 1]',
        "[:1]",
        ("tests/unit/jobs/logs/test_power_cut.py",),
    ),
    # -- restarts and retries --
    Safeguard(
        "restart-waits",
        "jobs/rules/lifecycle/retry_waits.py",
        "_RESTART_UNITS = (0, 1, 2, 4, 8)",
        "_RESTART_UNITS = (0, 0, 0, 0, 0)",
        (
            f"{RULES}/test_retry_waits.py",
            f"{LIFECYCLE}/test_retry_waits.py::"
            "test_the_first_restart_is_at_once_and_the_second_waits_with_its_claims",
        ),
    ),
    Safeguard(
        "wait-of-a-clock-set-back",
        "jobs/rules/lifecycle/retry_waits.py",
        "now < until <= now + timedelta(seconds=unit_s * LONGEST_UNITS)",
        "now < until",
        (f"{RULES}/test_retry_waits.py::test_a_clock_that_is_set_back_makes_nothing_wait_for_hours",),
    ),
    Safeguard(
        "restart-limit",
        "jobs/rules/lifecycle/retry.py",
        "return replica.restarts < MAX_RESTARTS",
        "return True",
        (
            f"{RULES}/test_retry_waits.py",
            f"{RULES}/test_decide.py::test_the_sixth_loss_runs_the_whole_job_again",
        ),
    ),
    Safeguard(
        "no-attempt-beside-an-open-run",
        "jobs/rules/lifecycle/decide.py",
        "if not builder.case.open:",
        "if True:",
        (f"{RULES}/test_decide.py::test_no_attempt_begins_beside_a_run_on_an_unreachable_host",),
    ),
    # -- what is not the run's --
    Safeguard(
        "shared-memory-still-used",
        "agents/runner/runs/shared_memory.py",
        "if mine and name not in used:",
        "if mine:",
        (f"{RUNNER}/test_leftovers.py::test_what_another_process_still_uses_stays",),
    ),
    Safeguard(
        "shared-memory-by-inode",
        "agents/runner/runs/shared_memory.py",
        "found.st_ino == inode and ",
        "",
        (f"{RUNNER}/test_leftovers.py::test_a_note_that_a_replica_forged_removes_nothing_of_others",),
    ),
    Safeguard(
        "shared-memory-of-others",
        "agents/runner/runs/shared_memory.py",
        "if new - mine and not _others(own):",
        "if new - mine:",
        (f"{RUNNER}/test_leftovers.py::test_what_somebody_else_made_or_still_uses_is_left_alone",),
    ),
    Safeguard(
        "name-that-no-file-can-have",
        "agents/runner/runs/shared_memory.py",
        "with contextlib.suppress(OSError, ValueError):\n            found",
        "with contextlib.suppress(OSError):\n            found",
        (f"{RUNNER}/test_leftovers.py::test_a_note_that_a_replica_forged_removes_nothing_of_others",),
    ),
    Safeguard(
        "card-that-cannot-be-read",
        "agents/runner/host/cuda.py",
        'if any(len(row) in (2, 3) and not is_gpu(row[1]) and "lost" not in row[1] for row in rows):',
        "if False:",
        (
            f"{RUNNER}/test_host_env.py::test_only_cards_that_answer_are_counted_and_none_beside_one_in_mig_mode",
        ),
    ),
    Safeguard(
        "log-filled-to-its-old-size",
        "agents/runner/logs/shipper.py",
        "differs = self._tail.differs(self.fd)",
        "differs = False",
        (f"{RUNNER}/test_sent_tail.py::test_a_new_serve_sends_what_was_filled_in_again",),
    ),
    Safeguard(
        "log-over-which-its-program-writes",
        "agents/runner/logs/shipper.py",
        "if self._again < AGAIN_BYTES:",
        "if True:",
        (
            f"{RUNNER}/test_sent_tail.py::test_a_log_over_which_its_program_writes_is_sent_again_a_few_times_only",
        ),
    ),
    Safeguard(
        "log-of-before-a-power-cut",
        "agents/runner/logs/sent_tail.py",
        " and boot == _boot()",
        "",
        (f"{RUNNER}/test_sent_tail.py::test_what_a_host_lost_with_its_power_was_not_cut_by_the_program",),
    ),
    Safeguard(
        "punched-out-before-it-was-read",
        "agents/runner/logs/shipper.py",
        " and not self._tail.in_holes(holes)",
        "",
        (f"{RUNNER}/test_sent_tail.py::test_what_the_keeper_punched_out_was_not_cut_by_the_program",),
    ),
    Safeguard(
        "size-of-a-log-that-was-cut",
        "agents/runner/runs/known.py",
        "shift = self.shipper.shift()",
        "shift = 0",
        (
            f"{RUNNER}/test_logs.py"
            "::test_a_log_that_was_cut_and_filled_again_before_anybody_looked_is_sent_from_its_begin",
        ),
    ),
    *LOGINS,
    *METRICS,
    *REDUCTION,
    *PREPARATIONS,
    *KEPT_ON_HOSTS,
    *PACKAGES_IN_IMAGES,
    *RACES,
    *SHELLS,
    *COMPILED,
    *STORED_FILES,
    *TUNING,
    *STUDIES_THAT_GO_ON,
    *TIME_AND_CONNECTIONS,
)
