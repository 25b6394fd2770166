"""Safeguards of what a host keeps: images of archives, the names that they take, and what an admin may remove."""

from __future__ import annotations

from tests.mutants.safeguard import Safeguard

ARCHIVES = "tests/unit/agents/runner/test_image_archives.py"
NAMES = "tests/unit/agents/runner/test_archive_names.py"
KEPT = "tests/unit/agents/runner/test_kept.py"
LEFT = "tests/unit/agents/runner/test_leftovers.py"
KEPT_PAGE = "tests/unit/console/views/test_kept.py"
LOADED = "tests/unit/agents/runner/runtimes/test_loaded_images.py"
STORED = "tests/unit/jobs/preparations/test_stored_images.py"

KEPT_ON_HOSTS = (
    Safeguard(
        "loaded-images-alone-thrown-away",
        "agents/runner/runtimes/loaded_images.py",
        "    elif is_key(image) and os.path.exists(_path(home, engine, image)):\n",
        "    elif is_key(image):\n",
        (f"{LOADED}::test_the_images_of_others_are_not_thrown_away",),
    ),
    Safeguard(
        "images-that-were-there-before-a-pull",
        "agents/runner/preparations/images.py",
        ' and there is not None and pulled["id"] not in there:',
        ":",
        ("tests/unit/agents/runner/test_pulls.py::test_an_image_that_was_here_before_is_not_ours",),
    ),
    Safeguard(
        "loaded-image-used-while-others-are-removed",
        "agents/runner/runtimes/loaded_images.py",
        "    if _look(path) != seen:\n",
        "    if False:\n",
        (f"{LOADED}::test_an_image_that_is_used_while_others_are_removed_stays",),
    ),
    Safeguard(
        "use-noted-while-a-loaded-image-is-removed",
        "agents/runner/runtimes/loaded_images.py",
        "    if _look(path) == seen:\n",
        "    if True:\n",
        (f"{LOADED}::test_a_use_that_is_noted_while_the_image_is_removed_stays_noted",),
    ),
    Safeguard(
        "names-of-users-after-an-archive",
        "agents/runner/preparations/images.py",
        "                    give_all_back(home)\n",
        "                    pass\n",
        (f"{ARCHIVES}::test_names_come_back_though_the_image_cannot_get_ours",),
    ),
    Safeguard(
        "names-of-users-after-a-kill",
        "agents/runner/preparations/archive_names.py",
        '        self.earlier = note.get("before", self.now)\n',
        "        self.earlier = self.now\n",
        (f"{NAMES}::test_a_second_kill_loses_no_name",),
    ),
    Safeguard(
        "names-of-users-when-a-runner-starts",
        "agents/runner/preparations/tasks.py",
        "            self.send(kind, key)\n        self.look_after_names(home)\n",
        "            self.send(kind, key)\n        self.names_at = time.monotonic() + NAMES_EVERY_S\n",
        (f"{ARCHIVES}::test_names_come_back_when_the_runner_starts_after_a_kill",),
    ),
    Safeguard(
        "names-of-users-before-they-are-asked-for",
        "agents/runner/preparations/images.py",
        "        give_all_back(home)\n        return look_up(",
        "        return look_up(",
        (f"{ARCHIVES}::test_names_come_back_before_another_image_is_prepared",),
    ),
    Safeguard(
        "names-of-other-images-while-an-archive-is-loaded",
        "agents/runner/preparations/images.py",
        "    return look_up_by_name(program, image, env, report, home)\n",
        "    return look_up(program, image, env)\n",
        (f"{NAMES}::test_a_name_is_looked_up_when_no_archive_has_it",),
    ),
    Safeguard(
        "names-of-users-while-an-archive-is-loaded",
        "agents/runner/preparations/archive_names.py",
        "            if is_held:\n",
        "            if True:\n",
        (f"{NAMES}::test_nothing_is_given_back_while_an_archive_is_loaded_by_any_deployment",),
    ),
    Safeguard(
        "names-that-somebody-has-given-since",
        "agents/runner/preparations/archive_names.py",
        '    if image not in note.get("digests", []) or image',
        "    if image",
        (f"{NAMES}::test_only_names_that_the_archive_claims_and_that_mean_its_image_are_taken_back",),
    ),
    Safeguard(
        "kept-files-that-a-run-uses",
        "agents/runner/cache/kept.py",
        '    fd = cache.try_to_own(kind, key)\n    if fd < 0:\n        return "it is in use on the host"\n',
        "    fd = os.open(os.devnull, os.O_RDONLY)\n",
        (f"{KEPT}::test_what_nothing_uses_is_removed_and_what_is_used_stays",),
    ),
    Safeguard(
        "kept-files-that-a-job-needs",
        "jobs/maintenance/kept.py",
        "    if live:\n",
        "    if False:\n",
        (f"{KEPT_PAGE}::test_what_is_needed_stays_with_the_reason",),
    ),
    Safeguard(
        "names-of-kept-files-of-other-projects",
        "console/presenters/hosts/kept_files.py",
        "    seen = [use for use in uses if use.project in mine]\n",
        "    seen, mine = uses, {use.project: str(use.job) for use in uses}\n",
        (f"{KEPT_PAGE}::test_strangers_learn_nothing_of_what_other_projects_use",),
    ),
    Safeguard(
        "names-of-users-where-none-can-be-listed",
        "agents/runner/preparations/archive_names.py",
        "        if status or len(output) >= MAX_OUTPUT:\n",
        "        if False:\n",
        (f"{ARCHIVES}::test_nothing_is_loaded_while_the_names_cannot_be_listed",),
    ),
    Safeguard(
        "bytes-of-a-stored-image-kept",
        "jobs/preparations/brought.py",
        'pool.get("code", {}), pool.get(ARCHIVE, {})]',
        'pool.get("code", {})]',
        (f"{STORED}::test_each_host_is_shipped_the_bytes_and_starts_the_image_of_their_name",),
    ),
    Safeguard(
        "stored-image-of-a-copied-job",
        "jobs/preparations/brought.py",
        "archive = before.get((ARCHIVE, uri)) or _archive(",
        "archive = _archive(",
        (f"{STORED}::test_an_object_that_is_replaced_changes_no_job_and_no_copy_of_it",),
    ),
    Safeguard(
        "stored-sif-file-for-another-engine",
        "jobs/rules/spec/runtime_choice.py",
        "engine in (PODMAN, DOCKER) and needs_apptainer(pool.task.image)",
        "False",
        (f"{STORED}::test_a_sif_file_for_another_engine_is_refused_with_the_cure",),
    ),
    Safeguard(
        "archive-of-several-images",
        "agents/runner/preparations/image_archives.py",
        "if len(images) > 1:",
        "if False:",
        (f"{ARCHIVES}::test_what_holds_no_image_or_several_is_the_users_fault",),
    ),
    Safeguard(
        "archive-with-the-name-of-another",
        "agents/runner/preparations/image_archives.py",
        "if any(OURS in name",
        "if any(False",
        (f"{ARCHIVES}::test_what_an_archive_says_is_read_in_bounds_and_not_believed",),
    ),
    Safeguard(
        "archive-of-many-entries",
        "agents/runner/preparations/archive_contents.py",
        "if number >= _MOST_ENTRIES:",
        "if False:",
        (f"{ARCHIVES}::test_what_an_archive_says_is_read_in_bounds_and_not_believed",),
    ),
    Safeguard(
        "archives-loaded-at-once",
        "agents/runner/preparations/images.py",
        ", lock_of_loading(home)",
        "",
        (f"{ARCHIVES}::test_archives_that_give_their_images_one_name_are_loaded_one_at_a_time",),
    ),
    Safeguard(
        "removal-from-a-host-is-told-at-once",
        "jobs/maintenance/kept.py",
        "hints.watch([host.pk])",
        "hints.hosts([host.pk])",
        (f"{KEPT_PAGE}::test_a_removal_wakes_the_dispatcher_of_the_host",),
    ),
    Safeguard(
        "hint-about-what-a-host-watches",
        "agents/links/fleet.py",
        "fleet.poke(host_ids, watch=True)",
        "fleet.poke(host_ids)",
        (
            "tests/unit/agents/links/test_host_watch.py"
            "::test_a_hint_about_what_a_host_watches_reaches_it_before_it_compares",
        ),
    ),
    Safeguard(
        "read-only-directories-that-a-run-left",
        "agents/runner/files.py",
        "    _open_directories(path)\n",
        "",
        (f"{LEFT}::test_read_only_directories_of_a_run_are_deleted_too",),
    ),
    Safeguard(
        "facts-of-what-a-run-left-and-stays",
        "agents/runner/runs/cleanup.py",
        "            delete_all_but_facts(path)\n",
        "            delete_in_trash(path)\n",
        (f"{LEFT}::test_what_cannot_be_deleted_is_told_and_its_facts_are_kept",),
    ),
)
