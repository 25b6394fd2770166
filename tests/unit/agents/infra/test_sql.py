"""Prepared statements do what the ORM does, with any values and in any thread.

On PostgreSQL too: tests/unit/jobs/host_sync/test_fast_append.py runs this file there.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import timedelta

import psycopg
import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models import Exists, F, OuterRef
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.infra.sql import (
    AllOrNothing,
    InsertStatement,
    Parameter,
    PartialModel,
    SelectStatement,
    UpdateStatement,
    prepare_all,
    read_ahead,
    write_together,
)
from agents.models import Gpu, GpuState, Host, HostLoad, HostStatus, Location

pytestmark = pytest.mark.django_db
NOW = timezone.now()


@pytest.fixture
def hosts():
    place = Location.objects.get_or_create(name="default")[0]
    rows = [
        Host(name=f"h{n}", location=place, address="a", created_at=NOW, status_since=NOW + timedelta(hours=n),
             status=HostStatus.UP, cpus=n, facts={"n": n}, checklist=["é"])
        for n in range(4)
    ]  # fmt: skip
    return Host.objects.bulk_create(rows)


def test_a_select_with_parameters_returns_what_the_orm_returns(hosts):
    columns = ("pk", "name", "status_since", "facts", "location__name", "pid_namespaces", "clock_offset_s")
    among = SelectStatement(
        lambda: (
            Host.objects.filter(pk__among=Parameter("ids"), status=Parameter("status"))
            .order_by("-pk")
            .values_list(*columns)
        )
    )
    since = SelectStatement(
        lambda: Host.objects.filter(status_since__gte=Parameter("at")).order_by("pk").values_list("pk")
    )
    for ids in ([], [hosts[2].pk], {hosts[0].pk, hosts[3].pk, 2**62}, dict.fromkeys(h.pk for h in hosts)):
        expected = list(Host.objects.filter(pk__in=ids).order_by("-pk").values_list(*columns))
        assert among(ids=ids, status=HostStatus.UP) == expected and len(expected) == len(set(ids) - {2**62})
        assert among(ids=ids, status="new") == []
    assert since.column(at=NOW + timedelta(hours=2)) == [hosts[2].pk, hosts[3].pk]


STRANGE = (
    "plain-1",
    "a_2",
    "a,b",
    "NULL",
    "null",
    "x-null",
    "null-1",
    "",
    "{x}",
    'q"',
    "\\",
    "h'",
    "é",
    " ",
    "a b",
)


@pytest.mark.parametrize(
    "asked", [STRANGE, STRANGE[:2], ("null-1", "x-null"), ("NULL", "x"), ("a,b", "x"), ("a", "")]
)
def test_any_text_is_found_among_others(hosts, asked):
    place = hosts[0].location
    for name in STRANGE:
        Host.objects.create(name=name, location=place, address="a", created_at=NOW, status_since=NOW)
    named = SelectStatement(lambda: Host.objects.filter(name__among=Parameter("names")).values_list("name"))
    assert sorted(named.column(names=asked)) == sorted(set(asked) & set(STRANGE))


def test_documents_of_all_rows_are_what_was_stored(hosts):
    """They are read as one: none may run into the next, and no row may get another's."""
    documents = [{}, {"a": "],[", "b": [1, None]}, {"é": '"', "deep": {"a": 1.5}}, {"n": 2**60}]
    for row, document in zip(hosts, documents, strict=True):
        Host.objects.filter(pk=row.pk).update(facts=document, checklist=[], offered_key="[")
    read = SelectStatement(
        lambda: (
            Host.objects.filter(pk__among=Parameter("ids"))
            .order_by("pk")
            .values_list("facts", "offered_key", "checklist", "load__gpus")
        )
    )
    HostLoad.objects.create(host=hosts[1], at=NOW, gpus={"GPU-1": [1, 2, None, 3]})
    loads = [None, {"GPU-1": [1, 2, None, 3]}, None, None]
    expected = [(document, "[", [], load) for document, load in zip(documents, loads, strict=True)]
    assert read(ids=[row.pk for row in hosts]) == expected
    assert read(ids=[hosts[2].pk]) == expected[2:3] and read(ids=[]) == []


