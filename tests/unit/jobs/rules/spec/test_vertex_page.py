"""docs/vertex.md says what the code does with each field of Google's messages."""

from __future__ import annotations

import pytest

from jobs.rules.spec.json_fields import InvalidDocument
from jobs.scheduling import machine_types
from tests.behaviour import vertex_page
from tests.behaviour.vertex_page import HONOURED, IGNORED, REFUSED, WITHOUT


@pytest.fixture(scope="module")
def rows():
    """What was observed of each field, by its path. Reading Google's schema takes seconds."""
    found = [*vertex_page.rows_of_job(), *vertex_page.rows_of_pipeline(), *vertex_page.rows_of_study()]
    return {path: what for path, what, _ in found}


def test_the_page_is_what_the_code_does(rows):
    assert vertex_page.PAGE.read_text() == vertex_page.page(), "run make behaviour"


@pytest.mark.django_db
def test_no_field_is_called_honoured_that_a_submit_refuses(rows):
    """By what a submit does, not by the page's own way to look."""
    from google.cloud.aiplatform_v1.types import CustomJob

    fields = [(path, example) for path, example in vertex_page.leaves(CustomJob.pb().DESCRIPTOR)]
    honoured = [(path, example) for path, example in fields if rows[path] == HONOURED]
    for path, example in honoured:
        try:
            machine_types.read(vertex_page.documents(path, example)[1], "default")
        except InvalidDocument as refused:
            pytest.fail(f"{path}: {refused}")
    assert len(honoured) > 20


def test_each_kind_of_field_is_told_from_the_others(rows):
    """If the observation were blind to one of them, the page would say too much."""
    pool = "job_spec.worker_pool_specs[]"
    assert rows[f"{pool}.replica_count"] == rows[f"{pool}.python_package_spec.python_module"] == HONOURED
    assert rows[f"{pool}.nfs_mounts[].path"] == rows["input_data_config"] == REFUSED
    assert rows["job_spec.tensorboard"] == rows[f"{pool}.disk_spec.boot_disk_size_gb"] == WITHOUT
    assert rows["create_time"] == rows["training_task_metadata"] == IGNORED
    study = "study_spec"
    assert rows[f"{study}.parameters[].conditional_parameter_specs[].parameter_spec"] == HONOURED
    assert rows[f"{study}.study_stopping_config.max_num_trials"] == HONOURED
    assert rows[f"{study}.convex_automated_stopping_spec.update_all_stopped_trials"] == WITHOUT
    assert rows["encryption_spec.kms_key_name"] == REFUSED and rows["trials[]"] == IGNORED
    assert len(rows) > 140
