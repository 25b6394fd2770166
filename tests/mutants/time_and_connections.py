"""The safeguards of what is dated, and of what many sockets share."""

from __future__ import annotations

from tests.mutants.safeguard import Safeguard

RUNTIME = "tests/unit/console/runtime"
CONSUMERS = "tests/unit/console/consumers"

TIME_AND_CONNECTIONS = (
    Safeguard(
        "unknown-time-in-requests",
        "console/runtime/requests/middleware.py",
        "if clock.is_known():",
        "if True:",
        (
            f"{RUNTIME}/test_time_unknown.py::test_while_the_time_is_not_known_nothing_is_written_and_all_is_answered",
        ),
    ),
    Safeguard(
        "unknown-time-at-sockets",
        "console/runtime/database_threads.py",
        "if not clock.is_known():",
        "if False:",
        (f"{RUNTIME}/test_time_unknown.py::test_no_socket_is_admitted_while_the_time_is_not_known",),
    ),
    Safeguard(
        "time-that-nobody-kept",
        "agents/clock_keeper.py",
        "if not alive:  # nobody",
        "if False:  # nobody",
        (
            "tests/unit/agents/test_clock_keeper.py::test_where_nobody_has_kept_the_time_the_databases_clock_is_believed",
        ),
    ),
    Safeguard(
        "greeting-while-we-stood-still",
        "agents/links/link.py",
        "self.opened_at += gap",
        "pass",
        (
            "tests/unit/agents/links/test_suspended_listener.py::test_a_greeting_that_could_not_be_read_is_not_late",
        ),
    ),
    Safeguard(
        "later-schema",
        "console/runtime/schema_watch.py",
        "if not unknown:",
        "if True:",
        (
            f"{RUNTIME}/test_schema_watch.py"
            "::test_a_migration_of_ours_that_is_not_known_ends_the_process_and_others_do_not",
        ),
    ),
    Safeguard(
        "later-schema-is-watched-quietly",
        "console/runtime/schema_watch.py",
        "if newest == self._newest:",
        "if False:",
        (f"{RUNTIME}/test_schema_watch.py::test_while_nothing_changes_a_look_is_one_query",),
    ),
    Safeguard(
        "one-look-for-all-sockets",
        "console/consumers/shared_checks.py",
        "if task is None or now - at > GOOD_FOR_S:",
        "if True:",
        (
            f"{CONSUMERS}/test_shell_ends.py::test_one_look_at_the_rights_serves_all_shells_of_a_person_on_a_run",
        ),
    ),
    Safeguard(
        "answers-of-checks-are-forgotten",
        "console/consumers/shared_checks.py",
        "loop.call_later(GOOD_FOR_S, _forget, asked, question, task)",
        "pass",
        (f"{CONSUMERS}/test_memory.py::test_a_socket_that_has_ended_is_forgotten",),
    ),
    Safeguard(
        "pool-tries-again-soon",
        "agents/infra/database_pool.py",
        '"reconnect_timeout": ATTEMPT_S,',
        "",
        (
            f"{RUNTIME}/test_after_an_outage.py::test_all_is_served_again_two_seconds_after_the_database_is_back",
        ),
    ),
    Safeguard(
        "pool-is-renewed",
        "agents/clock_keeper.py",
        'database_pool.renew(getattr(connection, "pool", None))',
        "pass",
        (
            f"{RUNTIME}/test_after_an_outage.py::test_all_is_served_again_two_seconds_after_the_database_is_back",
        ),
    ),
)