def test_exists_and_relations_are_converted_too(hosts):
    Gpu.objects.create(host=hosts[1], uuid="GPU-1", index=0, model="m", memory_mb=1, state=GpuState.CLEANING)
    has = Exists(Gpu.objects.filter(host=OuterRef("pk")))
    asked = SelectStatement(
        lambda: Host.objects.filter(pk__among=Parameter("ids")).order_by("pk").values_list("pk", has)
    )
    assert asked(ids=[hosts[0].pk, hosts[1].pk]) == [(hosts[0].pk, False), (hosts[1].pk, True)]
    of_hosts = SelectStatement(lambda: Gpu.objects.filter(host__among=Parameter("hosts")).values_list("uuid"))
    assert of_hosts.column(hosts=[hosts[0].pk]) == [] and of_hosts.column(hosts=[hosts[1].pk]) == ["GPU-1"]


def test_an_insert_writes_what_save_writes(hosts):
    values = {"name": "new", "location": hosts[0].location, "address": "é", "created_at": NOW, "cpus": 3,
              "status_since": NOW, "facts": {"deep": [1, None]}, "checklist": ["x"], "clock_offset_s": 0.5}  # fmt: skip
    row = InsertStatement(Host)(Host(**values))
    assert row.pk is None and not row._state.adding
    Host.objects.create(**{**values, "name": "saved"})
    one, other = (Host.objects.filter(name=name).values().get() for name in ("new", "saved"))
    assert {**one, "id": 0, "name": ""} == {**other, "id": 0, "name": ""}
    with pytest.raises(IntegrityError), transaction.atomic():
        InsertStatement(Host)(Host(**values, id=one["id"] + 50))


def test_many_rows_are_inserted_as_one_by_one(hosts):
    of = {"location": hosts[0].location, "address": "a", "created_at": NOW, "status_since": NOW}
    insert = InsertStatement(Host)
    insert.many([])
    insert.many([Host(name="alone", **of)])
    insert.many([Host(name=f"many{n}", cpus=n, facts={"n": n}, **of) for n in range(3)])
    found = Host.objects.filter(name__startswith="many").order_by("name")
    assert list(found.values_list("name", "cpus", "facts")) == [(f"many{n}", n, {"n": n}) for n in range(3)]
    assert Host.objects.filter(name="alone").exists()
    with pytest.raises(IntegrityError), transaction.atomic():
        insert.many([Host(name="new", **of), Host(name="alone", **of)])
    assert not Host.objects.filter(name="new").exists()


if connection.vendor == "postgresql":

    def test_postgresql_keeps_the_plan_of_a_statement(hosts):
        """Django lets the driver prepare nothing unless it is told to: then each call is parsed and planned anew."""
        pk, kept = hosts[1].pk, ("100 % kept", "one")
        read = SelectStatement(
            lambda: (
                Host.objects.filter(pk__among=Parameter("ids"), status=HostStatus.UP, name__contains="h")
                .exclude(name__in=kept)
                .order_by("pk")
                .values_list("name")
            )
        )
        for _ in range(9):
            assert read.column(ids=[pk]) == ["h1"]
        assert read.column(ids=[pk, hosts[2].pk]) == ["h1", "h2"]
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements"
                " WHERE statement LIKE '%%100 \\%% kept%%' ORDER BY custom_plans"
            )
            several, one = cursor.fetchall()
        assert one[1:] == (4, 5), "after five calls the plan is kept"
        assert several[1:] == (0, 1) and "= ANY ($1)" in several[0]
        # A kept plan can use an index with a condition only if it knows the value.
        assert f"= '{HostStatus.UP}'" in one[0] and "$2" not in one[0]


@pytest.mark.django_db(transaction=True)
def test_all_statements_can_be_compiled_before_the_first_runs():
    made = []
    read = SelectStatement(
        lambda: made.append(1) or Host.objects.select_for_update().order_by().values_list("pk")
    )
    prepare_all()
    with transaction.atomic():
        assert made == [1] and read() == [] and made == [1]


def test_an_update_writes_each_value_to_its_column_and_counts_the_rows(hosts):
    rename = UpdateStatement(
        lambda: Host.objects.filter(pk__among=Parameter("ids"), cpus__gt=Parameter("minimum")),
        "facts",
        "status_since",
        "status",
        "clock_offset_s",
        cpus=F("cpus") + 10,
        seen_at=Parameter("now"),
        pid_namespaces=True,
    )
    given = {
        "facts": {"a": [1, None]},
        "status_since": NOW,
        "status": HostStatus.BLOCKED,
        "clock_offset_s": None,
    }
    for round_ in (1, 2):
        ids = [host.pk for host in hosts]
        assert rename(ids=ids, minimum=1 + 10 * (round_ - 1), now=NOW, **given) == 2
    before, changed = Host.objects.get(name="h1"), Host.objects.get(name="h3")
    assert (before.cpus, before.pid_namespaces, before.status) == (1, False, "up")
    assert (changed.cpus, changed.pid_namespaces, changed.status, changed.seen_at) == (
        23,
        True,
        "blocked",
        NOW,
    )
    assert (changed.facts, changed.status_since, changed.clock_offset_s) == ({"a": [1, None]}, NOW, None)


