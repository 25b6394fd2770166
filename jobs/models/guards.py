"""The triggers that keep history: terminal jobs, transitions and the audit never change, whatever code runs.

They are here and not in their migration because a flush, which empties every table, must drop them meanwhile.
"""

from __future__ import annotations

from django.db.backends.base.base import BaseDatabaseWrapper

_TERMINAL = "('SUCCEEDED', 'FAILED', 'CANCELLED')"
_FINAL = ("state", "error_code", "error_message", "started_at", "ended_at", "attempt")

# Tables whose rows are written once.
_HISTORY = {"jobs_transition": "transition", "jobs_auditentry": "audit entry"}
_JOB = "jobs_job"

_POSTGRESQL = {
    _JOB: (
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
        CREATE TRIGGER jobs_job_final BEFORE UPDATE ON jobs_job
        FOR EACH ROW EXECUTE FUNCTION jobs_job_is_final()
        """,
    ),
    **{
        table: (
            f"""
            CREATE OR REPLACE FUNCTION {table}_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                RAISE EXCEPTION 'history never changes ({word} %)', OLD.id USING ERRCODE = 'check_violation';
            END $$
            """,
            f"""
            CREATE TRIGGER {table}_final BEFORE UPDATE OR DELETE ON {table}
            FOR EACH ROW EXECUTE FUNCTION {table}_is_final()
            """,
        )
        for table, word in _HISTORY.items()
    },
}
_SQLITE = {
    _JOB: (
        f"""
        CREATE TRIGGER jobs_job_final BEFORE UPDATE OF {", ".join(_FINAL)} ON jobs_job
        WHEN OLD.state IN {_TERMINAL} AND ({" OR ".join(f"NEW.{c} IS NOT OLD.{c}" for c in _FINAL)})
        BEGIN SELECT RAISE(ABORT, 'a terminal job never changes'); END
        """,
    ),
    **{
        table: (
            f"""
            CREATE TRIGGER {table}_kept BEFORE DELETE ON {table}
            BEGIN SELECT RAISE(ABORT, 'history never changes'); END
            """,
            f"""
            CREATE TRIGGER {table}_final BEFORE UPDATE ON {table}
            BEGIN SELECT RAISE(ABORT, 'history never changes'); END
            """,
        )
        for table in _HISTORY
    },
}


def make_guards(connection: BaseDatabaseWrapper) -> None:
    """Create the triggers, on those of the tables that exist: a migration may call this before all do."""
    drop_guards(connection)
    statements = _POSTGRESQL if connection.vendor == "postgresql" else _SQLITE
    there = set(connection.introspection.table_names())
    with connection.cursor() as cursor:
        for table, creations in statements.items():
            for statement in creations if table in there else ():
                cursor.execute(statement)


def drop_guards(connection: BaseDatabaseWrapper) -> None:
    there = set(connection.introspection.table_names())
    with connection.cursor() as cursor:
        for table in there & {_JOB, *_HISTORY}:
            of = f" ON {table}" if connection.vendor == "postgresql" else ""
            for name in (f"{table}_final", f"{table}_kept"):
                cursor.execute(f"DROP TRIGGER IF EXISTS {name}{of}")
