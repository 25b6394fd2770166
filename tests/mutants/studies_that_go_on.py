"""Safeguards of studies that get more trials, learn from earlier ones, and tell what they cost and saved."""

from __future__ import annotations

from tests.mutants.safeguard import Safeguard

EXTENSION = "tests/unit/jobs/rules/tuning/test_extension.py"
EXTENDING = "tests/unit/jobs/tuning/test_extending.py"

PRIOR = "tests/unit/jobs/tuning/test_prior_studies.py"

SHADOW = "tests/unit/jobs/rules/tuning/test_shadow.py"
KEPT = "tests/unit/console/views/test_kept_studies.py"
SWEPT = "tests/unit/jobs/tuning/test_shadows.py"

STUDIES_THAT_GO_ON = (
    Safeguard(
        "pickles-of-others",
        "jobs/tuning/sampler_memory.py",
        "encrypt_fields(dict(memory))",
        "str(dict(memory)).encode()",
        (
            "tests/unit/jobs/tuning/test_samplers.py::test_what_cma_es_remembers_is_stored_sealed_with_its_trial",
        ),
    ),
    Safeguard(
        "samplers-that-are-not-installed",
        "jobs/tuning/tuning_jobs.py",
        "    _check_sampler(asked.study)\n",
        "",
        (
            "tests/unit/jobs/tuning/test_samplers.py::test_a_sampler_that_is_not_installed_is_refused_with_the_cure",
        ),
    ),
    Safeguard(
        "messages-of-studies-of-others",
        "jobs/notifications/create.py",
        "if STUDY in target.events and _about(target, study, members)",
        "if STUDY in target.events",
        (
            "tests/unit/jobs/tuning/test_ended_studies.py::test_who_did_not_ask_or_may_not_see_it_any_more_is_not_told",
        ),
    ),
    Safeguard(
        "verdicts-of-the-moment",
        "jobs/rules/tuning/stopping/shadow.py",
        "known[: bisect_right(ends, own.began_s + seconds[index])]",
        "known",
        (f"{SHADOW}::test_a_verdict_is_that_of_the_moment",),
    ),
    Safeguard(
        "outlooks-that-fail",
        "jobs/tuning/outlooks.py",
        "        TuningJob.every.filter(pk=tuning_job.pk).update(outlook_at=now)\n",
        "",
        (f"{SWEPT}::test_a_study_that_cannot_be_looked_at_is_not_tried_for_ever",),
    ),
    Safeguard(
        "earlier-studies-of-the-project-only",
        "jobs/tuning/prior_studies.py",
        "filter(pk=number, project=project)",
        "filter(pk=number)",
        (f"{PRIOR}::test_what_cannot_be_learnt_from_is_refused_with_its_place",),
    ),
    Safeguard(
        "results-of-earlier-studies",
        "jobs/tuning/drawing.py",
        "prior_studies.trials_of(tuning_job) if study.prior else ()",
        "()",
        (f"{PRIOR}::test_the_first_trial_knows_what_an_earlier_study_found",),
    ),
    Safeguard(
        "studies-that-would-end-at-once",
        "jobs/tuning/extending.py",
        "if why := refusal(view, asked, now):",
        "if why := '':",
        ("tests/unit/console/api/test_studies.py::test_a_refused_extension_names_its_field",),
    ),
    Safeguard(
        "secrets-of-an-extended-study",
        "jobs/tuning/extending.py",
        "        _bring_secrets_again(tuning_job, now)\n",
        "",
        (
            f"{EXTENDING}::test_stored_secrets_are_found_again",
            f"{EXTENDING}::test_secrets_that_came_with_the_study_cannot_be_found_again",
        ),
    ),
    Safeguard(
        "requests-of-extended-studies",
        "jobs/tuning/tuning_jobs.py",
        "if before.extended_at is None and counts != (",
        "if counts != (",
        (f"{EXTENDING}::test_the_request_that_made_an_extended_study_is_still_known",),
    ),
    Safeguard(
        "studies-about-to-end",
        "jobs/rules/tuning/extension.py",
        "if view.outcome is not None or view.cancel_requested:",
        "if False:",
        (f"{EXTENSION}::test_a_study_that_is_about_to_end_is_extended_later",),
    ),
    Safeguard(
        "a-kept-body-is-that-of-the-trials",
        "console/presenters/studies/drawn_body.py",
        "tuning_job.state, version_of(trials))",
        "tuning_job.state, len(trials))",
        (f"{KEPT}::test_whatever_becomes_of_a_trial_is_there_at_the_next_view",),
    ),
    Safeguard(
        "kept-scatter-is-that-of-the-trials",
        "console/presenters/studies/scatter_matrix.py",
        "get_language(), version_of(trials),",
        "get_language(), len(trials),",
        (f"{KEPT}::test_the_plots_of_other_tabs_are_those_of_the_trials",),
    ),
    Safeguard(
        "kept-plots-of-parameters-are-those-of-the-trials",
        "console/presenters/studies/parameter_plots.py",
        "get_language(), version_of(trials),",
        "get_language(), len(trials),",
        (f"{KEPT}::test_the_plots_of_other_tabs_are_those_of_the_trials",),
    ),
    Safeguard(
        "a-body-that-ticks-is-not-kept",
        "console/presenters/studies/drawn_body.py",
        "keep=lambda found: not found.ticks",
        "keep=lambda found: True",
        (f"{KEPT}::test_how_long_a_trial_has_been_running_is_never_older_than_the_view",),
    ),
    Safeguard(
        "what-still-holds-GPUs-is-not-remembered",
        "jobs/tuning/price.py",
        "keep=lambda found: bool(settled) and not found[1]",
        "keep=lambda found: bool(settled)",
        (f"{SWEPT}::test_what_trials_have_used_is_remembered_when_they_hold_nothing_any_more",),
    ),
)