def test_partial_objects_have_their_columns_and_fetch_the_others(hosts, django_assert_num_queries):
    some, nearly_all = (
        PartialModel(Host, only=("id", "name", "location")),
        PartialModel(Host, without=("facts",)),
    )
    read = SelectStatement(lambda: Host.objects.filter(name=Parameter("name")).values_list(*some.names))
    (host,) = [some.build(row) for row in read(name="h2")]
    with django_assert_num_queries(0):
        assert (host.pk, host.name, host.location_id) == (hosts[2].pk, "h2", hosts[2].location_id)
    with django_assert_num_queries(1):
        assert host.cpus == 2
    assert "facts" not in nearly_all.names and {"location_id", "cpus"} < set(nearly_all.names)


def test_a_partial_object_is_as_the_database_gives_it_and_costs_no_look_at_each_field(hosts, monkeypatch):
    some = PartialModel(Host, only=("id", "name", "location"))
    (row,) = Host.objects.filter(name="h2").values_list(*some.names)
    usual = Host.from_db("default", some.names, row)
    monkeypatch.setattr(Host, "__init__", None)
    made = some.build(row)
    monkeypatch.undo()
    assert (made, made._state.adding, made._state.db) == (usual, False, "default")
    assert made.get_deferred_fields() == usual.get_deferred_fields() != set()
    assert made.location == hosts[2].location
    made.name = "other"
    made.save()
    assert Host.objects.filter(pk=hosts[2].pk).values_list("name", "cpus").get() == ("other", 2)
    with pytest.raises(ValueError, match="zip"):
        some.build(row[:2])


def test_many_threads_run_the_same_statement(hosts):
    """As the dispatcher's threads do, each with its own connection. (They see no rows: nothing is committed here.)"""
    read = SelectStatement(
        lambda: Location.objects.filter(name__among=Parameter("names")).values_list("name")
    )
    found, barrier = [], threading.Barrier(4)

    def run():
        try:
            barrier.wait(30)
            found.extend(len(read(names=["nobody", "no\"one'"])) for _ in range(20))
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [0] * 80 and read.column(names=["default"]) == ["default"]


def test_errors_are_those_of_django_and_leave_the_transaction_as_django_does(hosts):
    clash = UpdateStatement(lambda: Host.objects.filter(pk=Parameter("pk")), "name")
    with pytest.raises(IntegrityError), transaction.atomic():
        clash(pk=hosts[0].pk, name="h1")
    assert clash(pk=hosts[0].pk, name="other") == 1
    with pytest.raises(DatabaseError), transaction.atomic():
        transaction.set_rollback(True)
        clash(pk=hosts[0].pk, name="third")
    assert Host.objects.get(pk=hosts[0].pk).name == "other"
    with pytest.raises(KeyError):
        clash(pk=hosts[0].pk)


def by_status():
    return SelectStatement(
        lambda: Host.objects.filter(status=Parameter("status")).order_by("pk").values_list("name")
    )


def test_what_is_read_ahead_is_returned_once_and_only_for_the_same_values(hosts):
    read, others = by_status(), by_status()
    with read_ahead({read: {"status": "up"}, others: {"status": "new"}}):
        assert read.column(status="new") == []
        assert read.column(status="up") == ["h0", "h1", "h2", "h3"]
        Host.objects.filter(name="h0").update(status=HostStatus.NEW)
        assert read.column(status="up") == ["h1", "h2", "h3"], "the second call reads anew"
    assert others.column(status="new") == ["h0"], "after the block everything is read anew"


