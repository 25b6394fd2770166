"""Aliases of images: the longest one that matches counts, and Google's images are refused without one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.rules.spec.image_aliases import (
    Aliases,
    images_kept,
    images_used,
    images_used_document,
    is_alias,
    is_prebuilt,
    may_stand_for,
    name_of,
    with_images,
)
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.spec.runtime_choice import runtime_of
from jobs.rules.spec.tasks import Container, PythonPackage
from tests.unit.jobs.rules.views import examples, pool, spec

GOOGLES = "us-docker.pkg.dev/vertex-ai/training/pytorch-gpu.2-4.py310"
PYTHON = "host:/opt/torch/bin/python3"
# Few letters, so that names often begin alike.
PATHS = st.text("ab/", max_size=6).map(lambda text: f"r.io/{text}")
ALIASES = st.dictionaries(
    st.one_of(PATHS, PATHS.map(lambda text: text + "*")), st.integers().map(str), max_size=8
)


def slow_answer(name, aliases):
    """Letter by letter: from the whole name to its first letter, who has an alias of just that?"""
    if name in aliases:
        return aliases[name]
    for length in range(len(name), -1, -1):
        if name[:length] + "*" in aliases:
            return aliases[name[:length] + "*"]
    return None


@given(PATHS, ALIASES, st.sampled_from(["", ":latest", ":v1@sha256:" + "0" * 64, "@sha256:" + "0" * 64]))
@examples(300)
def test_the_longest_alias_counts_and_tags_do_not(name, aliases, suffix):
    assert Aliases("lab", aliases).of(name + suffix) == slow_answer(name, aliases)


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("ubuntu:22.04", "ubuntu"),
        ("localhost:5000/a/b:1", "localhost:5000/a/b"),
        ("localhost:5000/a/b", "localhost:5000/a/b"),
        ("US-Docker.pkg.dev/vertex-ai/x@sha256:" + "a" * 64, "us-docker.pkg.dev/vertex-ai/x"),
        ("host", "host"),
    ],
)
def test_a_name_is_without_tag_and_digest(image, name):
    assert name_of(image) == name


@pytest.mark.parametrize(
    ("image", "told"),
    [
        (GOOGLES, True),
        (f"{GOOGLES}:latest", True),
        ("europe-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310", True),
        ("US-DOCKER.PKG.DEV/vertex-ai/training/tf-cpu", True),
        ("gcr.io/cloud-aiplatform/training/tf-cpu.2-8", True),
        ("eu.gcr.io/cloud-aiplatform/training/tf-cpu.2-8", True),
        ("us-docker.pkg.dev/my-project/vertex-ai/x", False),
        ("us-docker.pkg.dev/vertex-ai-of-ours/x", False),
        ("gcr.io/cloud-aiplatform-lab/x", False),
        ("evil.example/gcr.io/cloud-aiplatform/x", False),
        ("ghcr.io/lab/train", False),
        ("host", False),
    ],
)
def test_which_images_are_googles(image, told):
    assert is_prebuilt(image) is told


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (GOOGLES, True),
        ("us-docker.pkg.dev/vertex-ai/training/*", True),
        ("localhost:5000/*", True),
        ("ubuntu", True),
        (f"{GOOGLES}:latest", False),
        ("", False),
        ("*", False),
        ("us*", False),
        ("host", False),
        ("gs://bucket/image.tar", False),
        ("gs://bucket/*", False),
        ("a/*/b", False),
        ("a b/*", False),
        ("US.io/a", False),
        ("r.io/" + "a" * 500, False),
    ],
)
def test_what_may_be_an_alias(name, told):
    assert is_alias(name) is told


def test_what_an_alias_may_stand_for():
    assert may_stand_for("host") and may_stand_for("ghcr.io/lab/train:1")
    assert not may_stand_for("") and not may_stand_for("--help") and not may_stand_for("a b")
    assert may_stand_for(PYTHON) and may_stand_for("host:/opt/.venv/bin/python3.11")
    for path in (
        "",
        "python3",
        "1",
        "a/python3",
        "/opt/../x",
        "/..",
        "/a:/b",
        "/a b",
        "/a\n",
        "/",
        "/a/",
        "/$x",
        "/" * 2000,
    ):
        assert not may_stand_for(f"host:{path}"), path
    # What lies in the storage is no image that an engine could pull.
    assert not may_stand_for("gs://bucket/a.tar") and not may_stand_for("artifact:" + 64 * "a")


def test_pools_use_what_their_images_stand_for():
    package = PythonPackage(GOOGLES, ("gs://a/b.whl",), "m")
    image = Container(f"{GOOGLES}:latest", ("python", "t.py"))
    pools = (replace(pool(), task=image), None, replace(pool(), task=package), pool())
    job = replace(spec(1), pools=pools)
    used = images_used(job, Aliases("lab", {"us-docker.pkg.dev/vertex-ai/*": "host"}))
    assert used == {0: "host", 2: "host"}
    found = with_images(job, used).pools
    assert [each and runtime_of(each) for each in found] == ["process", None, "python", "process"]
    assert found[0].task == replace(image, image="host") and found[3] is pools[3]
    used = images_used(replace(job, pools=pools[:1]), Aliases("lab", {GOOGLES: "ghcr.io/lab/torch:2"}))
    (found,) = with_images(replace(job, pools=pools[:1]), used).pools
    assert runtime_of(found) == "podman" and found.task.image == "ghcr.io/lab/torch:2"


def test_pools_use_the_python_that_their_images_stand_for():
    package, image = (
        PythonPackage(GOOGLES, ("gs://a/b.whl",), "m"),
        Container(f"{GOOGLES}:latest", ("python3", "t.py")),
    )
    job = replace(spec(1), pools=(replace(pool(), task=image), replace(pool(), task=package)))
    used = images_used(job, Aliases("lab", {GOOGLES: PYTHON}))
    assert used == {0: PYTHON, 1: PYTHON}
    found = with_images(job, used).pools
    assert [each and runtime_of(each) for each in found] == ["process", "python"]
    assert [each and each.task.image for each in found] == ["host", "host"]
    assert [each and each.task.interpreter for each in found] == ["/opt/torch/bin/python3"] * 2


def test_reducers_get_the_python_of_the_primary():
    image = Container(GOOGLES, ("python3", "t.py"))
    primary, reducers = (
        replace(pool(), task=image),
        replace(pool(), task=Container("host"), runtime="reduction-server"),
    )
    job = replace(spec(1), pools=(primary, None, reducers))
    found = with_images(job, images_used(job, Aliases("lab", {GOOGLES: PYTHON}))).pools[2]
    assert found and found.task.interpreter == "/opt/torch/bin/python3" and found.task.image == "host"
    assert found.task.argv == ("python3", "-m", "trainyard_reduction.reducer")


def test_packages_use_the_image_that_theirs_stands_for():
    job = replace(spec(1), pools=(replace(pool(), task=PythonPackage(GOOGLES, ("gs://a/b",), "m")),))
    used = images_used(job, Aliases("lab", {GOOGLES: "ghcr.io/lab/torch:2"}))
    (found,) = with_images(job, used).pools
    assert found and runtime_of(found) == "podman" and found.task.image == "ghcr.io/lab/torch:2"


@pytest.mark.parametrize(
    ("task", "aliases", "field", "words"),
    [
        (Container(f"{GOOGLES}:7"), {}, "container_spec.image_uri", f"location alias lab {GOOGLES} host"),
        (
            PythonPackage(GOOGLES, ("gs://a/b",), "m"),
            {"gcr.io/cloud-aiplatform/*": "host"},
            "python_package_spec.executor_image_uri",
            f"location alias lab {GOOGLES} host",
        ),
        (Container(GOOGLES), {GOOGLES: "host"}, "container_spec.command", "no entrypoint"),
        (Container(GOOGLES), {GOOGLES: PYTHON}, "container_spec.command", "no entrypoint"),
        (
            Container(GOOGLES, (), ("--epochs=3",)),
            {GOOGLES: "host"},
            "container_spec.command",
            "no entrypoint",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_field_and_the_cure(task, aliases, field, words):
    job = replace(spec(1), pools=(pool(), replace(pool(), task=task)))
    with pytest.raises(InvalidDocument) as refused:
        images_used(job, Aliases("lab", aliases))
    (violation,) = refused.value.violations
    assert violation.field == f"job_spec.worker_pool_specs[1].{field}"
    assert words in violation.description


def test_what_a_job_has_kept_is_told_by_pools():
    resolved = {"pools": {"0": {"alias": "host"}, "2": {"code": {}}}, "index": ""}
    assert images_kept(resolved) == {0: "host"} and images_kept({}) == {}
    assert images_used_document(resolved) == {"imagesUsed": {"workerpool0": "host"}}
    assert images_used_document({}) == {}
