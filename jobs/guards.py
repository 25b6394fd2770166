"""The triggers that keep history: terminal jobs and transitions never change, whatever code is run.

They live here and not in their migration because a flush, which empties every table, must lift them meanwhile.
"""

from __future__ import annotations

from django.db.backends.base.base import BaseDatabaseWrapper

_TERMINAL = "('SUCCEEDED', 'FAILED', 'CANCELLED')"
_FINAL = ("state", "error_code", "error_message", "started_at", "ended_at", "attempt")

_POSTGRESQL = (
    f"""
    CREATE OR REPLACE FUNCTION jobs_job_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF OLD.state IN {_TERMINAL} AND ({" OR ".join(f"NEW.{c} IS DISTINCT FROM OLD.{c}" for c in _FINAL)}) THEN
            RAISE EXCEPTION 'a terminal job never changes (job %)', OLD.id USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END $$
    """,
    """
    CREATE OR REPLACE FUNCTION jobs_transition_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'history never changes (transition %)', OLD.id USING ERRCODE = 'check_violation';
    END $$
    """,
    """
    CREATE TRIGGER jobs_job_final BEFORE UPDATE ON jobs_job
    FOR EACH ROW EXECUTE FUNCTION jobs_job_is_final()
    """,
    """
    CREATE TRIGGER jobs_transition_final BEFORE UPDATE OR DELETE ON jobs_transition
    FOR EACH ROW EXECUTE FUNCTION jobs_transition_is_final()
    """,
)
_SQLITE = (
    f"""
    CREATE TRIGGER jobs_job_final BEFORE UPDATE OF {", ".join(_FINAL)} ON jobs_job
    WHEN OLD.state IN {_TERMINAL} AND ({" OR ".join(f"NEW.{c} IS NOT OLD.{c}" for c in _FINAL)})
    BEGIN SELECT RAISE(ABORT, 'a terminal job never changes'); END
    """,
    """
    CREATE TRIGGER jobs_transition_kept BEFORE DELETE ON jobs_transition
    BEGIN SELECT RAISE(ABORT, 'history never changes'); END
    """,
    """
    CREATE TRIGGER jobs_transition_final BEFORE UPDATE ON jobs_transition
    BEGIN SELECT RAISE(ABORT, 'history never changes'); END
    """,
)


def make_guards(connection: BaseDatabaseWrapper) -> None:
    drop_guards(connection)
    with connection.cursor() as cursor:
        for statement in _POSTGRESQL if connection.vendor == "postgresql" else _SQLITE:
            cursor.execute(statement)


def drop_guards(connection: BaseDatabaseWrapper) -> None:
    of = " ON {}" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        for name, table in (
            ("jobs_job_final", "jobs_job"),
            ("jobs_transition_kept", "jobs_transition"),
            ("jobs_transition_final", "jobs_transition"),
        ):
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}{of.format(table)}")