def test_an_error_of_statements_that_are_written_together_is_djangos_and_undoes_them_all(hosts):
    rename = UpdateStatement(lambda: Host.objects.filter(pk=Parameter("pk")), "name")
    names = SelectStatement(lambda: Host.objects.order_by("pk").values_list("name"))
    with pytest.raises(IntegrityError), transaction.atomic(), write_together():
        rename(pk=hosts[3].pk, name="other")
        rename(pk=hosts[0].pk, name="h1")
        rename(pk=hosts[2].pk, name="third")
    assert names.column() == ["h0", "h1", "h2", "h3"]
    with transaction.atomic(), write_together():
        rename(pk=hosts[3].pk, name="h1 of before")
        rename(pk=hosts[1].pk, name="h3")
        assert names.column() == ["h0", "h3", "h2", "h1 of before"], "a statement sees those before it"


@pytest.mark.parametrize("name", ["h1", "new"])
def test_an_error_leaves_nothing_of_a_block_and_the_transaction_goes_on(
    name, hosts, django_capture_on_commit_callbacks
):
    """`h1`: the database refuses the name of another host. `new`: the error is not the database's."""
    rename = UpdateStatement(lambda: Host.objects.filter(pk=Parameter("pk")), "name")
    names = SelectStatement(lambda: Host.objects.order_by("pk").values_list("name"))
    with django_capture_on_commit_callbacks() as posted, transaction.atomic():
        rename(pk=hosts[3].pk, name="before")
        with pytest.raises((IntegrityError, KeyError)), AllOrNothing() as block:
            with write_together():
                block.begin()
                rename(pk=hosts[2].pk, name="third")
                rename(pk=hosts[0].pk, name=name)
            transaction.on_commit(lambda: None)
            raise KeyError(name)
        assert names.column() == ["h0", "h1", "h2", "before"]
        with AllOrNothing() as block:
            with write_together():
                block.begin()
                rename(pk=hosts[2].pk, name="third")
            transaction.on_commit(print)
        with pytest.raises(KeyError), AllOrNothing():
            raise KeyError("before it has begun")
        rename(pk=hosts[1].pk, name="after")
    assert names.column() == ["h0", "after", "third", "before"] and posted == [print]


@pytest.mark.parametrize(
    ("one_of_many", "fails", "ends"), [(False, False, 0), (True, False, 1), (False, True, 1)]
)
def test_one_block_of_many_ends_its_savepoint(one_of_many, fails, ends, hosts):
    with transaction.atomic(), CaptureQueriesContext(connection) as asked:
        with suppress(KeyError), AllOrNothing(one_of_many) as block:
            block.begin()
            if fails:
                raise KeyError
        Host.objects.count()
    assert sum("RELEASE SAVEPOINT" in each["sql"] for each in asked) == ends


if connection.vendor == "postgresql":

    def test_what_is_read_ahead_for_all_is_returned_to_each_call_until_the_block_ends(hosts):
        read = by_status()
        with read_ahead({read: {"status": "up"}}, for_all=True):
            Host.objects.filter(name="h0").update(status=HostStatus.NEW)
            assert read.column(status="up") == read.column(status="up") == ["h0", "h1", "h2", "h3"]
            assert read.column(status="new") == ["h0"], "other values are read anew"
        assert read.column(status="up") == ["h1", "h2", "h3"]

    def test_what_a_block_around_has_read_for_all_calls_is_not_read_again(hosts):
        read, other = by_status(), by_status()
        with read_ahead({read: {"status": "up"}}, for_all=True):
            Host.objects.filter(name="h0").update(status=HostStatus.NEW)
            with read_ahead({read: {"status": "up"}, other: {"status": "up"}}, for_all=True):
                assert read.column(status="up") == ["h0", "h1", "h2", "h3"]
                assert other.column(status="up") == ["h1", "h2", "h3"]
            assert read.column(status="up") == ["h0", "h1", "h2", "h3"], "it is the outer block's"
            with read_ahead({read: {"status": "new"}}, for_all=True):
                assert read.column(status="new") == ["h0"], "other values are read"
        assert read.column(status="up") == ["h1", "h2", "h3"]

    def test_what_is_read_ahead_is_one_trip(hosts, monkeypatch):
        reads, trips = [by_status() for _ in range(5)], []
        wait = psycopg.Connection.wait

        def counted(self, generator, *args, **options):
            trips.append(1)
            return wait(self, generator, *args, **options)

        monkeypatch.setattr(psycopg.Connection, "wait", counted)
        with read_ahead({read: {"status": "up"} for read in reads}):
            before = len(trips)
            for read in reads:
                assert len(read.column(status="up")) == 4
        assert len(trips) == before, "nothing is asked in the block"
