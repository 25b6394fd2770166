"""A machine that lacks the keys, the logs or the files of its deployment says so at start, with the cure."""

from __future__ import annotations

import pytest
from cryptography.fernet import Fernet
from django.contrib.auth.models import User
from django.utils import timezone

from agents.ssh import keys
from console.runtime import shared_files
from jobs.artifacts import storage as stored_files
from jobs.logs import storage
from jobs.models import Blob, LogSegment, Project
from tests.unit.console.views.example_rows import a_host, a_job

pytestmark = pytest.mark.django_db


def test_a_new_deployment_has_nothing_to_note():
    assert list(shared_files.notes()) == []


def test_keys_that_were_not_copied_are_noted(settings):
    keys.private_key()
    assert list(shared_files.notes()) == []
    settings.FIELD_KEYS = [Fernet.generate_key().decode()]
    [note] = shared_files.notes()
    assert "copy its keys/ here" in note


def test_logs_that_are_not_shared_are_noted():
    owner = User.objects.create_user("bob")
    run = a_job(Project.objects.get(name="default"), owner, host=a_host()).runs.get()
    key = storage.write("1/2/3", b"a line")
    segment = LogSegment.objects.create(run=run, start=0, end=7, key=key, index=[])
    assert list(shared_files.notes()) == []
    LogSegment.objects.filter(pk=segment.pk).update(key="1/2/nothing")
    [note] = shared_files.notes()
    assert "put logs/ on storage that all of them share" in note


def test_files_that_are_not_shared_are_noted(tmp_path):
    received, project = tmp_path / "received", Project.objects.get(name="default")
    received.write_bytes(b"hello")
    key = stored_files.new_key(project.pk, "ab" * 32)
    stored_files.keep(received, key)
    Blob.objects.create(project=project, sha256="ab" * 32, size=5, key=key, touched_at=timezone.now())
    assert list(shared_files.notes()) == []
    stored_files.remove(key)
    [note] = shared_files.notes()
    assert "put artifacts/ on storage that all of them share" in note
