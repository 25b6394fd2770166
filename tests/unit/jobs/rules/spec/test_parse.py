"""Specs: what clients send is parsed, or refused with the names of the fields; nothing else ever happens."""

from __future__ import annotations

import copy
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.rules.spec.custom_job import (
    ACCELERATORS,
    STRATEGIES,
    CustomJob,
    CustomJobSpec,
    Disk,
    Machine,
    Pool,
)
from jobs.rules.spec.json_fields import MAX_VIOLATIONS
from jobs.rules.spec.parse import InvalidDocument, parse_custom_job, parse_spec, script_command, to_document
from jobs.rules.spec.secret_variables import SecretVariable
from jobs.rules.spec.tasks import (
    MAX_STRING_BYTES,
    REDUCTION_SERVER,
    RUNTIMES,
    Code,
    Container,
    Git,
    PythonPackage,
)
from tests.unit.jobs.rules.views import examples

CONTAINER = {"imageUri": "host", "command": ["python3", "train.py"]}
GOOD = {
    "displayName": "first",
    "jobSpec": {
        "workerPoolSpecs": [
            {"containerSpec": CONTAINER, "replicaCount": "1"},
            {},
            {
                "containerSpec": {"imageUri": "host", "args": ["ps"], "env": [{"name": "A", "value": "1"}]},
                "machineSpec": {"acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 2},
                "replicaCount": 2,
            },
        ],
        "scheduling": {"timeout": "3600s"},
    },
}
POOLS = "job_spec.worker_pool_specs"


def changed(path, value):
    """GOOD with one field set (or removed, by ...)."""
    document = copy.deepcopy(GOOD)
    *way, last = path
    place = document
    for key in way:
        place = place.setdefault(key, {}) if isinstance(place, dict) else place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


def violations(document):
    with pytest.raises(InvalidDocument) as refused:
        parse_custom_job(document)
    return refused.value.violations


def test_a_job_is_read():
    job = parse_custom_job(GOOD)
    primary, skipped, servers = job.job_spec.pools
    assert (job.display_name, primary.task.argv, skipped) == ("first", ("python3", "train.py"), None)
    assert servers.machine == Machine("", "NVIDIA_TESLA_T4", 2)
    assert servers.task.env == (("A", "1"),)
    names = [name for name, *_ in job.job_spec.replicas()]
    assert names == ["workerpool0-0", "workerpool2-0", "workerpool2-1"]


def test_what_googles_pipelines_send_is_read():
    """Mixed case, doubles for integers and enums, nulls, and fields that only mean something at Google."""
    job = parse_custom_job(
        {
            "display_name": "tp1",
            "name": "projects/p/locations/l/customJobs/1",
            "state": 3,
            "createTime": "2026-11-20T08:34:55.038248Z",
            "jobSpec": {
                "worker_pool_specs": [
                    {
                        "containerSpec": {"image_uri": "host", "args": ["x"], "command": None},
                        "machine_spec": {
                            "machine_type": "n1-standard-4",
                            "accelerator_type": 5,
                            "accelerator_count": 2.0,
                        },
                        "disk_spec": {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": 100.0},
                        "replica_count": 1.0,
                    }
                ],
                "scheduling": {
                    "timeout": "100.5s",
                    "strategy": 4.0,
                    "max_wait_duration": None,
                    "restart_job_on_worker_restart": True,
                    "disable_retries": False,
                },
                "enable_web_access": True,
                "service_account": "a@b.iam",
                "base_output_directory": {"output_uri_prefix": "gs://staging/out"},
            },
        }
    )
    spec = job.job_spec
    assert spec.pools[0].machine == Machine("n1-standard-4", "NVIDIA_TESLA_T4", 2)
    assert (spec.timeout_s, spec.strategy, spec.restart_job_on_worker_restart) == (100.5, "SPOT", True)
    assert (spec.base_output_directory, spec.kept) == ("gs://staging/out", (("service_account", "a@b.iam"),))


def test_defaults():
    spec = parse_custom_job(changed(["jobSpec", "scheduling"], ...)).job_spec
    assert (spec.timeout_s, spec.wait_limit_s, spec.disable_retries) == (604_800.0, None, False)
    flex = parse_custom_job(changed(["jobSpec", "scheduling", "strategy"], "FLEX_START")).job_spec
    assert flex.wait_limit_s == 86_400.0
    zero = parse_custom_job(
        changed(["jobSpec", "scheduling"], {"strategy": 6, "maxWaitDuration": "0s"})
    ).job_spec
    assert zero.wait_limit_s is None


POOL = ["jobSpec", "workerPoolSpecs", 2]
TASK = [*POOL, "containerSpec"]
WRONG = [
    (["displayName"], ..., "display_name", "required"),
    (["displayName"], "  ", "display_name", "required"),
    (["displayName"], "x" * 129, "display_name", "129 characters"),
    (["displayName"], "a\nb", "display_name", "control"),
    (["displayName"], "train-\u202egnp.exe", "display_name", "U+202E"),
    (["displayName"], "ad\u200bmin", "display_name", "U+200B"),
    (["displayName"], "\ud800", "display_name", "surrogate"),
    (["displayName"], 7, "display_name", "string"),
    (["labels"], [], "labels", "object"),
    (["labels"], {"Key": "v"}, "labels", "lowercase"),
    (["labels"], {"key": "V"}, "labels.key", "lowercase"),
    (["labels"], {"key": "v" * 65}, "labels.key", "64"),
    (["labels"], {f"k{n}": "" for n in range(65)}, "labels", "65 entries"),
    (["encryptionSpec"], {"kmsKeyName": "k"}, "encryption_spec", "not supported"),
    (["jobspec"], {}, "jobspec", "not a field"),
    (["jobSpec"], ..., POOLS, "required"),
    (["jobSpec"], "x", "job_spec", "object"),
    (["jobSpec", "persistentResourceId"], "x", "job_spec.persistent_resource_id", "not supported"),
    (["jobSpec", "enableWebAccess"], "yes", "job_spec.enable_web_access", "true or false"),
    (
        ["jobSpec", "baseOutputDirectory"],
        {"outputUriPrefix": "runs/7"},
        "job_spec.base_output_directory.output_uri_prefix",
        "absolute path",
    ),
    (
        ["jobSpec", "baseOutputDirectory"],
        {"outputUriPrefix": "~/runs"},
        "job_spec.base_output_directory.output_uri_prefix",
        "absolute path",
    ),
    (
        ["jobSpec", "baseOutputDirectory"],
        {"outputUriPrefix": "gs:///x"},
        "job_spec.base_output_directory.output_uri_prefix",
        "absolute path",
    ),
    (["jobSpec", "baseOutputDirectory"], {"uri": "x"}, "job_spec.base_output_directory.uri", "not a field"),
    (["jobSpec", "workerPoolSpecs"], [], POOLS, "required"),
    (["jobSpec", "workerPoolSpecs"], {}, POOLS, "list"),
    (["jobSpec", "workerPoolSpecs"], [{"containerSpec": CONTAINER}] * 5, POOLS, "at most 4"),
    (["jobSpec", "workerPoolSpecs", 0], {}, f"{POOLS}[0]", "must not be empty"),
    (["jobSpec", "workerPoolSpecs", 0], None, f"{POOLS}[0]", "must not be empty"),
    (["jobSpec", "workerPoolSpecs", 0, "replicaCount"], "2", f"{POOLS}[0].replica_count", "must be 1"),
    (["jobSpec", "workerPoolSpecs", 1], "x", f"{POOLS}[1]", "object"),
    ([*POOL, "replicaCount"], 0, f"{POOLS}[2].replica_count", "from 1"),
    ([*POOL, "replicaCount"], 1.5, f"{POOLS}[2].replica_count", "whole number"),
    ([*POOL, "replicaCount"], True, f"{POOLS}[2].replica_count", "whole number"),
    ([*POOL, "replicaCount"], "9" * 5000, f"{POOLS}[2].replica_count", "whole number"),
    ([*POOL, "replicaCount"], 10**5000, f"{POOLS}[2].replica_count", "a huge number"),
    ([*POOL, "replicaCount"], float("nan"), f"{POOLS}[2].replica_count", "whole number"),
    ([*POOL, "replicaCount"], 1000, POOLS, "1000 replicas together"),
    ([*POOL, "replica_count"], 2, f"{POOLS}[2].replica_count", "twice"),
    ([*POOL, "nfsMounts"], [{}], f"{POOLS}[2].nfs_mounts", "not supported"),
    ([*POOL, "diskSpec"], {"bootDiskSizeGb": -1}, f"{POOLS}[2].disk_spec.boot_disk_size_gb", "from 0"),
    (
        [*POOL, "machineSpec", "machineType"],
        "n1-standard-5",
        f"{POOLS}[2].machine_spec.machine_type",
        "known",
    ),
    ([*POOL, "machineSpec", "acceleratorType"], "H100", f"{POOLS}[2].machine_spec.accelerator_type", "known"),
    ([*POOL, "machineSpec", "acceleratorType"], 99, f"{POOLS}[2].machine_spec.accelerator_type", "known"),
    ([*POOL, "machineSpec", "acceleratorType"], "TPU_V3", f"{POOLS}[2].machine_spec.accelerator_type", "TPU"),
    ([*POOL, "machineSpec", "acceleratorType"], ..., f"{POOLS}[2].machine_spec.accelerator_type", "required"),
    (
        [*POOL, "machineSpec", "acceleratorCount"],
        ...,
        f"{POOLS}[2].machine_spec.accelerator_count",
        "at least 1",
    ),
    ([*POOL, "machineSpec", "acceleratorCount"], -1, f"{POOLS}[2].machine_spec.accelerator_count", "from 0"),
    (
        [*POOL, "machineSpec", "gpuPartitionSize"],
        "1g.10gb",
        f"{POOLS}[2].machine_spec.gpu_partition_size",
        "MIG",
    ),
    ([*POOL, "containerSpec"], ..., f"{POOLS}[2].container_spec", "required"),
    ([*TASK, "imageUri"], ..., f"{POOLS}[2].container_spec.image_uri", "host"),
    ([*TASK, "imageUri"], "Python:3.11", f"{POOLS}[2].container_spec.image_uri", "ghcr.io"),
    ([*TASK, "imageUri"], "--privileged", f"{POOLS}[2].container_spec.image_uri", "ghcr.io"),
    ([*TASK, "imageUri"], "a b", f"{POOLS}[2].container_spec.image_uri", "ghcr.io"),
    ([*TASK, "imageUri"], "gs://bucket/image.zip", f"{POOLS}[2].container_spec.image_uri", ".tar.gz"),
    ([*TASK, "imageUri"], "lab/train@sha256:12", f"{POOLS}[2].container_spec.image_uri", "ghcr.io"),
    ([*TASK, "args"], [], f"{POOLS}[2].container_spec.command", "no entrypoint"),
    ([*TASK, "args"], [""], f"{POOLS}[2].container_spec.command", "program"),
    ([*TASK, "args"], "x", f"{POOLS}[2].container_spec.args", "list"),
    ([*TASK, "args"], ["a", 1], f"{POOLS}[2].container_spec.args[1]", "string"),
    ([*TASK, "args"], ["a\0b"], f"{POOLS}[2].container_spec.args[0]", "NUL"),
    ([*TASK, "args"], ["x" * 2**17], f"{POOLS}[2].container_spec.args[0]", str(MAX_STRING_BYTES)),
    ([*TASK, "args"], ["é" * 60_000] * 6, f"{POOLS}[2].container_spec.command", "together"),
    ([*TASK, "env"], [{"value": "x"}], f"{POOLS}[2].container_spec.env[0].name", "letters"),
    ([*TASK, "env"], [{"name": "1A"}], f"{POOLS}[2].container_spec.env[0].name", "letters"),
    ([*TASK, "env"], [{"name": "A=B"}], f"{POOLS}[2].container_spec.env[0].name", "letters"),
    ([*TASK, "env"], [{"name": "TRAINYARD_RUN"}], f"{POOLS}[2].container_spec.env[0].name", "own"),
    ([*TASK, "env"], [{"name": "A"}, {"name": "A"}], f"{POOLS}[2].container_spec.env[1].name", "twice"),
    ([*TASK, "env"], [{"name": "A", "value": 1}], f"{POOLS}[2].container_spec.env[0].value", "string"),
    (
        [*TASK, "env"],
        [{"name": f"A{n}"} for n in range(101)],
        f"{POOLS}[2].container_spec.env",
        "at most 100",
    ),
    (["jobSpec", "scheduling", "timeout"], "0s", "job_spec.scheduling.timeout", "more than 0s"),
    (["jobSpec", "scheduling", "timeout"], "1h", "job_spec.scheduling.timeout", "duration"),
    (["jobSpec", "scheduling", "timeout"], 3600, "job_spec.scheduling.timeout", "duration"),
    (["jobSpec", "scheduling", "timeout"], "999999999999s", "job_spec.scheduling.timeout", "ten years"),
    (["jobSpec", "scheduling", "maxWaitDuration"], "-1s", "job_spec.scheduling.max_wait_duration", "0s"),
    (["jobSpec", "scheduling", "strategy"], 5, "job_spec.scheduling.strategy", "known"),
]


@pytest.mark.parametrize(
    ("path", "value", "field", "word"), WRONG, ids=[f"{field} {word}" for *_, field, word in WRONG]
)
def test_each_wrong_field_is_named(path, value, field, word):
    found = violations(changed(path, value))
    assert [violation.field for violation in found] == [field]
    assert word in found[0].description


def test_all_wrong_fields_are_named_at_once():
    document = changed(["displayName"], "")
    document["jobSpec"]["scheduling"] = {"timeout": "soon", "strategy": "FAST"}
    document["jobSpec"]["workerPoolSpecs"][0]["containerSpec"] = {"imageUri": "X", "command": ["a"]}
    assert [violation.field for violation in violations(document)] == [
        "display_name",
        f"{POOLS}[0].container_spec.image_uri",
        "job_spec.scheduling.timeout",
        "job_spec.scheduling.strategy",
    ]


def test_a_hostile_document_gets_a_bounded_answer():
    found = violations({"x" * 10_000 + str(n): n for n in range(10_000)})
    assert len(found) == MAX_VIOLATIONS
    assert all(len(violation.field + violation.description) < 200 for violation in found)


def test_a_script_from_the_form_becomes_a_command():
    assert script_command("echo 'a' \"b\"\n", "bash") == ("bash", "-c", "echo 'a' \"b\"\n")


# -- any job there is survives writing and reading, and any document there is leads to a job or a refusal --

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
WORD = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)
NANOS = st.integers(1, 10**16).map(lambda nanos: float(f"{nanos // 10**9}.{nanos % 10**9:09d}"))
MACHINES = st.one_of(
    st.just(Machine()),
    st.sampled_from(["", "host", "n1-standard-8", "custom-3-4096"]).map(Machine),
    st.builds(
        Machine,
        st.just(""),
        st.sampled_from(
            [name for n, name in ACCELERATORS.items() if n and "TPU" not in name] + ["NVIDIA_RTX_4090"]
        ),
        st.integers(1, 64),
    ),
)
ENVS = st.dictionaries(WORD.map("E{}".format), TEXT, max_size=3).map(lambda env: tuple(env.items()))
SECRETS = st.sampled_from([(), (SecretVariable("HF_TOKEN", "hf", "project"),)])
CONTAINERS = st.builds(
    Container,
    st.sampled_from(["host", "ghcr.io/lab/train:1.2", "localhost:5000/a/b_c@sha256:" + 64 * "0"]),
    st.lists(TEXT, max_size=3).map(lambda rest: ("run", *rest)),
    st.tuples(TEXT),
    ENVS,
    SECRETS,
)
PACKAGES = st.builds(
    PythonPackage,
    st.sampled_from(["host", "us-docker.pkg.dev/vertex-ai/training/pytorch-gpu.2-4.py310:latest"]),
    st.lists(WORD.map("gs://staging/{}-0.1.tar.gz".format), min_size=1, max_size=3).map(tuple),
    st.sampled_from(["trainer", "trainer.task", "_a.b_1"]),
    st.lists(TEXT, max_size=2).map(tuple),
    ENVS,
    SECRETS,
)
CODES = st.none() | st.one_of(
    st.builds(Code, artifact=st.just(64 * "a"), directory=st.sampled_from(["", "src", "a/b"])),
    st.builds(Code, archive_uri=WORD.map("gs://bucket/{}.tar".format)),
    st.builds(
        Code,
        git=st.builds(
            Git,
            st.sampled_from(["https://example.com/lab/train.git", "git@example.com:lab/train.git"]),
            st.sampled_from(["main", "v1.2", 40 * "c", "feature/x"]),
            st.sampled_from(["", "DEPLOY_KEY"]),
        ),
    ),
)
SHM_MB = st.sampled_from([0, 1, 1024])
DISKS = st.builds(Disk, st.sampled_from(["", "pd-ssd"]), st.integers(0, 100))


def pools(replicas):
    # Reducers are one pool of a job, with no program of their own: test_reduction.py has theirs.
    runtimes = st.sampled_from(["", *(each for each in RUNTIMES if each != REDUCTION_SERVER)])
    return st.builds(Pool, MACHINES, replicas, CONTAINERS | PACKAGES, DISKS, runtimes, CODES, shm_mb=SHM_MB)


SPECS = st.builds(
    CustomJobSpec,
    pools=st.builds(
        lambda first, rest: (first, *rest),
        pools(st.just(1)),
        st.lists(st.none() | pools(st.integers(1, 300)), max_size=3),
    ),
    timeout_s=NANOS,
    disable_retries=st.booleans(),
    restart_job_on_worker_restart=st.booleans(),
    strategy=st.sampled_from(["", *list(STRATEGIES.values())[1:]]),
    max_wait_duration_s=st.none() | st.just(0.0) | NANOS,
    enable_web_access=st.booleans(),
    enable_dashboard_access=st.booleans(),
    base_output_directory=st.one_of(st.just(""), WORD.map(lambda word: f"/{word}")),
    kept=st.sampled_from([(), (("service_account", "a"), ("network", "n"))]),
)


NUMBERS = {"replicaCount", "acceleratorCount", "bootDiskSizeGb", "shmMb"}
ENUMS = {"strategy": STRATEGIES, "acceleratorType": ACCELERATORS}
SNAKE = re.compile("[A-Z]")


def snake_case(key):
    return SNAKE.sub(lambda match: f"_{match[0].lower()}", key)


def snake(key, value):
    """Names in the style of protos, enums as numbers, integers as numbers: what raw clients in Python send."""
    return snake_case(key), numbered(key, value, int)


def mixed_as_pipelines(key, value):
    """What the SDK sends for a training pipeline: doubles for integers and enums, and both styles of names."""
    outer = key in ("workerPoolSpecs", "machineSpec", "replicaCount", "diskSpec", "scheduling", "strategy")
    return (snake_case(key) if outer else key), numbered(key, value, float)


def numbered(key, value, kind):
    if key in NUMBERS:
        return kind(value)
    known = {name: kind(number) for number, name in ENUMS.get(key, {}).items()}
    return known.get(value, value) if isinstance(value, str) else value


def as_sent_by(style, document):
    """The document in another of the forms in which clients write it."""
    if isinstance(document, list):
        return [as_sent_by(style, item) for item in document]
    if not isinstance(document, dict):
        return document
    return {
        name: each if key == "labels" else as_sent_by(style, each)
        for key, value in document.items()
        for name, each in [style(key, value)]
    }


@examples(150)
@given(SPECS, WORD, st.dictionaries(WORD.map(str.lower), WORD.map(str.lower), max_size=3))
def test_every_job_survives_writing_and_reading(spec, name, labels):
    job = CustomJob(name, spec, labels)
    assert parse_custom_job(to_document(job)) == job
    assert parse_custom_job(as_sent_by(snake, to_document(job))) == job
    assert parse_custom_job(as_sent_by(mixed_as_pipelines, to_document(job))) == job
    assert parse_spec(to_document(spec)) == spec


KEYS = st.sampled_from(
    [
        "displayName",
        "display_name",
        "labels",
        "jobSpec",
        "workerPoolSpecs",
        "containerSpec",
        "imageUri",
        "command",
    ]
    + ["args", "env", "name", "value", "machineSpec", "machineType", "acceleratorType", "accelerator_count"]
    + ["replicaCount", "scheduling", "timeout", "strategy", "diskSpec"]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["host", "1s", "2.0"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=12,
)


@st.composite
def spoiled(draw):
    """GOOD with something else at one or two of its places."""
    document = copy.deepcopy(GOOD)
    for _ in range(draw(st.integers(1, 2))):
        place = document
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if not isinstance(place[key], dict | list) or draw(st.booleans()):
                place[key] = draw(JSON)
                break
            place = place[key]
    return document


PACKAGE = {
    "executorImageUri": "us-docker.pkg.dev/vertex-ai/training/pytorch-gpu.2-4.py310:latest",
    "packageUris": ["gs://staging/trainer-0.1.tar.gz"],
    "pythonModule": "trainer.task",
    "args": ["--lr=0.1"],
}


def with_package(**fields):
    package = {name: value for name, value in {**PACKAGE, **fields}.items() if value is not None}
    document = changed([*POOL, "pythonPackageSpec"], package)
    del document["jobSpec"]["workerPoolSpecs"][2]["containerSpec"]
    return document


def test_a_python_package_is_read():
    package = parse_custom_job(with_package(env=[{"name": "A", "value": "1"}])).job_spec.pools[2].task
    assert package.argv == ("python3", "-m", "trainer.task", "--lr=0.1")
    assert (package.package_uris, package.env) == (("gs://staging/trainer-0.1.tar.gz",), (("A", "1"),))
    assert package.strings_bytes == len("python3-mtrainer.task--lr=0.1A=1")


def test_an_image_brings_its_own_program():
    document = changed(TASK, {"imageUri": "ghcr.io/lab/train"})
    assert parse_custom_job(document).job_spec.pools[2].task.argv == ()
    only_args = changed(TASK, {"imageUri": "ghcr.io/lab/train", "args": [""]})
    assert parse_custom_job(only_args).job_spec.pools[2].task.argv == ("",)


@pytest.mark.parametrize(
    ("fields", "field", "word"),
    [
        ({"executorImageUri": None}, "executor_image_uri", "host"),
        ({"packageUris": None}, "package_uris", "1 to 100"),
        ({"packageUris": ["gs://staging/a"] * 101}, "package_uris", "at most 100"),
        ({"packageUris": ["gs://staging/a", "/tmp/b"]}, "package_uris[1]", "gs://bucket/name"),
        ({"packageUris": ["gs://staging/"]}, "package_uris[0]", "gs://bucket/name"),
        ({"pythonModule": None}, "python_module", "trainer.task"),
        ({"pythonModule": "-c"}, "python_module", "trainer.task"),
        ({"pythonModule": "a..b"}, "python_module", "trainer.task"),
        ({"args": ["a", 1]}, "args[1]", "string"),
        ({"args": ["x" * 100_000] * 6}, "args", "together"),
        ({"command": ["x"]}, "command", "not a field"),
        ({"env": [{"name": "1A"}]}, "env[0].name", "letters"),
    ],
)
def test_each_wrong_field_of_a_python_package_is_named(fields, field, word):
    (found,) = violations(with_package(**fields))
    assert found.field == f"{POOLS}[2].python_package_spec.{field}" and word in found.description


def test_a_pool_has_one_task():
    (found,) = violations(changed([*POOL, "pythonPackageSpec"], PACKAGE))
    assert found.field == f"{POOLS}[2].python_package_spec" and "one of the two" in found.description


@pytest.mark.parametrize(
    ("ours", "field", "word"),
    [
        ({"runtime": "lxc"}, "runtime", "podman"),
        ({"shmMb": -1}, "shm_mb", "from 0"),
        ({"shmMb": "much"}, "shm_mb", "whole number"),
        ({"image": "x"}, "image", "not a field"),
        ("podman", "", "object"),
        ({"code": {"directory": "a"}}, "code.artifact", "exactly one"),
        ({"code": {"artifact": 64 * "a", "archiveUri": "gs://bucket/b"}}, "code.artifact", "exactly one"),
        ({"code": {"artifact": "A" * 64}}, "code.artifact", "SHA-256"),
        ({"code": {"archiveUri": "https://a/b"}}, "code.archive_uri", "gs://bucket/name"),
        ({"code": {"artifact": 64 * "a", "directory": "../b"}}, "code.directory", "below"),
        ({"code": {"artifact": 64 * "a", "directory": "/b"}}, "code.directory", "below"),
        ({"code": {"artifact": 64 * "a", "branch": "b"}}, "code.branch", "not a field"),
        ({"code": {"git": {"url": "https://a/b"}}}, "code.git.revision", "commit"),
        (
            {"code": {"git": {"url": "https://a/b", "revision": "--upload-pack=x"}}},
            "code.git.revision",
            "commit",
        ),
        ({"code": {"git": {"url": "https://a/b", "revision": "a..b"}}}, "code.git.revision", "commit"),
        ({"code": {"git": {"url": "ext::sh -c x", "revision": "a"}}}, "code.git.url", "repository"),
        ({"code": {"git": {"url": "--upload-pack=x", "revision": "a"}}}, "code.git.url", "repository"),
        ({"code": {"git": {"url": "file:///etc", "revision": "a"}}}, "code.git.url", "repository"),
        ({"code": {"git": {"url": "http://a/b", "revision": "a"}}}, "code.git.url", "https://"),
        (
            {"code": {"git": {"url": "https://me:pass@a/b", "revision": "a"}}},
            "code.git.url",
            "credential_secret",
        ),
        (
            {"code": {"git": {"url": "https://a/b", "revision": "a", "credentialSecret": "-"}}},
            "code.git.credential_secret",
            "stored secret",
        ),
    ],
)
def test_each_wrong_field_of_ours_is_named(ours, field, word):
    (found,) = violations(changed([*POOL, "trainyard"], ours))
    assert found.field == f"{POOLS}[2].trainyard.{field}".rstrip(".") and word in found.description


@examples(600)
@given(JSON | spoiled())
def test_any_document_is_a_job_or_a_refusal_that_can_be_shown(document):
    try:
        job = parse_custom_job(document)
    except InvalidDocument as refused:
        assert refused.violations
        str(refused).encode()
    else:
        assert parse_custom_job(to_document(job)) == job


def test_the_orders_of_all_replicas_are_bounded_together():
    large = changed([*POOL, "containerSpec", "env"], [{"name": "A", "value": "x" * 100_000}])
    pool = large["jobSpec"]["workerPoolSpecs"][2]
    pool["replicaCount"] = 600
    assert parse_custom_job(large).job_spec.pools[2].replica_count == 600
    pool["replicaCount"] = 700
    (violation,) = violations(large)
    assert violation.field == POOLS and "bytes; at most 67108864" in violation.description


@pytest.mark.parametrize(("machine", "most"), [("n1-standard-4", 12700), ("host", None)])
def test_shared_memory_is_part_of_the_memory_of_the_machine(machine, most):
    asked = changed([*POOL, "machineSpec"], {"machineType": machine})
    pool = asked["jobSpec"]["workerPoolSpecs"][2]
    for size in (1, most or 1 << 20):
        pool["trainyard"] = {"shmMb": size}
        assert parse_custom_job(asked).job_spec.pools[2].shm_mb == size
    if most:
        pool["trainyard"] = {"shmMb": most + 1}
        (found,) = violations(asked)
        assert found.field == f"{POOLS}[2].trainyard.shm_mb" and f"at most {most}" in found.description
