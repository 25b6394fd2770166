"""Safeguards of shells: what is typed, who watches, and what their recordings hold."""

from __future__ import annotations

from tests.mutants.safeguard import Safeguard

HOLDER = "tests/unit/agents/runner/test_shell_holder.py"
ECHOES = "tests/unit/agents/ssh/test_echoes.py"
RECORDING = "tests/unit/agents/runner/test_recording.py"
RECORDINGS = "tests/unit/jobs/recordings/test_recordings.py"
SOCKETS = "tests/unit/console/consumers/test_held_shells.py"
REMOVAL = "tests/unit/jobs/maintenance/test_remove_host.py"
REPLAYS = "tests/unit/console/views/test_recordings.py"

SHELLS = (
    Safeguard(
        "a-key-is-a-whole-message",
        "console/runtime/websocket_protocol.py",
        "            and self.between_messages\n",
        "",
        (
            "tests/unit/console/runtime/test_messages_of_sockets.py::"
            "test_what_looks_like_a_message_within_a_message_is_none",
        ),
    ),
    Safeguard(
        "an-echo-overtakes-nothing",
        "console/runtime/websocket_protocol.py",
        "        if self.fd < 0 or self.transport.get_write_buffer_size():\n",
        "        if self.fd < 0:\n",
        (
            "tests/unit/console/runtime/test_messages_of_sockets.py::"
            "test_a_frame_that_is_written_at_once_overtakes_nothing_and_is_whole",
        ),
    ),
    Safeguard(
        "new-keys-are-asked-for-in-time",
        "agents/ssh/gcm_packets.py",
        "            and self._Packetizer__sent_bytes + size + 1024 * packets < self.REKEY_BYTES\n",
        "",
        ("tests/unit/agents/ssh/test_gcm_packets.py::test_new_keys_are_asked_for_as_paramiko_does",),
    ),
    Safeguard(
        "an-echo-opens-the-window",
        "agents/ssh/packets.py",
        "        channel.in_window_sofar += length  # only this loop reads from the channel\n",
        "",
        (f"{ECHOES}::test_the_host_is_given_a_new_window_for_echoes_too",),
    ),
    Safeguard(
        "an-echo-has-its-place",
        "agents/ssh/pty.py",
        "if kind != OUT or number != self._at or size != len(data) - HEAD.size:",
        "if kind != OUT or size != len(data) - HEAD.size:",
        (f"{ECHOES}::test_an_echo_in_the_wrong_place_ends_the_shell",),
    ),
    Safeguard(
        "an-echo-has-its-turn",
        "console/live/terminals.py",
        "self._share.is_anybody_printing()",
        "False",
        ("tests/unit/console/consumers/test_shared_work.py::test_an_echo_is_shown_at_once_only_in_its_turn",),
    ),
    Safeguard(
        "a-key-at-once-typed-once",
        "agents/runner/shells/holder.py",
        "if kind != IN or length != size or number != self.taken.get(viewer.client, 0):",
        "if kind != IN or length != size:",
        (f"{HOLDER}::test_a_line_that_comes_alone_is_typed_once",),
    ),
    Safeguard(
        "a-watcher-types-nothing-at-once",
        "agents/runner/shells/holder.py",
        "if size <= 0 or viewer.frames.rest or self.terminal.unwritten or self.end_frame or not viewer.types:",
        "if size <= 0 or viewer.frames.rest or self.terminal.unwritten or self.end_frame:",
        (f"{HOLDER}::test_a_watcher_types_nothing_and_holds_up_nobody",),
    ),
    Safeguard(
        "keys-in-their-order",
        "agents/runner/shells/holder.py",
        "if size <= 0 or viewer.frames.rest or self.terminal.unwritten or",
        "if size <= 0 or self.terminal.unwritten or",
        (f"{HOLDER}::test_frames_in_any_pieces_are_typed_whole",),
    ),
    Safeguard(
        "key-typed-once",
        "agents/runner/shells/holder.py",
        "keys = keys[taken - number :] if number < taken else keys",
        "keys = keys[:]",
        (f"{HOLDER}::test_a_key_is_typed_once_however_often_it_is_sent",),
    ),
    Safeguard(
        "kept-shell-of-a-lost-right",
        "console/auth/shell_guard.py",
        'return "" if access.can(user, "shell", session.run) else NOT_ALLOWED',
        'return ""',
        (f"{SOCKETS}::test_a_shell_that_nobody_watches_ends_when_its_owner_may_not_have_it",),
    ),
    # -- who watches --
    Safeguard(
        "watched-only-while-shared",
        "console/consumers/held_shells.py",
        'return "watch_shell" if shells.is_shared(run, self.arguments["key"]) else "shell"',
        'return "watch_shell"',
        (
            f"{SOCKETS}::test_a_colleague_watches_a_shell_that_is_shared",
            f"{SOCKETS}::test_who_watches_leaves_when_the_shell_is_shared_no_more",
        ),
    ),
    Safeguard(
        "shared-by-who-may-type",
        "console/consumers/held_shells.py",
        'if access.can(self.user, "shell", self.run_row):',
        "if True:",
        (f"{SOCKETS}::test_nobody_shares_a_shell_after_the_right_to_it_is_gone",),
    ),
    Safeguard(
        "no-shell-made-by-watching",
        "console/consumers/held_shells.py",
        "if self._session.attached_at is None and not self._may_type:",
        "if False:",
        (f"{SOCKETS}::test_nobody_makes_a_shell_by_watching_it",),
    ),
    Safeguard(
        "keys-of-a-watcher",
        "agents/runner/shells/holder.py",
        "if keys and viewer.types and not self.end_frame and",
        "if keys and not self.end_frame and",
        (f"{HOLDER}::test_a_watcher_types_nothing_and_holds_up_nobody",),
    ),
    Safeguard(
        "program-waits-for-no-watcher",
        "agents/runner/shells/holder.py",
        "if not viewer.types or not viewer.is_behind(self.ring, BEHIND_BYTES):",
        "if not viewer.is_behind(self.ring, BEHIND_BYTES):",
        (f"{HOLDER}::test_a_watcher_types_nothing_and_holds_up_nobody",),
    ),
    # -- recordings --
    Safeguard(
        "secret-cut-in-a-recording",
        "agents/runner/shells/recording.py",
        "end = len(data) - (0 if last else self._patterns.unfinished(data))",
        "end = len(data)",
        (f"{RECORDING}::test_a_mask_is_the_same_wherever_output_is_cut",),
    ),
    Safeguard(
        "what-a-recording-left-out",
        "agents/runner/shells/recording.py",
        'self._write(self._line(self._tail[0][0], "m", words))',
        "pass",
        (f"{RECORDING}::test_a_long_recording_keeps_its_beginning_and_its_end",),
    ),
    Safeguard(
        "recording-proved-by-its-host",
        "jobs/recordings/store.py",
        "return RecordingState.WHOLE if digest == session.recording_digest else RecordingState.DIFFERS",
        "return RecordingState.WHOLE",
        (f"{RECORDINGS}::test_what_differs_from_the_host_and_what_has_no_end_are_told",),
    ),
    Safeguard(
        "run-kept-for-its-recordings",
        "jobs/host_sync/wanted.py",
        "((recordings is None and not has_outputs) or row.job_deleted_at is not None)",
        "((not has_outputs) or row.job_deleted_at is not None)",
        (f"{RECORDINGS}::test_the_host_keeps_the_run_until_its_recordings_are_here",),
    ),
    Safeguard(
        "end-of-a-recording-without-end",
        "jobs/recordings/intake.py",
        "if piece.end > MAX_BYTES:",
        "if False:",
        (f"{RECORDINGS}::test_a_recording_that_grows_without_end_is_cut",),
    ),
    Safeguard(
        "line-before-recordings",
        "agents/links/inbox.py",
        "return self._recordings if recorded else self._arrivals",
        "return self._arrivals",
        ("tests/unit/agents/links/test_link.py::test_a_line_overtakes_the_recordings_of_shells",),
    ),
    Safeguard(
        "host-kept-for-its-recordings",
        "jobs/host_sync/lost_hosts.py",
        "if recordings.unfetched(runs).exists():",
        "if False:",
        (f"{REMOVAL}::test_a_host_with_a_recording_that_is_not_here_is_not_removed_while_it_answers",),
    ),
    Safeguard(
        "replayed-by-who-may-type",
        "console/auth/access.py",
        'Role.SUBMITTER: VIEWER_VERBS | {"submit", "store", "watch_shell"},',
        'Role.SUBMITTER: VIEWER_VERBS | {"submit", "watch_shell", "replay_shell"},',
        (f"{REPLAYS}::test_who_may_replay",),
    ),
    Safeguard(
        "replay-in-the-audit",
        "console/presenters/shells/recordings.py",
        "store.record_replay(session, actor, timezone.now())",
        "pass",
        (f"{REPLAYS}::test_a_recording_is_a_download_and_in_the_audit",),
    ),
)
