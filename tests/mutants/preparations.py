"""Safeguards of preparations: what a host ends, whose credential it gets, and where a container may be placed."""

from __future__ import annotations

from tests.mutants.safeguard import Safeguard

JOBS = "tests/unit/jobs/preparations/test_preparations.py"
RUNNER = "tests/unit/agents/runner/test_preparations.py"
REGISTRIES = "tests/unit/jobs/secrets/test_image_registries.py"
SIF = "tests/unit/agents/runner/test_sif.py"
TURNS = "tests/unit/console/views/test_preparations.py"
BROUGHT = "tests/unit/jobs/preparations/test_brought.py"
ENVIRONMENTS = "tests/unit/agents/runner/test_environments.py"
DOCKER = "tests/unit/agents/runner/runtimes/test_docker.py"
ENGINES = "tests/unit/jobs/scheduling/test_engines.py"

PREPARATIONS = (
    Safeguard(
        "windows-that-a-host-owes",
        "agents/ssh/peer_limits.py",
        "self._owed_bytes >= BYTES_FOR_A_WINDOW",
        "False",
        ("tests/unit/agents/ssh/test_outputs.py::test_a_large_checkpoint_arrives_whole",),
    ),
    Safeguard(
        "windows-that-a-host-does-not-owe",
        "agents/ssh/peer_limits.py",
        "self._owed_bytes >= BYTES_FOR_A_WINDOW",
        "True",
        ("tests/unit/agents/ssh/test_put.py::test_windows_are_owed_for_what_was_sent_and_not_for_more",),
    ),
    Safeguard(
        "stop-of-a-program-whose-client-goes-on",
        "agents/runner/runs/lifecycle.py",
        "not self.container.is_up_at_a_stop()",
        "not self.container.is_up()",
        (f"{DOCKER}::test_a_program_whose_client_is_still_there_hears_the_stop",),
    ),
    Safeguard(
        "container-that-comes-after-its-run",
        "agents/runner/runs/cleanup.py",
        "if run.facts and os.path.exists(os.path.join(run.directory, MAY_COME)):",
        "if False:",
        (f"{DOCKER}::test_a_container_that_is_made_long_after_its_client_was_killed_is_removed",),
    ),
    Safeguard(
        "directories-for-the-user-of-an-image",
        "agents/runner/runtimes/containers.py",
        "    give(user, written)\n",
        "",
        (
            "tests/unit/agents/runner/runtimes/test_containers.py"
            "::test_the_user_of_an_image_writes_into_the_directories_of_its_run",
        ),
    ),
    Safeguard(
        "needless-preparation-ended",
        "agents/links/orders.py",
        "return [Unprepare(name) for name in preparing if (name.kind, name.key) not in needed]",
        "return []",
        (
            f"{JOBS}::test_what_another_job_waits_for_goes_on",
            "tests/unit/agents/links/test_orders.py::test_an_end_is_repeated_until_the_host_reports_it",
        ),
    ),
    Safeguard(
        "preparation-of-a-waiting-run",
        "jobs/host_sync/prepared.py",
        "(row := rows.get((name.kind, name.key))) and row.pk not in needed",
        "(row := rows.get((name.kind, name.key)))",
        (f"{JOBS}::test_hosts_go_on_for_a_job_that_goes_back_to_the_queue_until_it_has_other_hosts",),
    ),
    Safeguard(
        "late-report-of-an-ended-preparation",
        "jobs/host_sync/prepared.py",
        "        asking.ask_anew(begun, now)\n",
        "",
        (f"{JOBS}::test_a_host_ends_what_a_cancelled_job_waited_for_and_begins_anew_when_another_job_asks",),
    ),
    Safeguard(
        "preparation-ended-with-a-lost-lease",
        "jobs/host_sync/prepared.py",
        "        if not _has_lease(host_id, token):\n            return []\n",
        "",
        (f"{JOBS}::test_what_a_host_is_at_is_left_alone_when_nobody_knows_it_or_the_lease_is_lost",),
    ),
    Safeguard(
        "credentials-of-a-killed-pull",
        "agents/runner/preparations/tasks.py",
        "            remove_credentials(directory)\n",
        "",
        (f"{RUNNER}::test_credentials_of_a_pull_that_was_ended_are_removed",),
    ),
    Safeguard(
        "credential-of-a-job-that-is-over",
        "jobs/preparations/images.py",
        "preparation.needs.exclude(run__job__state__in=TERMINAL)",
        "preparation.needs",
        (f"{REGISTRIES}::test_the_credential_of_a_project_pulls_nothing_for_others_when_its_job_is_over",),
    ),
    Safeguard(
        "image-prepared-for-several-projects",
        "jobs/preparations/images.py",
        """ else ["project", run.job.project_id]""",
        " else []",
        (f"{REGISTRIES}::test_a_wrong_password_of_a_project_fails_no_job_of_another",),
    ),
    Safeguard(
        "keys-of-repositories-of-before",
        "jobs/preparations/brought.py",
        'parts = [TREE, GIT, git["url"]',
        'parts = [TREE, git["url"]',
        (
            "tests/unit/jobs/preparations/test_brought.py"
            "::test_what_hosts_have_under_the_keys_of_before_is_not_used_again",
        ),
    ),
    Safeguard(
        "code-behind-a-credential-for-everybody",
        "jobs/preparations/brought.py",
        "parts += [job.project_id, job.owner_name, credential]",
        "pass",
        (
            "tests/unit/jobs/preparations/test_brought.py::test_what_a_credential_opens_is_for_jobs_of_its_person_alone",
        ),
    ),
    Safeguard(
        "memory-of-a-container-by-its-host",
        "agents/runner/runtimes/containers.py",
        "        if os.path.exists(os.path.join(self.directory, OOM)):\n            return OUT_OF_MEMORY\n",
        "",
        ("tests/unit/agents/runner/runtimes/test_container_limits.py::test_too_much_memory_is_told_as_such",),
    ),
    Safeguard(
        "stop-told-twice-in-a-container",
        "agents/runner/runtimes/containers.py",
        "[each for each in living if name_of_program(each.pid) not in PASS_SIGNALS_ON] or living",
        "living",
        (
            "tests/unit/agents/runner/runtimes/test_container_stops.py::test_a_stop_is_for_the_programs_and_not_for_what_passes_it_on",
        ),
    ),
    Safeguard(
        "stop-passed-on-by-apptainer",
        "agents/runner/runtimes/apptainer_containers.py",
        "[each for each in self.below_keeper(everyone) if not is_of_engine(each.pid)]",
        "self.below_keeper(everyone)",
        (
            "tests/unit/agents/runner/runtimes/test_apptainer.py::"
            "test_a_stop_is_for_the_program_and_not_for_the_engines_process_which_would_pass_it_on",
        ),
    ),
    Safeguard(
        "program-of-a-wrapper-of-apptainer",
        "agents/runner/runtimes/apptainer_containers.py",
        "if not self.client or not _is_starter(_program_of(self.client)):",
        "if not self.client:",
        (
            "tests/unit/agents/runner/runtimes/test_apptainer.py::test_a_stop_while_the_engine_makes_it_waits_for_nobody",
        ),
    ),
    Safeguard(
        "exit-of-a-program-of-apptainer",
        "agents/runner/runtimes/apptainer_containers.py",
        "bool(NOT_EXECUTED.fullmatch(words) if has_begun(self.directory) else words)",
        "bool(words)",
        (
            "tests/unit/agents/runner/runtimes/test_apptainer.py::"
            "test_an_end_before_anybody_saw_the_program_is_its_own_if_its_container_was_made",
        ),
    ),
    Safeguard(
        "password-without-tls",
        "agents/runner/preparations/registry.py",
        'if not credentials or not (parts.scheme == "https" or is_this_host(parts.netloc)):',
        "if not credentials:",
        (
            "tests/unit/agents/runner/test_apptainer_images.py::"
            "test_a_password_goes_to_no_other_host_without_tls",
        ),
    ),
    Safeguard(
        "image-of-apptainer-in-use",
        "agents/runner/runs/held_resources.py",
        "cache.share(IMAGES, key, HELD_S) if key else -1",
        "os.open(os.devnull, os.O_RDONLY) if key else -1",
        ("tests/unit/agents/runner/runtimes/test_apptainer.py::test_an_image_in_use_is_not_thrown_away",),
    ),
    Safeguard(
        "shells-in-variables-of-images",
        "agents/runner/preparations/apptainer_images.py",
        "        self.forget_variables(os.path.join(whole, ROOT))\n",
        "",
        (
            "tests/unit/agents/runner/runtimes/test_apptainer.py::"
            "test_what_an_image_says_of_its_variables_and_its_directory_counts",
        ),
    ),
    Safeguard(
        "sif-file-changed-while-it-is-hashed",
        "agents/runner/preparations/sif.py",
        "if not is_still(path, stamp):",
        "if False:",
        (f"{SIF}::test_a_file_that_is_changed_while_it_is_hashed_is_not_taken_for_what_it_was",),
    ),
    Safeguard(
        "sif-file-changed-while-it-is-unpacked",
        "agents/runner/preparations/sif.py",
        "if not is_still(self.image, stamp):",
        "if False:",
        (f"{SIF}::test_a_file_that_is_changed_while_it_is_unpacked_is_not_kept",),
    ),
    Safeguard(
        "sif-file-with-its-old-times",
        "agents/runner/preparations/sif.py",
        "found.st_mtime_ns, found.st_ctime_ns)",
        "found.st_mtime_ns)",
        (f"{SIF}::test_a_file_that_was_changed_has_another_stamp",),
    ),
    Safeguard(
        "sif-file-without-unsquashfs",
        "agents/runner/preparations/sif.py",
        'if shutil.which("unsquashfs") is None:',
        "if False:",
        (f"{SIF}::test_a_host_without_unsquashfs_says_what_to_install",),
    ),
    Safeguard(
        "hypertune-in-containers",
        "agents/runner/metrics/places.py",
        "return place if os.path.isdir(place) else",
        "return",
        (f"{SIF}::test_what_is_ours_keeps_what_the_scripts_of_a_sif_file_set",),
    ),
    Safeguard(
        "head-of-a-log-for-those-who-waited",
        "jobs/preparations/cache_entries.py",
        'preparation__ended_at__gte=F("run__created_at")',
        "preparation__ended_at__isnull=False",
        (f"{BROUGHT}::test_the_log_of_a_run_begins_with_the_install_that_it_waited_for",),
    ),
    Safeguard(
        "head-of-a-log-for-an-install-alone",
        "jobs/preparations/cache_entries.py",
        '        preparation__result__made="now",\n',
        "",
        (f"{BROUGHT}::test_the_log_of_a_run_begins_with_an_install_only_if_there_was_one",),
    ),
    Safeguard(
        "head-of-a-log-not-for-a-restart",
        "jobs/lifecycle/claims.py",
        "    new.order.pop(INSTALL_LOG, None)\n",
        "",
        (f"{BROUGHT}::test_the_log_of_a_run_begins_with_the_install_that_it_waited_for",),
    ),
    Safeguard(
        "password-of-the-index-in-the-head-of-a-log",
        "agents/runner/cache/install_log.py",
        "    blank(data, MaskPatterns(secrets).spans(bytes(data)))\n",
        "",
        (f"{ENVIRONMENTS}::test_what_pip_printed_is_kept_and_tells_no_password",),
    ),
    Safeguard(
        "turns-of-files-of-other-projects",
        "jobs/preparations/turns.py",
        "    if first.job is None:\n",
        "    if False:\n",
        (f"{TURNS}::test_of_another_project_it_is_only_said_that_there_is_one",),
    ),
    Safeguard(
        "console-that-ships-to-others-first",
        "agents/runner/cache/work.py",
        "        if sign != sign_of_console(cache):\n",
        "        if False:\n",
        (
            "tests/unit/agents/runner/test_cache_work.py::test_a_console_that_is_there_may_ship_to_others_first",
        ),
    ),
    Safeguard(
        "engine-that-outlives-its-preparation",
        "agents/runner/preparations/programs_output.py",
        "preexec_fn=die_with_parent,",
        "",
        (f"{RUNNER}::test_the_engine_ends_with_a_preparation_that_is_killed",),
    ),
    Safeguard(
        "preparation-that-gives-way",
        "agents/runner/preparations/worker.py",
        "    give_way()  # training, its log and its shells come first\n",
        "",
        (f"{RUNNER}::test_a_preparation_and_its_engine_give_way_to_what_runs",),
    ),
    Safeguard(
        "connection-that-ships-gives-way",
        "agents/runner/cache/put.py",
        "    let_connection_give_way()\n",
        "",
        (
            "tests/unit/agents/ssh/test_put_apart.py"
            "::test_a_large_file_is_put_whole_and_once_by_a_process_that_gives_way",
        ),
    ),
    Safeguard(
        "alias-for-the-object-of-one-project",
        "jobs/rules/spec/image_aliases.py",
        "(is_image(image) and not is_stored(image))",
        "is_image(image)",
        ("tests/unit/jobs/rules/spec/test_image_aliases.py::test_what_an_alias_may_stand_for",),
    ),
    Safeguard(
        "definition-in-place-of-a-sif-file",
        "agents/runner/preparations/sif.py",
        "if os.pread(file.fileno(), len(_MAGIC), 0) != _MAGIC:",
        'if b"SIF_MAGIC" not in os.pread(file.fileno(), 64, 0):',
        (f"{SIF}::test_a_definition_with_commands_for_the_host_is_no_sif_file",),
    ),
    Safeguard(
        "commands-of-a-definition",
        "agents/runner/preparations/sif.py",
        "    options = _NO_COMMANDS\n",
        "",
        (f"{SIF}::test_a_file_is_unpacked_once_under_the_digest_of_its_bytes",),
    ),
    Safeguard(
        "path-of-a-sif-file-on-a-host",
        "agents/runner/preparations/sif.py",
        " and _PATH.fullmatch(image) is not None",
        "",
        (f"{SIF}::test_what_is_a_path_of_a_sif_file",),
    ),
    Safeguard(
        "path-of-a-sif-file-in-a-job",
        "jobs/rules/spec/tasks.py",
        " and bool(_SIF.fullmatch(image))",
        "",
        (f"{SIF}::test_what_is_a_path_of_a_sif_file",),
    ),
    Safeguard(
        "registry-asked-before-a-pull",
        "agents/runner/preparations/apptainer_images.py",
        'if here and asked and asked == note.get("asked"):',
        "if False:",
        (
            "tests/unit/agents/runner/test_apptainer_images.py::"
            "test_an_image_is_pulled_once_and_what_it_is_is_what_its_registry_says",
        ),
    ),
    Safeguard(
        "output-of-docker-copied-twice",
        "agents/runner/runtimes/docker_follower.py",
        "skip = max(0, os.fstat(self.log).st_size - self.base)",
        "skip = 0",
        (f"{DOCKER}::test_each_byte_of_both_outputs_is_in_the_log_once",),
    ),
    Safeguard(
        "output-of-docker-before-its-end",
        "agents/runner/runtimes/docker_follower.py",
        "                self.copy()\n                self.end(code)",
        "                self.end(code)",
        (
            "tests/unit/agents/runner/runtimes/test_containers.py::test_it_runs_prints_and_ends_with_its_status",
        ),
    ),
    Safeguard(
        "words-of-the-client-of-docker-in-the-log",
        "agents/runner/runtimes/docker_follower.py",
        "        if self.all_read:\n            self.add(held)",
        "        self.add(held)",
        (f"{DOCKER}::test_the_daemon_is_killed_and_comes_again",),
    ),
    Safeguard(
        "output-of-docker-compared-with-what-was-freed",
        "agents/runner/runtimes/docker_follower.py",
        "write_file(self.path(HEAD), self.head)",
        "pass",
        (f"{DOCKER}::test_a_log_whose_beginning_was_freed_is_resumed",),
    ),
    Safeguard(
        "gpus-held-by-the-follower",
        "agents/runner/runtimes/docker_containers.py",
        "{0, 1, 2, log} | inheritable()",
        "{0, 1, 2, log}",
        (f"{DOCKER}::test_the_gpus_are_held_while_the_program_lives_although_all_keepers_are_dead",),
    ),
    Safeguard(
        "setuid-programs-in-docker",
        "agents/runner/runtimes/docker_options.py",
        'words += ["--security-opt=no-new-privileges"]',
        "pass",
        (f"{DOCKER}::test_setuid_programs_of_an_image_get_no_rights",),
    ),
    Safeguard(
        "shell-that-stays-in-its-container",
        "agents/runner/shells/terminal.py",
        "        self.kill_others()\n",
        "",
        (
            "tests/unit/agents/runner/runtimes/test_container_shells.py::test_a_shell_that_ends_leaves_no_process_in_the_container",
        ),
    ),
    Safeguard(
        "container-where-no-engine-is",
        "jobs/rules/scheduling/views.py",
        "if needed and is_incomplete and not set(needed.split(",
        "if False and not set(needed.split(",
        (f"{ENGINES}::test_a_job_with_an_image_goes_where_an_engine_is_and_says_where_none_is",),
    ),
)
