"""Safeguards of studies: of their documents, of what is suggested, and of what is stopped early."""

from __future__ import annotations

from tests.mutants.safeguard import Safeguard

RULES = "tests/unit/jobs/rules/tuning"
SUGGESTED = f"{RULES}/test_suggest.py"
ANY_ROWS = f"{SUGGESTED}::test_whatever_the_rows_are_the_next_point_is_one_and_the_same"
PROTECTED = f"{RULES}/test_early_stopping.py::test_what_protects_a_trial"

TUNING = (
    Safeguard(
        "disjoint-conditions",
        "jobs/rules/tuning/parse_parameters.py",
        "yield from _names(one.parameter) & _names(other.parameter)",
        "yield from ()",
        (f"{RULES}/test_parse_study.py::test_parameters_of_one_name_need_disjoint_conditions",),
    ),
    Safeguard(
        "depth-of-conditions",
        "jobs/rules/tuning/parse_parameters.py",
        "depth >= MAX_DEPTH",
        "False",
        (f"{RULES}/test_parse_study.py::test_parameters_that_are_nested_too_deep_are_refused",),
    ),
    Safeguard(
        "trials-without-an-order-of-rows",
        "jobs/rules/tuning/trials.py",
        "return sorted(trials, key=lambda trial: trial.number)",
        "return list(trials)",
        (ANY_ROWS,),
    ),
    Safeguard(
        "points-that-were-tried",
        "jobs/rules/tuning/bayesian.py",
        "if not taken(codes):",
        "if True:",
        (f"{SUGGESTED}::test_a_finite_space_is_searched_to_its_end_and_no_point_comes_twice",),
    ),
    Safeguard(
        "parameters-that-are-not-active",
        "jobs/rules/tuning/columns.py",
        "if parent >= 0:",
        "if False:",
        (f"{RULES}/test_columns.py::test_each_drawn_or_changed_row_is_a_point",),
    ),
    Safeguard(
        "values-that-are-no-numbers",
        "jobs/rules/tuning/warping.py",
        "np.where(np.isfinite(values), np.clip(values, -_HUGE, _HUGE), self.worst)",
        "values",
        (f"{RULES}/test_gaussian_process.py::test_any_values_become_small_numbers_in_the_same_order",),
    ),
    Safeguard(
        "running-trials-in-a-suggestion",
        "jobs/rules/tuning/bayesian.py",
        "believing(process, data.values, columns.encode(running)) for",
        "process for",
        (f"{SUGGESTED}::test_trials_that_run_at_once_are_apart",),
    ),
    Safeguard(
        "cancelled-trials-teach-nothing",
        "jobs/rules/tuning/trials.py",
        "self.state is TrialState.INFEASIBLE and not self.cancelled",
        "self.state is TrialState.INFEASIBLE",
        (f"{SUGGESTED}::test_a_cancelled_trial_teaches_nothing_and_its_point_does_not_come_again",),
    ),
    Safeguard(
        "best-trial-is-not-stopped",
        "jobs/rules/tuning/stopping/early_stopping.py",
        "if curve.best <= min(each.final for each in known):",
        "if False:",
        (PROTECTED,),
    ),
    Safeguard(
        "enough-measurements-before-a-stop",
        "jobs/rules/tuning/stopping/early_stopping.py",
        "len(curve.at) < early.min_measurements or ",
        "",
        (PROTECTED,),
    ),
    Safeguard(
        "one-thread-of-numpy",
        "console/settings.py",
        'os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")',
        "pass",
        ("tests/unit/console/runtime/test_threads_of_arrays.py",),
    ),
)
