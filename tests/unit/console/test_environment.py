"""The environment: defaults, types, and wrong values refused with the variable's name and the cure."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from console import environment
from console.environment import READERS, S3, BadSetting, Environment
from console.runtime import checks

NONSENSE = [
    ("TRAINYARD_PORT", "http", "65535"),
    ("TRAINYARD_PORT", "70000", "65535"),
    ("TRAINYARD_PORT", "-1", "65535"),
    ("TRAINYARD_BIND", "my host", "127.0.0.1"),
    ("TRAINYARD_URL", "train.example.org", "https://"),
    ("TRAINYARD_URL", "https://train.example.org/path", "https://"),
    ("TRAINYARD_HOSTS", "http://a", "without scheme"),
    ("TRAINYARD_DEBUG", "maybe", "'true' or 'false'"),
    ("TRAINYARD_LOG_LEVEL", "LOUD", "WARNING"),
    ("TRAINYARD_LEASE_S", "soon", "seconds"),
    ("TRAINYARD_LEASE_S", "0", "seconds"),
    ("TRAINYARD_TICK_S", "nan", "seconds"),
    ("TRAINYARD_TICK_S", "inf", "seconds"),
    ("TRAINYARD_GRACE_S", "-1", "seconds"),
    ("TRAINYARD_MIN_FREE_MB", "1.5", "MiB"),
    ("TRAINYARD_PORTS", "23000", "LOW-HIGH"),
    ("TRAINYARD_PORTS", "23999-23000", "LOW-HIGH"),
    ("TRAINYARD_PORTS", "80-90", "1024"),
    ("TRAINYARD_DISPATCHER", "a b", "letters"),
    ("DATABASE_URL", "mysql://u:p@h/db", "postgresql://"),
    ("DATABASE_URL", "postgresql", "postgresql://"),
    ("REDIS_URL", "localhost:6379", "redis://"),
    ("BROKER_URL", "kafka://h", "amqp://"),
    ("TRAINYARD_PROXIES", "my-proxy", "10.0.0.0/8"),
    ("TRAINYARD_MAX_CONNECTIONS", "1", "from 10"),
    ("TRAINYARD_ADDRESS_CONNECTIONS", "0", "from 1"),
    ("TRAINYARD_MAX_HEADER_KB", "2", "KiB"),
    ("TRAINYARD_HEADER_S", "0", "seconds"),
    ("TRAINYARD_MAX_BODY_MB", "0", "MiB"),
    ("TRAINYARD_PYTHON_INDEX", "lab=ftp://x", "or none"),
    ("TRAINYARD_STORAGE_URL", "https://bucket", "s3://bucket/prefix"),
    ("TRAINYARD_STORAGE_URL", "s3://Bucket", "s3://bucket/prefix"),
    ("TRAINYARD_STORAGE_URL", "s3://bucket/../x", "s3://bucket/prefix"),
    ("TRAINYARD_STORAGE_URL", "s3://bucket/x?endpiont=https://h", "endpoint="),
    ("TRAINYARD_STORAGE_URL", "s3://bucket/x?endpoint=h:9000", "endpoint="),
    ("TRAINYARD_STORAGE_URL", "s3://key:secret@bucket/x", "AWS_ACCESS_KEY_ID"),
]


@pytest.mark.parametrize(("name", "value", "cure"), NONSENSE)
def test_a_wrong_value_is_refused_with_name_and_cure(name, value, cure):
    with pytest.raises(BadSetting) as refusal:
        environment.read({name: value})
    assert name in str(refusal.value)
    assert cure in str(refusal.value)


def test_a_data_directory_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(BadSetting, match="TRAINYARD_DATA .* not a directory"):
        environment.read({"TRAINYARD_DATA": str(tmp_path / "data")})


def test_a_refused_address_does_not_show_its_password():
    with pytest.raises(BadSetting) as refusal:
        environment.read({"DATABASE_URL": "mysql://trainyard:hunter2@db/trainyard"})
    assert "hunter2" not in str(refusal.value)
    for url in (
        "s3://key:hunter2@bucket/x",
        "s3://Bucket/x?endpoint=https://key:hunter2@h",
        "s3://b/x?secret=hunter2",
    ):
        with pytest.raises(BadSetting) as refusal:
            environment.read({"TRAINYARD_STORAGE_URL": url})
        assert "hunter2" not in str(refusal.value)
    assert "hunter2" not in repr(environment.read({"DATABASE_URL": "postgres://trainyard:hunter2@db/t"}))


def test_every_setting_can_be_given_and_has_a_default():
    given = {
        "TRAINYARD_DATA": "/srv/trainyard",
        "TRAINYARD_PORT": "9000",
        "TRAINYARD_BIND": "0.0.0.0",
        "TRAINYARD_URL": "https://train.example.org/",
        "TRAINYARD_HOSTS": "a.example.org, b.example.org",
        "TRAINYARD_DEBUG": "yes",
        "TRAINYARD_LOG_LEVEL": "debug",
        "DATABASE_URL": "postgresql://u:p@h/t",
        "REDIS_URL": "redis://h:6379/1",
        "BROKER_URL": "amqp://u:p@h//",
        "TRAINYARD_DISPATCHER": "d1",
        "TRAINYARD_LEASE_S": "20",
        "TRAINYARD_TICK_S": "0.5",
        "TRAINYARD_GRACE_S": "3",
        "TRAINYARD_LINK_DEAD_S": "9",
        "TRAINYARD_START_S": "60",
        "TRAINYARD_RETRY_WAIT_S": "2",
        "TRAINYARD_PREEMPT_GRACE_S": "45",
        "TRAINYARD_MIN_FREE_MB": "500",
        "TRAINYARD_PORTS": "30000-30099",
        "TRAINYARD_HOST_EVENTS_DAYS": "30",
        "TRAINYARD_LOG_BUDGET_MB": "100",
        "TRAINYARD_SHIP_MB_S": "4",
        "TRAINYARD_STORAGE_URL": "s3://files/lab?endpoint=https://minio:9000&region=here",
        "TRAINYARD_PYTHON_INDEX": "https://index.example.org/simple,lab=none",
        "TRAINYARD_SEGMENT_MB": "4",
        "TRAINYARD_SHELL_KEEP_S": "600",
        "TRAINYARD_RECORD_SHELLS": "no",
        "TRAINYARD_SHELL_RECORDING_DAYS": "7",
        "TRAINYARD_REQUIRE_SECOND_FACTOR": "admins",
        "TRAINYARD_OIDC_URL": "https://login.example.org/realms/ml",
        "TRAINYARD_OIDC_CLIENT_ID": "trainyard",
        "TRAINYARD_OIDC_CLIENT_SECRET_FILE": "/etc/trainyard/oidc-secret",
        "TRAINYARD_OIDC_NAME": "Keycloak",
        "TRAINYARD_OIDC_CREATE": "true",
        "TRAINYARD_OIDC_GROUPS": "ml-admins=admin, cn=nlp=nlp:submitter",
        "TRAINYARD_OIDC_GROUPS_CLAIM": "roles",
        "TRAINYARD_STALL_S": "600",
        "TRAINYARD_UNCONNECTED_S": "60",
        "TRAINYARD_SMTP_URL": "smtp+starttls://u:p@mail.example.org:587",
        "TRAINYARD_MAIL_FROM": "yard@example.org",
        "TRAINYARD_NOTIFY_PRIVATE": "10.0.0.0/8, 192.168.7.20",
        "TRAINYARD_PROXIES": "10.1.0.0/16",
        "TRAINYARD_MAX_CONNECTIONS": "1000",
        "TRAINYARD_ADDRESS_CONNECTIONS": "100",
        "TRAINYARD_SESSION_CONNECTIONS": "50",
        "TRAINYARD_PERSON_CONNECTIONS": "60",
        "TRAINYARD_TOKEN_REQUESTS": "600",
        "TRAINYARD_MAX_HEADER_KB": "32",
        "TRAINYARD_HEADER_S": "5",
        "TRAINYARD_MAX_BODY_MB": "16",
        "TRAINYARD_MAX_UPLOAD_GB": "5",
        "TRAINYARD_BODY_S": "30",
        "TRAINYARD_FAILPOINT": "link.sent=kill",
    }
    assert set(given) == {name for name, _ in READERS.values()}
    read, default = environment.read(given), environment.read({"TRAINYARD_PORT": ""})
    assert default == Environment()
    same = [
        field.name
        for field in fields(Environment)
        if getattr(read, field.name) == getattr(default, field.name)
    ]
    assert same == []
    assert (read.data, read.port, read.ports) == (Path("/srv/trainyard"), 9000, (30000, 30099))
    assert read.storage == S3("files", "lab", "https://minio:9000", "here")
    assert (read.url, read.hosts) == ("https://train.example.org", ("a.example.org", "b.example.org"))


def test_a_misspelt_variable_is_named_with_the_right_one():
    assert environment.misspelt_variables(
        {"TRAINYARD_PROT": "1", "TRAINYARD_RUN": "x", "TRAINYARD_PORT": "1"}
    ) == ["TRAINYARD_PROT is not a setting. Did you mean TRAINYARD_PORT?"]


def test_only_own_names_are_answered():
    assert environment.allowed_hosts(Environment()) == ["127.0.0.1", "[::1]", "localhost"]
    public = Environment(bind="0.0.0.0", url="https://train.example.org", hosts=("ty.lan",))
    names = environment.allowed_hosts(public)
    assert {"train.example.org", "ty.lan", environment.outward_address()} <= set(names)
    assert not {"*", "0.0.0.0", ""} & set(names)


@pytest.mark.parametrize(
    ("given", "ids"),
    [
        ({}, []),
        ({"lease_s": 2.0, "tick_s": 1.0}, ["trainyard.E001"]),
        ({"debug": True}, []),
        ({"debug": True, "bind": "0.0.0.0"}, ["trainyard.E002", "trainyard.W001"]),
        ({"bind": "0.0.0.0"}, ["trainyard.W001"]),
        ({"redis_url": "redis://127.0.0.1:6379/0"}, ["trainyard.W002"]),
        ({"redis_url": "rediss://cache.example:6380/0"}, ["trainyard.W002"]),
        ({"redis_url": "redis://:secret@h:6379/0", "broker_url": "redis://h:6379/1"}, ["trainyard.W002"]),
        ({"redis_url": "redis://:secret@h:6379/0", "broker_url": "amqp://u:p@h"}, []),
        ({"redis_url": "redis://h:6379/0?password=secret"}, []),
        ({"redis_url": "unix:///run/redis.sock?db=0"}, []),
        ({"bind": "0.0.0.0", "url": "https://t.example.org"}, []),
    ],
)
def test_settings_that_contradict_each_other_are_found(given, ids):
    found = list(checks.contradictions(Environment(**given)))
    assert [message.id for message in found] == ids
    assert all(message.hint for message in found)


def test_missing_browser_packages_name_the_cure(tmp_path):
    assert [message.hint for message in checks.missing_packages(tmp_path)] == ["Run: make install"]
