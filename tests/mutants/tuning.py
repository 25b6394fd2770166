"""Safeguards of studies: of their documents, of what is suggested, and of what is stopped early."""

from __future__ import annotations

from tests.mutants.safeguard import Safeguard

RULES = "tests/unit/jobs/rules/tuning"
STUDIES = "tests/unit/jobs/tuning/test_tuning_jobs.py"
FAULTS = "tests/unit/jobs/tuning/test_faults_of_hosts.py"
SILENT_TRIAL = (
    "tests/unit/console/views/test_studies.py"
    "::test_a_trial_that_reports_another_metric_says_so_in_its_row_and_on_the_pages_of_its_job"
)
LOST = f"{RULES}/test_lost_trials.py"
DRAWING = "tests/unit/jobs/tuning/test_drawing.py"
SUGGESTED = f"{RULES}/search/test_suggest.py"
ANY_ROWS = f"{SUGGESTED}::test_whatever_the_rows_are_the_next_point_is_one_and_the_same"
PAGES = "tests/unit/console/views"
PIPELINES = "tests/unit/console/api/test_training_pipelines.py"
PROTECTED = f"{RULES}/test_early_stopping.py::test_what_protects_a_trial"

TUNING = (
    Safeguard(
        "scales-of-settled-results",
        "jobs/rules/tuning/search/bayesian.py",
        "return count - count % max(1, count // 10)",
        "return count",
        (f"{SUGGESTED}::test_scales_are_learnt_again_when_a_tenth_more_results_have_come",),
    ),
    Safeguard(
        "every-result-in-a-suggestion",
        "jobs/rules/tuning/search/bayesian.py",
        "for count in (own, settled(own)))",
        "for count in (settled(own), settled(own)))",
        (f"{SUGGESTED}::test_results_that_no_scales_were_learnt_of_are_given_to_the_model",),
    ),
    Safeguard(
        "faults-of-hosts-are-no-failures",
        "jobs/rules/tuning/failed_trials.py",
        "own = (each for each in _over(view) if not each.ending.by_hosts)",
        "own = (each for each in _over(view))",
        (f"{LOST}::test_no_rule_of_failed_trials_counts_a_fault_of_hosts",),
    ),
    Safeguard(
        "faults-of-hosts-teach-nothing",
        "jobs/tuning/snapshot.py",
        "by_hand or ending.by_hosts or",
        "by_hand or",
        (f"{FAULTS}::test_a_trial_that_a_host_could_not_start_is_tried_again_with_its_parameters",),
    ),
    Safeguard(
        "lost-trials-in-no-count",
        "jobs/rules/tuning/lost_trials.py",
        "[each for each in trials if each.ending is not Ending.HOSTS]",
        "list(trials)",
        (f"{LOST}::test_lost_trials_are_in_no_count_and_those_given_up_are_in_the_count_of_trials",),
    ),
    Safeguard(
        "points-that-are-given-up",
        "jobs/rules/tuning/lost_trials.py",
        "_tries_before(lost, trials) + 1 >= TRIES:",
        "_tries_before(lost, trials) + 1 >= 9:",
        (f"{LOST}::test_the_third_try_of_a_point_is_the_last",),
    ),
    Safeguard(
        "a-study-waits-on-broken-hosts",
        "jobs/rules/tuning/lost_trials.py",
        "if len(lost) < IN_A_ROW:",
        "if True:",
        (f"{LOST}::test_after_three_in_a_row_it_waits_and_says_why",),
    ),
    Safeguard(
        "one-trial-asks-broken-hosts",
        "jobs/rules/tuning/lost_trials.py",
        "return not pause.trying and",
        "return",
        (f"{LOST}::test_one_trial_at_a_time_finds_out_whether_hosts_work_again",),
    ),
    Safeguard(
        "parameters-that-are-tried-again",
        "jobs/rules/tuning/search/suggest.py",
        "if again is not None:",
        "if False:",
        (f"{FAULTS}::test_a_grid_has_each_of_its_points_although_hosts_failed_under_some",),
    ),
    Safeguard(
        "a-silent-timeout-is-a-failed-first-trial",
        "jobs/rules/tuning/failed_trials.py",
        "trial.job is JobState.SUCCEEDED or trial.ending is Ending.TIMEOUT",
        "trial.job is JobState.SUCCEEDED",
        (f"{FAULTS}::test_a_first_trial_that_times_out_without_a_metric_ends_the_study",),
    ),
    Safeguard(
        "a-silent-timeout-repels-the-search",
        "jobs/tuning/snapshot.py",
        "by_rule = trial.stopped_early or ending is Ending.TIMEOUT",
        "by_rule = trial.stopped_early",
        (f"{FAULTS}::test_a_search_goes_elsewhere_after_a_trial_that_timed_out_without_a_metric",),
    ),
    Safeguard(
        "defaults-are-the-first-of-a-grid",
        "jobs/rules/tuning/search/suggest.py",
        "    if first is not None:\n        return first\n    tried",
        "    tried",
        (f"{SUGGESTED}::test_defaults_are_the_first_trial_of_a_grid_which_still_has_each_point_once",),
    ),
    Safeguard(
        "thresholds-that-nobody-looks-at",
        "jobs/rules/tuning/study_advice.py",
        "    yield from _thresholds(study)\n",
        "",
        (
            f"{PAGES}/test_new_study.py::test_fields_without_effect_are_told_beside_the_form_and_after_the_submit",
        ),
    ),
    Safeguard(
        "fields-without-effect-beside-the-form",
        "console/presenters/studies/study_summary.py",
        "return tuple(map(shown, study_advice(asked.study, asked.trial_spec)))",
        "return ()",
        (
            f"{PAGES}/test_new_study.py::test_fields_without_effect_are_told_beside_the_form_and_after_the_submit",
        ),
    ),
    Safeguard(
        "silent-trials-in-their-rows",
        "console/presenters/studies/trial_rows.py",
        "silent_trials.of_jobs(study, late) if late else {}",
        "{}",
        (SILENT_TRIAL,),
    ),
    Safeguard(
        "silent-trials-on-the-pages-of-their-jobs",
        "jobs/tuning/silent_trials.py",
        "if _is_late(row, now) else {}",
        "if False else {}",
        (SILENT_TRIAL,),
    ),
    Safeguard(
        "averages-of-all-that-was-measured",
        "jobs/rules/tuning/stopping/curves.py",
        "return self.averages[-1] if self.averages else fmean(self.costs)",
        "return fmean(self.costs)",
        (f"{RULES}/test_early_stopping.py::test_a_spike_in_a_long_curve_stops_nobody_and_spares_nobody",),
    ),
    Safeguard(
        "a-seed-that-the-form-would-lose",
        "console/forms/studies.py",
        'if "trainyard" in document:',
        "if False:",
        (f"{PAGES}/test_new_study.py::test_a_study_with_a_seed_stays_json",),
    ),
    Safeguard(
        "the-seed-that-was-asked-for",
        "jobs/tuning/tuning_jobs.py",
        "secrets.randbits(asked_for.SEED_BITS) if asked.seed is None else asked.seed",
        "secrets.randbits(asked_for.SEED_BITS)",
        (f"{STUDIES}::test_the_same_seed_draws_the_same_parameters",),
    ),
    Safeguard(
        "the-seed-of-a-request-that-comes-again",
        "jobs/tuning/tuning_jobs.py",
        "seed = before.seed if asked.seed is None else asked.seed",
        "seed = before.seed",
        (f"{STUDIES}::test_a_request_that_comes_again_asks_for_the_same_seed_or_for_any",),
    ),
    Safeguard(
        "peers-of-what-its-host-lost",
        "jobs/rules/lifecycle/retry.py",
        "INVALID_ARGUMENT if known and not by_host else UNAVAILABLE",
        "INVALID_ARGUMENT if known else UNAVAILABLE",
        (
            "tests/unit/jobs/rules/lifecycle/test_first_lost.py"
            "::test_the_errors_of_the_peers_of_a_replica_that_its_host_lost_are_no_mistake_in_the_job",
        ),
    ),
    Safeguard(
        "model-of-the-best-trial",
        "jobs/pipelines/registry.py",
        "best_trial(study_of(pipeline.tuning_job), finals)",
        "min(finals, default=None)",
        (f"{PIPELINES}::test_a_pipeline_that_tunes_leaves_the_model_of_its_best_trial",),
    ),
    Safeguard(
        "model-of-nothing",
        "jobs/pipelines/registry.py",
        "elif not upload.artifact_uri and model_files.is_known_to_be_empty(job):",
        "elif False:",
        (
            f"{PIPELINES}::test_a_training_that_wrote_no_model_is_a_pipeline_that_failed",
            f"{PIPELINES}::test_a_best_trial_that_wrote_no_model_is_a_pipeline_that_failed",
        ),
    ),
    Safeguard(
        "model-that-is-still-on-its-host",
        "jobs/pipelines/model_files.py",
        "if left.exists() or state.left_on_hosts([job.pk]):",
        "if False:",
        (f"{PIPELINES}::test_a_model_directory_that_nobody_can_look_into_is_recorded",),
    ),
    Safeguard(
        "pipeline-that-waits-for-no-model",
        "jobs/pipelines/pipelines.py",
        "JobState.FAILED if pipeline.without_model else JobState.RUNNING",
        "JobState.RUNNING",
        (f"{PIPELINES}::test_a_pipeline_that_tunes_fails_without_a_best_trial_and_says_so",),
    ),
    Safeguard(
        "disjoint-conditions",
        "jobs/rules/tuning/parse_parameters.py",
        "yield from seen & names",
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
        "values-of-conditions-in-all",
        "jobs/rules/tuning/parse_parameters.py",
        "> MAX_PARENT_VALUES",
        "< 0",
        (f"{RULES}/test_parse_study.py::test_as_many_values_of_conditions_as_are_possible_cost_little",),
    ),
    Safeguard(
        "categories-in-all",
        "jobs/rules/tuning/parse_parameters.py",
        "> MAX_CATEGORIES",
        "< 0",
        (f"{RULES}/test_parse_study.py::test_more_categories_than_a_model_can_learn_from_are_refused",),
    ),
    Safeguard(
        "trials-of-people-who-lost-the-right",
        "jobs/tuning/trials.py",
        "if not members.may_submit(tuning_job.project, owner):",
        "if False:",
        (f"{STUDIES}::test_a_study_whose_owner_may_not_submit_any_more_gets_no_trials",),
    ),
    Safeguard(
        "places-of-trials-without-a-point",
        "jobs/tuning/advance.py",
        "services.cancel(trial.job, TRAINYARD, clock.now(), NO_POINT_LEFT)",
        "pass",
        (f"{STUDIES}::test_a_trial_for_which_no_point_is_left_gives_up_its_place",),
    ),
    Safeguard(
        "trials-without-parameters-in-a-pass",
        "jobs/rules/scheduling/policy.py",
        "self.starting += not job.undrawn",
        "self.starting += 1",
        (f"{STUDIES}::test_trials_that_wait_for_their_parameters_keep_no_job_from_its_turn",),
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
        "jobs/rules/tuning/search/bayesian.py",
        "if not taken(codes):",
        "if True:",
        (f"{SUGGESTED}::test_the_best_point_does_not_come_again_although_the_model_likes_it_most",),
    ),
    Safeguard(
        "parameters-that-are-not-active",
        "jobs/rules/tuning/search/columns.py",
        "if parent >= 0:",
        "if False:",
        (f"{RULES}/search/test_columns.py::test_each_drawn_or_changed_row_is_a_point",),
    ),
    Safeguard(
        "values-that-are-no-numbers",
        "jobs/rules/tuning/search/warping.py",
        "np.where(np.isfinite(values), np.clip(values, -_HUGE, _HUGE), self.worst)",
        "values",
        (f"{RULES}/search/test_gaussian_process.py::test_any_values_become_small_numbers_in_the_same_order",),
    ),
    Safeguard(
        "running-trials-in-a-suggestion",
        "jobs/rules/tuning/search/bayesian.py",
        "believing(process, data.values, believed) for",
        "process for",
        (f"{SUGGESTED}::test_a_trial_that_runs_where_the_next_would_be_sends_it_elsewhere",),
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
        "all-reports-before-a-trial-is-over",
        "jobs/rules/tuning/ended_trials.py",
        "not _is_awaited(trial, now, cancelled)",
        "True",
        (
            f"{RULES}/test_decide.py::test_a_trial_is_not_over_before_all_its_reports_are_here",
            "tests/unit/jobs/tuning/test_tuning_jobs.py::test_a_trial_waits_for_its_last_reports",
        ),
    ),
    Safeguard(
        "nothing-runs-under-a-study-that-is-over",
        "jobs/rules/tuning/decide.py",
        "if not _live(view):\n            return",
        "if True:\n            return",
        (f"{RULES}/test_decide.py::test_a_cancelled_study_waits_until_all_its_jobs_are_over",),
    ),
    Safeguard(
        "the-queue-is-no-runtime",
        "jobs/rules/tuning/study_end.py",
        "if started_at else None",
        "if started_at else datetime.fromisoformat('2000-01-01T00:00:00+00:00')",
        (f"{RULES}/test_decide.py::test_the_time_in_the_queue_is_no_runtime",),
    ),
    Safeguard(
        "no-waiting-for-a-host-that-is-gone",
        "jobs/tuning/measured.py",
        "Q(metrics_read__isnull=False)) & ~gone",
        "Q(metrics_read__isnull=False))",
        (
            "tests/unit/jobs/tuning/test_measured.py::test_nothing_is_waited_for_of_a_host_that_was_declared_gone",
        ),
    ),
    Safeguard(
        "no-waiting-for-a-run-that-was-forgotten",
        "jobs/tuning/measured.py",
        'Q(metrics_proof="", forgotten_at=None)',
        'Q(metrics_proof="")',
        (
            "tests/unit/jobs/tuning/test_measured.py::test_nothing_is_waited_for_of_a_run_that_its_host_has_forgotten",
        ),
    ),
    Safeguard(
        "one-thread-of-numpy",
        "console/settings.py",
        'os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")',
        "pass",
        ("tests/unit/console/runtime/test_threads_of_arrays.py",),
    ),
    Safeguard(
        "secrets-of-a-study-form",
        "console/forms/studies.py",
        "data[self.add_prefix(name)] = as_text(document)",
        "pass",
        (f"{PAGES}/test_new_study.py::test_values_of_secrets_do_not_come_back",),
    ),
    Safeguard(
        "aliases-of-a-pasted-space",
        "console/forms/study_rows/pasted_space.py",
        "if self.check_event(yaml.events.AliasEvent):",
        "if False:",
        ("tests/unit/console/forms/test_pasted_space.py",),
    ),
    Safeguard(
        "what-a-pasted-space-loses",
        "console/forms/study_rows/pasted_space.py",
        "    if more:",
        "    if False:",
        ("tests/unit/console/forms/test_pasted_space.py",),
    ),
    Safeguard(
        "values-of-a-trial-in-another-study",
        "console/views/studies/new_study.py",
        "job.spec if trial is None else trial.tuning_job.trial_spec",
        "job.spec",
        (f"{PAGES}/test_new_study.py::test_tune_on_the_job_of_a_trial_takes_over_no_values_of_that_trial",),
    ),
    Safeguard(
        "ranges-of-the-files-of-trials",
        "console/presenters/studies/trial_files.py",
        "inside = axes.inside(trials)",
        "inside = trials",
        (f"{PAGES}/test_studies.py::test_ranges_of_axes_filter_the_table_the_lines_and_the_files",),
    ),
    Safeguard(
        "who-cancels-a-study",
        "console/views/studies/studies.py",
        'study = found(request, tuning_id, "cancel")',
        "study = found(request, tuning_id)",
        (f"{PAGES}/test_studies.py::test_its_owner_cancels_it_and_deletes_it_when_it_is_over",),
    ),
    Safeguard(
        "formulas-in-trials",
        "console/presenters/studies/trial_rows.py",
        "csv_cells.plain(value) if isinstance(value, str) else value",
        "value",
        (f"{PAGES}/test_studies.py::test_the_trials_are_there_as_csv",),
    ),
    Safeguard(
        "drawn-together-as-one-after-the-other",
        "jobs/tuning/drawing.py",
        "        known[trial.number] = replace(\n",
        "        replace(\n",
        (f"{DRAWING}::test_they_are_drawn_as_one_after_the_other",),
    ),
    Safeguard(
        "drawn-beside-a-trial-that-was-cancelled",
        "jobs/tuning/drawing.py",
        "            break\n        written.append(trial)",
        "            continue\n        written.append(trial)",
        (f"{DRAWING}::test_those_behind_one_that_was_cancelled_meanwhile_are_drawn_again",),
    ),
    Safeguard(
        "results-before-parameters",
        "jobs/tuning/advance.py",
        "    _read_last_lines(pk, clock.now())\n",
        "    _draw(pk, clock)\n    _read_last_lines(pk, clock.now())\n",
        (f"{DRAWING}::test_a_study_draws_with_what_has_ended_by_then",),
    ),
    Safeguard(
        "one-look-for-many-hints",
        "jobs/tasks.py",
        "tuner.put(ids)",
        "tuner.advance(ids, Clock())",
        ("tests/unit/jobs/tuning/test_tuner.py::test_a_hint_leaves_the_study_to_the_tuner",),
    ),
    Safeguard(
        "late-reports-wake-a-study",
        "jobs/host_sync/intake.py",
        "    return (measured - ending) | (set(_over.column(jobs=list(ending))) if ending else set())",
        "    return measured - ending",
        (
            "tests/unit/jobs/tuning/test_ended_trials_are_seen.py"
            "::test_reports_that_come_with_a_fact_after_its_end_wake_the_study",
        ),
    ),
    Safeguard(
        "queries-of-a-study-do-not-grow",
        "jobs/tuning/drawing.py",
        "if trial.state in FINISHED or",
        "if trial.job.undrawn is None or",
        ("tests/unit/jobs/tuning/test_many_trials.py",),
    ),
    Safeguard(
        "front-of-two-objectives",
        "jobs/rules/tuning/measurements.py",
        "front[-1:] if len(own) == 2 else front",
        "front",
        (
            f"{RULES}/test_measurements.py::test_the_front_of_two_objectives_takes_one_comparison_for_each_trial",
        ),
    ),
    Safeguard(
        "the-seed-of-the-study",
        "jobs/tuning/drawing.py",
        "trial.number, tuning_job.seed)",
        'trial.number, __import__("secrets").randbits(63))',
        (f"{STUDIES}::test_the_same_seed_draws_the_same_parameters",),
    ),
    Safeguard(
        "parameters-before-the-order",
        "jobs/tuning/drawing.py",
        "    _trial(trial=trial.pk, parameters=point, why=why, sampler_sealed=memory)\n",
        "    row = dict(trial=trial.pk, parameters=point, why=why, sampler_sealed=memory)\n"
        "    transaction.on_commit(lambda: _trial(**row))\n",
        (f"{DRAWING}::test_a_process_that_dies_while_it_writes_leaves_no_job_without_parameters",),
    ),
    Safeguard(
        "a-moved-trial-has-not-failed",
        "jobs/rules/lifecycle/retry.py",
        "return EndClass.STOPPED if run.stop_wanted_at else EndClass.NOT_PERMANENT",
        "return EndClass.USER_ERROR",
        ("tests/unit/jobs/rules/lifecycle/test_moves.py",),
    ),
    Safeguard(
        "a-lost-trial-has-not-failed",
        "jobs/rules/lifecycle/retry.py",
        '    if run.why in ("lost", "reboot"):\n        return EndClass.NOT_PERMANENT\n',
        '    if run.why in ("lost", "reboot"):\n        return EndClass.USER_ERROR\n',
        ("tests/unit/jobs/rules/lifecycle/test_retry.py::test_every_end_has_its_class",),
    ),
)
