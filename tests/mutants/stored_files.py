"""Safeguards of what projects store, of what hosts prepare for jobs, and of what jobs write."""

from __future__ import annotations

from tests.mutants.safeguard import Safeguard

ARTIFACTS = "tests/unit/jobs/artifacts"
PREPARED = "tests/unit/jobs/preparations/test_preparations.py"
CACHE = "tests/unit/agents/runner/test_cache.py"
MOVING = "tests/unit/jobs/outputs/test_moving.py"
SET_CLOCK = "tests/unit/jobs/maintenance/test_set_clock.py"
SLOW = "tests/unit/console/runtime/requests/test_slow_storage.py"
ELSEWHERE = "tests/unit/console/runtime/requests/test_other_machines.py"
FILLING = "tests/unit/jobs/outputs/test_filling.py"
TIMES = "test_files_that_are_put_on_the_next_host_keep_their_times_and_come_in_their_order"
PIPELINES = "tests/unit/console/api/test_training_pipelines.py"
BOUNDED = "test_a_model_waits_only_so_long_for_a_host_and_its_page_says_where_its_files_are"
DUE = "tests/unit/jobs/outputs/test_due.py"

STORED_FILES = (
    Safeguard(
        "outputs-that-another-worker-has-claimed",
        "jobs/outputs/due.py",
        ".filter(pk__in=ended, due_at=None)",
        ".filter(pk__in=ended)",
        (f"{DUE}::test_a_row_that_another_worker_has_claimed_meanwhile_stays_with_it",),
    ),
    Safeguard(
        "outputs-that-another-worker-has-stored",
        "jobs/outputs/due.py",
        ".filter(pk__in=ending, stage=OutputStage.WRITING)",
        ".filter(pk__in=ending)",
        (f"{DUE}::test_a_row_that_another_worker_has_stored_meanwhile_does_not_end_again",),
    ),
    Safeguard(
        "outputs-with-unread-metrics",
        "jobs/outputs/due.py",
        " & ~Exists(unread.filter(phase=RunPhase.CLOSED))",
        "",
        (
            f"{DUE}::test_what_was_settled_is_looked_at_once_more_when_the_job_is_over_and_its_metrics_are_read",
        ),
    ),
    Safeguard(
        "cached-tree-used-before-its-lock",
        "agents/runner/cache/store.py",
        "if os.fstat(fd).st_mtime > used:",
        "if False:",
        (f"{CACHE}::test_a_short_use_between_the_look_and_the_lock_saves_an_entry",),
    ),
    Safeguard(
        "lock-of-the-quota",
        "jobs/artifacts/blobs.py",
        "    room.lock(project.pk)\n    same",
        "    same",
        (f"{ARTIFACTS}/test_blobs.py::test_two_uploads_cannot_share_the_last_place",),
        postgresql=True,
    ),
    Safeguard(
        "second-look-of-the-sweep-of-blobs",
        "jobs/artifacts/blobs.py",
        "if row is None or not _unused(now).filter(pk=pk).exists():",
        "if row is None:",
        (f"{ARTIFACTS}/test_blobs.py::test_what_comes_to_be_needed_while_it_is_swept_stays",),
    ),
    Safeguard(
        "wait-for-the-row-of-a-file",
        "jobs/artifacts/leftovers.py",
        "if self.now - self.seen.setdefault(name, self.now) >= self.kept.total_seconds():",
        "if True:",
        (
            f"{ARTIFACTS}/test_blobs.py::test_a_crash_between_file_and_row_leaves_an_orphan_that_the_sweep_removes",
        ),
    ),
    Safeguard(
        "blob-of-the-jobs-project",
        "jobs/artifacts/blobs.py",
        ".filter(pk=blob.pk, project=job.project_id)",
        ".filter(pk=blob.pk)",
        (f"{ARTIFACTS}/test_blobs.py::test_a_job_of_another_project_cannot_hold_it",),
    ),
    Safeguard(
        "artifact-of-the-project",
        "jobs/artifacts/artifacts.py",
        "Artifact.objects.filter(project=project, sha256=sha256)",
        "Artifact.objects.filter(sha256=sha256)",
        (f"{ARTIFACTS}/test_objects.py::test_another_projects_bucket_and_artifact_are_not_found",),
    ),
    Safeguard(
        "digests-of-what-came",
        "jobs/artifacts/incoming.py",
        "if wanted and wanted != came:",
        "if False:",
        (f"{ARTIFACTS}/test_blobs.py::test_a_wrong_digest_is_refused_and_nothing_is_stored",),
    ),
    Safeguard(
        "reservation-as-bytes-come",
        "jobs/artifacts/incoming.py",
        "self._reserve.up_to(self.size + len(data))",
        "pass",
        (
            f"{ARTIFACTS}/test_reservations.py::test_two_files_that_come_at_once_share_the_quota_while_they_come",
        ),
    ),
    Safeguard(
        "own-reservation",
        "jobs/artifacts/room.py",
        ".exclude(name=without)",
        "",
        (f"{ARTIFACTS}/test_reservations.py::test_a_file_that_has_come_counts_once",),
    ),
    Safeguard(
        "end-of-a-reservation",
        "jobs/artifacts/room.py",
        "filter(project=project, until__gt=timezone.now())",
        "filter(project=project)",
        (f"{ARTIFACTS}/test_reservations.py::test_what_a_dead_process_has_reserved_is_free_again",),
    ),
    Safeguard(
        "one-request-of-an-upload",
        "jobs/artifacts/uploads.py",
        "if file_locks.take(self._file.fileno()) is Lock.HELD:",
        "if False:",
        (f"{ARTIFACTS}/test_uploads.py::test_only_one_request_sends_at_a_time",),
    ),
    Safeguard(
        "lock-of-what-is-received",
        "jobs/artifacts/uploads.py",
        "if lock is Lock.TAKEN or (lock is Lock.NONE and idle_s >= IDLE_UNLOCKED_S):",
        "if True:",
        (f"{ARTIFACTS}/test_uploads.py::test_a_file_that_is_sent_on_for_hours_is_not_swept",),
    ),
    Safeguard(
        "lock-of-what-is-copied",
        "jobs/artifacts/leftovers.py",
        "if storage.is_coming(key):",
        "if False:",
        (f"{ARTIFACTS}/test_file_locks.py::test_a_file_that_is_copied_for_hours_is_no_orphan",),
    ),
    Safeguard(
        "file-systems-without-locks",
        "jobs/artifacts/file_locks.py",
        "        return Lock.NONE\n",
        "        raise\n",
        (
            f"{ARTIFACTS}/test_file_locks.py"
            "::test_a_file_system_without_locks_takes_files_all_the_same_and_it_is_told_once",
        ),
    ),
    Safeguard(
        "reservation-while-it-is-sent-on",
        "jobs/artifacts/blobs.py",
        "with room.kept(received.name):",
        "if True:",
        (f"{ARTIFACTS}/test_reservations.py::test_what_is_sent_on_for_hours_keeps_its_reservation",),
    ),
    Safeguard(
        "generation-that-was-named",
        "jobs/artifacts/objects.py",
        "if about.if_generation not in (None, generation):",
        "if False:",
        (f"{ARTIFACTS}/test_objects.py::test_a_generation_that_was_named_must_be_the_present_one",),
    ),
    Safeguard(
        "age-rule-of-now",
        "jobs/artifacts/expiry.py",
        "created_at__lte=now - timedelta(days=days)",
        "pk__gt=0",
        (
            f"{ARTIFACTS}/test_expiry.py::test_objects_that_are_too_old_are_deleted_and_the_audit_says_how_many",
        ),
    ),
    Safeguard(
        "doubt-of-the-time",
        "jobs/artifacts/expiry.py",
        "if waits(now):",
        "if False:",
        (
            f"{ARTIFACTS}/test_expiry.py::test_after_a_restart_with_a_wrong_clock_nothing_is_deleted_by_its_age",
        ),
    ),
    Safeguard(
        "hosts-that-show-another-time",
        "agents/time_doubt.py",
        "_apart(rows[0]) or _hosts_apart()",
        "_apart(rows[0])",
        (
            "tests/unit/agents/test_time_doubt.py::test_hosts_that_show_another_time_are_believed_where_they_are_most",
        ),
    ),
    Safeguard(
        "doubt-of-each-start",
        "agents/time_doubt.py",
        "(_start_in_doubt(row.unsure_since, rows, now) for row in rows)",
        "(_start_in_doubt(row.unsure_since, rows, now) for row in rows[:1])",
        ("tests/unit/agents/test_time_doubt.py::test_another_start_ends_no_doubt",),
    ),
    Safeguard(
        "doubt-that-lies-ahead",
        "agents/time_doubt.py",
        ", at__lte=now).first()",
        ").first()",
        (
            "tests/unit/agents/test_time_doubt.py"
            "::test_a_time_that_was_set_while_it_was_ahead_is_in_doubt_for_no_years",
        ),
    ),
    Safeguard(
        "ages-of-what-a-wrong-time-has-dated",
        "jobs/maintenance/set_clock.py",
        "young.update(**{column: F(column) + step})",
        "pass",
        (f"{SET_CLOCK}::test_what_was_written_while_the_time_was_behind_is_not_deleted_as_old",),
    ),
    Safeguard(
        "ages-that-lie-ahead",
        "jobs/maintenance/set_clock.py",
        "        *AGED,\n",
        "",
        (f"{SET_CLOCK}::test_what_was_written_while_the_time_was_ahead_is_not_kept_for_ever",),
    ),
    Safeguard(
        "needs-of-jobs",
        "jobs/artifacts/expiry.py",
        "[row for row in found if row.pk not in needed]",
        "found",
        (f"{ARTIFACTS}/test_expiry.py::test_what_a_job_needs_that_is_not_over_stays_however_old",),
    ),
    Safeguard(
        "folder-of-the-deployment",
        "console/runtime/backend_settings.py",
        '"location": f"{where.prefix}/{deployment}".lstrip("/"),',
        '"location": where.prefix,',
        (f"{ARTIFACTS}/test_s3_files.py::test_two_deployments_in_one_bucket_remove_nothing_of_each_other",),
    ),
    Safeguard(
        "threads-of-the-storage",
        "console/runtime/requests/asgi_handler.py",
        "executor=self._pools[work]",
        "executor=self._threads",
        (
            "tests/unit/console/runtime/requests/test_slow_storage.py"
            "::test_pages_and_rest_answer_while_uploads_and_downloads_stand_still_in_the_storage",
            f"{ELSEWHERE}::test_pages_answer_while_the_login_server_stands_still",
            f"{ELSEWHERE}::test_pages_and_rest_answer_while_a_host_gives_no_files",
        ),
    ),
    Safeguard(
        "look-up-of-a-login-server-with-a-deadline",
        "console/auth/login/timed_http.py",
        'setattr(made, "_create_connection", self._exchange.connect)  # noqa: B010',
        "pass",
        (f"{ELSEWHERE}::test_a_login_waits_once_for_everything",),
    ),
    Safeguard(
        "answer-of-a-login-server-with-a-deadline",
        "console/auth/login/timed_http.py",
        "    timer.start()\n",
        "",
        ("tests/unit/console/auth/test_timed_http.py::test_the_deadline_ends_an_answer_that_does_not_end",),
    ),
    Safeguard(
        "place-of-who-waits-for-a-login-server",
        "console/views/people/oidc.py",
        "return oidc_server.places.place(throttle.address_of(request))",
        "return oidc_server.timed_http.suppress()",
        (f"{ELSEWHERE}::test_pages_answer_while_the_login_server_stands_still",),
    ),
    Safeguard(
        "failure-of-a-login-server-that-is-kept",
        "agents/infra/shared_answers.py",
        "        self.raise_known(key)\n",
        "",
        (
            "tests/unit/console/auth/test_oidc.py::test_a_failure_is_kept_for_seconds_and_keys_for_minutes",
            "tests/unit/console/views/test_files.py::test_a_host_that_does_not_answer_is_asked_once_in_a_while",
        ),
    ),
    Safeguard(
        "places-of-uploads-of-other-projects",
        "agents/infra/places.py",
        "if self._taken[share] >= self.most - self._taken.total():",
        "if self._taken.total() >= self.most:",
        (f"{SLOW}::test_the_uploads_of_one_project_leave_places_to_the_others",),
    ),
    Safeguard(
        "clients-that-are-gone-and-wait",
        "console/runtime/requests/large_requests.py",
        "    gone = asyncio.ensure_future(_until_gone(receive))",
        "    gone = asyncio.ensure_future(asyncio.sleep(600))",
        (f"{SLOW}::test_a_client_that_is_gone_leaves_the_queue",),
    ),
    Safeguard(
        "reservation-while-it-waits",
        "console/runtime/requests/large_requests.py",
        "            await _in_thread(sink.renew)\n",
        "",
        (f"{SLOW}::test_what_waits_for_the_storage_keeps_its_reservation",),
    ),
    Safeguard(
        "places-of-uploads",
        "agents/infra/places.py",
        "            self._taken[share] += 1\n",
        "",
        (f"{SLOW}::test_an_upload_counts_until_it_is_stored",),
    ),
    Safeguard(
        "connection-while-a-file-is-sent-on",
        "jobs/artifacts/blobs.py",
        "            database_pool.give_back()\n",
        "",
        (f"{ARTIFACTS}/test_blobs.py::test_no_connection_is_held_while_a_file_goes_to_the_storage",),
        postgresql=True,
    ),
    Safeguard(
        "slow-storage-and-the-sweep",
        "jobs/artifacts/blobs.py",
        "if clock.elapsed() >= until:",
        "if False:",
        (
            f"{ARTIFACTS}/test_slow_sweep.py::test_a_storage_that_removes_slowly_holds_up_the_sweep_for_seconds",
        ),
    ),
    Safeguard(
        "slow-storage-and-what-was-left-over",
        "jobs/artifacts/leftovers.py",
        "if clock.elapsed() >= until:",
        "if False:",
        (f"{ARTIFACTS}/test_slow_sweep.py::test_a_look_through_a_large_storage_goes_on_where_it_stopped",),
    ),
    Safeguard(
        "second-look-at-what-is-left-over",
        "jobs/artifacts/leftovers.py",
        "if not self.unexplained([name]):",
        "if False:",
        (f"{ARTIFACTS}/test_slow_sweep.py::test_what_gets_its_row_while_a_look_stands_still_stays",),
    ),
    Safeguard(
        "place-where-a-range-broke-off",
        "jobs/artifacts/s3_files.py",
        "                    start += len(piece)\n",
        "",
        (f"{ARTIFACTS}/test_s3_files.py::test_what_breaks_off_while_it_is_read_goes_on_at_its_place",),
    ),
    # -- what hosts prepare --
    Safeguard(
        "number-of-the-asking",
        "jobs/host_sync/prepared.py",
        "report.name.asked == row.asked and ",
        "",
        (f"{PREPARED}::test_an_old_report_changes_nothing",),
    ),
    Safeguard(
        "lease-of-a-preparation",
        "jobs/host_sync/prepared.py",
        "        if not _has_lease(host_id, token):\n            return\n",
        "",
        (f"{PREPARED}::test_reports_of_who_lost_the_lease_are_not_stored",),
    ),
    Safeguard(
        "gang-that-waits",
        "jobs/host_sync/prepared.py",
        'jobs - set(lacking.values_list("run__job", flat=True))',
        "jobs",
        (f"{PREPARED}::test_a_gang_starts_only_when_all_its_hosts_are_ready",),
    ),
    Safeguard(
        "killed-too-often",
        "jobs/host_sync/prepared.py",
        "if row.lost >= MAX_LOST:",
        "if False:",
        (f"{PREPARED}::test_a_process_that_was_killed_is_asked_for_again_and_not_for_ever",),
    ),
    Safeguard(
        "mask-of-a-preparation",
        "jobs/host_sync/prepared.py",
        "mask.text(report.message), mask.tail(report.tail)",
        "report.message, report.tail",
        (f"{PREPARED}::test_the_secret_of_a_preparation_is_masked_in_what_its_program_prints",),
    ),
    Safeguard(
        "entry-in-use",
        "agents/runner/cache/store.py",
        "            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n            return fd\n        except OSError",
        "            return fd\n        except OSError",
        (f"{CACHE}::test_what_a_run_uses_stays_however_old",),
    ),
    Safeguard(
        "lock-of-this-entry",
        "agents/runner/cache/store.py",
        "if same_file(fd, path):",
        "if True:",
        (f"{CACHE}::test_a_lock_of_an_entry_that_was_just_thrown_away_is_not_taken_for_the_entrys",),
    ),
    # -- what jobs write --
    Safeguard(
        "claim-of-outputs",
        "jobs/outputs/claiming.py",
        "filter(pk=self.row.pk, serial=self.row.serial).update(**fields)",
        "filter(pk=self.row.pk).update(**fields)",
        (f"{MOVING}::test_two_workers_do_not_work_on_one_row",),
    ),
    Safeguard(
        "buckets-of-the-job",
        "jobs/outputs/uploading.py",
        'if file.path.partition("/")[0] not in buckets:',
        "if False:",
        (f"{MOVING}::test_a_host_cannot_write_into_buckets_that_the_job_does_not_name",),
    ),
    Safeguard(
        "file-as-it-was-listed",
        "jobs/outputs/uploading.py",
        "if not (self._is_listed and self.part.is_whole(sha256)):",
        "if False:",
        (f"{MOVING}::test_a_file_that_is_written_while_it_comes_is_taken_again",),
    ),
    Safeguard(
        "bytes-as-the-host-has-them",
        "agents/ssh/outputs.py",
        'return self._end.get("sha256") == sha256 and ',
        "return ",
        (f"{MOVING}::test_bytes_that_changed_on_the_way_are_not_stored",),
    ),
    Safeguard(
        "what-hides-files",
        "jobs/outputs/uploading.py",
        "if not self.host.exists or HIDING & set(self._left_out):",
        "if not self.host.exists:",
        (f"{MOVING}::test_what_a_host_cannot_read_stays_there_and_is_not_taken_for_deleted",),
    ),
    Safeguard(
        "what-only-the-host-has",
        "jobs/outputs/filling.py",
        "if path not in own and same.get(path) != stored.generation:",
        "if same.get(path) != stored.generation:",
        (f"{FILLING}::test_a_file_that_could_not_be_stored_is_not_replaced",),
    ),
    Safeguard(
        "files-as-old-as-they-were",
        "agents/runner/outputs/transfer.py",
        "os.utime(fd, ns=(mtime_ns, mtime_ns))",
        "pass",
        (f"{FILLING}::{TIMES}",),
    ),
    Safeguard(
        "oldest-files-first",
        "jobs/outputs/filling.py",
        "files = sorted(",
        "files = list(",
        (f"{FILLING}::{TIMES}",),
    ),
    Safeguard(
        "room-before-the-first-byte",
        "jobs/outputs/filling.py",
        "        self._check_room(sum(file.size for file in lacking))\n",
        "",
        (f"{FILLING}::test_a_host_without_room_is_not_filled_and_says_so",),
    ),
    Safeguard(
        "threads-for-what-jobs-write",
        "jobs/outputs/moving.py",
        "if not can_begin or not _fills.acquire(blocking=False):",
        "if not can_begin or not (_fills.acquire(blocking=False) or True):",
        (f"{FILLING}::test_fills_leave_threads_for_what_jobs_write",),
    ),
    Safeguard(
        "model-before-its-files",
        "jobs/pipelines/registry.py",
        "if job is not None and state.is_coming(job, now):",
        "if False:",
        (f"{PIPELINES}::test_a_model_is_recorded_when_its_files_are_stored",),
    ),
    Safeguard(
        "model-that-waits-for-ever",
        "jobs/outputs/state.py",
        '(rows.filter(problem="") if passed >= PATIENCE else rows)',
        "rows",
        (f"{PIPELINES}::{BOUNDED}",),
    ),
    Safeguard(
        "hosts-that-wait-for-each-other",
        "jobs/outputs/moving.py",
        "        if not is_open:\n            _settle",
        "        if not is_open and row.filled_at is not None:\n            _settle",
        (f"{FILLING}::test_hosts_that_are_left_before_they_are_filled_do_not_wait_for_each_other",),
    ),
    Safeguard(
        "filling-for-nobody",
        "jobs/outputs/moving.py",
        "if row.filled_at is None and is_open and not is_over:",
        "if row.filled_at is None and not is_over:",
        (f"{FILLING}::test_a_host_on_which_no_run_waits_is_not_filled",),
    ),
)
