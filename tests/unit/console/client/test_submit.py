"""What `submit` sends: the folder once, the document that was meant, and nothing without consent."""

from __future__ import annotations

import io
import json
import tarfile

import pytest

from tests.harness.command_line import CommandLine
from tests.unit.console.client.test_connection import Console, console

__all__ = ["Console", "console"]

MADE = {"name": "projects/nlp/locations/default/customJobs/42", "displayName": "x"}
MISSING = (404, {"Trainyard-Version": "0.1.0"}, {"error": {"message": "There is no such resource."}})
JOB = {
    "displayName": "a",
    "jobSpec": {"workerPoolSpecs": [{"containerSpec": {"imageUri": "host", "env": []}}]},
}


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    return CommandLine(tmp_path_factory.mktemp("client"))


@pytest.fixture
def submit(command, console, tmp_path):
    (tmp_path / "code" / "data").mkdir(parents=True)
    (tmp_path / "code" / "train.py").write_text("print(1)\n")
    (tmp_path / "code" / "data" / "big.bin").write_text("x")
    (tmp_path / "code" / ".gitignore").write_text("data/\n")

    def run(*words, stdin="", check=True, folder="code"):
        made = {"TRAINYARD_CONSOLE": console.url, "TRAINYARD_TOKEN": "t", "TRAINYARD_PROJECT": "nlp"}
        return command.run("submit", *words, stdin=stdin, check=check, cwd=tmp_path / folder, **made)

    return run


POOL = ("--worker-pool-spec", "container-image-uri=host")


GIT = "https://example.com/lab/train.git@v1"


def submitted(console):
    method, path, body = console.sent[-1]
    assert (method, path) == ("POST", "/v1/projects/nlp/locations/default/customJobs")
    return json.loads(body)


def test_a_command_brings_the_folder_and_says_what_is_left_out(submit, console):
    console.answers = [MISSING, (201, {}, {}), (200, {}, MADE)]
    done = submit(
        "--accelerator", "NVIDIA_H100_80GB:8", "--replicas", "3", "--", "python", "train.py", "--lr", "1"
    )
    assert "2 files" in done.stderr and "left out: data/" in done.stderr
    assert "Submitted job 42" in done.stdout
    (_, asked, _), (method, path, archive), _ = console.sent
    sha = asked.rpartition("/")[2]
    assert method == "POST" and path.startswith(
        "/api/v1/projects/nlp/artifacts?kind=archive&name=code.tar.gz"
    )
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        assert sorted(found.getnames()) == [".gitignore", "train.py"]
    first, others = submitted(console)["jobSpec"]["workerPoolSpecs"]
    assert first["trainyard"] == others["trainyard"] == {"code": {"artifact": sha}}
    assert (first["replicaCount"], others["replicaCount"]) == ("1", "2")
    assert first["containerSpec"] == {"imageUri": "host", "command": ["python", "train.py", "--lr", "1"]}
    assert first["machineSpec"]["acceleratorCount"] == 8


def test_what_is_there_is_not_sent_again(submit, console):
    console.answers = [(200, {}, {"sha256": "x"}), (200, {}, MADE)]
    submit("--", "true")
    assert [method for method, _, _ in console.sent] == ["GET", "POST"]


def test_no_upload_sends_the_command_alone(submit, console):
    console.answers = [(200, {}, MADE)]
    submit(
        "--no-upload",
        "--name",
        "n",
        "--label",
        "team=nlp,x=y",
        "--env",
        "A=b=c",
        "--timeout",
        "60",
        "--",
        "true",
    )
    sent = submitted(console)
    assert sent["displayName"] == "n" and sent["labels"] == {"team": "nlp", "x": "y"}
    assert sent["jobSpec"]["scheduling"] == {"timeout": "60s"}
    assert sent["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["env"] == [{"name": "A", "value": "b=c"}]
    assert "trainyard" not in sent["jobSpec"]["workerPoolSpecs"][0]


def test_a_file_or_a_specification_alone_and_stdin(submit, console, tmp_path):
    console.answers = [(200, {}, MADE)]
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    submit(tmp_path / "job.json", "--env", "A=1")
    assert submitted(console)["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["env"] == [
        {"name": "A", "value": "1"}
    ]
    submit("-", stdin=json.dumps(JOB["jobSpec"]))
    assert submitted(console) == {"displayName": "job", "jobSpec": JOB["jobSpec"]}


@pytest.mark.parametrize("task", ["container_spec", "python_package_spec", "containerSpec"])
def test_options_win_over_a_file_in_either_spelling(submit, console, task):
    """The shape of the worker_pool_specs that people have from Google's SDK."""
    console.answers = [(200, {}, MADE)]
    pool = {task: {"image_uri": "host", "env": [{"name": "SEED", "value": "1"}, {"name": "A", "value": "a"}]}}
    job = {"display_name": "a", "job_spec": {"worker_pool_specs": [pool, {}], "enable_web_access": False}}
    words = ["--env", "SEED=2", "--timeout", "60", "--enable-web-access", "--name", "b"]
    submit("-", *words, stdin=json.dumps(job))
    sent = submitted(console)
    env = [{"name": "A", "value": "a"}, {"name": "SEED", "value": "2"}]
    assert sent == {
        "displayName": "b",
        "job_spec": {
            "worker_pool_specs": [{task: {"image_uri": "host", "env": env}}, {}],
            "enable_web_access": True,
            "scheduling": {"timeout": "60s"},
        },
    }


def test_a_command_says_where_its_outputs_go_and_how_it_waits(submit, console):
    console.answers = [(200, {}, MADE)]
    submit(
        "--git", GIT, "--git-secret", "KEY", "--output", "gs://b/run", "--secret", "HF", "--secret", "W=wandb",
        "--strategy", "flex-start", "--priority", "low", "--label", "team=a", "--env", "A=1",
        "--image", "ghcr.io/lab/train:1", "--runtime", "docker", "--shm-mb", "64", "--replicas", "2", "--", "true",
    )  # fmt: skip
    sent = submitted(console)
    assert len(console.sent) == 1, "no folder is uploaded"
    assert sent["labels"] == {"team": "a", "trainyard-priority": "low"}
    spec = sent["jobSpec"]
    assert spec["baseOutputDirectory"] == {"outputUriPrefix": "gs://b/run"}
    assert spec["scheduling"] == {"strategy": "FLEX_START"}
    git = {"url": "https://example.com/lab/train.git", "revision": "v1", "credentialSecret": "KEY"}
    for pool in spec["workerPoolSpecs"]:
        assert pool["trainyard"] == {"runtime": "docker", "shmMb": 64, "code": {"git": git}}
        assert pool["containerSpec"]["env"] == [
            {"name": "A", "value": "1"},
            {"name": "HF", "valueFrom": {"secret": "HF"}},
            {"name": "W", "valueFrom": {"secret": "wandb"}},
        ]


def test_the_engine_is_of_pools_with_an_image_and_reducers_have_none(submit, console):
    console.answers = [(200, {}, MADE)]
    code = {"artifact": 64 * "a"}
    pools = [
        {
            "container_spec": {"image_uri": "a/b"},
            "trainyard": {"runtime": "podman", "shm_mb": 1, "code": code},
        },
        {"pythonPackageSpec": {"executorImageUri": "c/d"}},
        {
            "containerSpec": {
                "imageUri": "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"
            }
        },
        {"containerSpec": {"imageUri": "host"}},
    ]
    submit("-", "--runtime", "docker", "--shm-mb", "64", stdin=json.dumps({"workerPoolSpecs": pools}))
    engine = {"runtime": "docker", "shmMb": 64}
    found = [pool.get("trainyard") for pool in submitted(console)["jobSpec"]["workerPoolSpecs"]]
    assert found == [{"code": code, **engine}, engine, None, None]


JOB_42 = {"project": "nlp", "customJob": {}, "replicas": [], "attempt": 1}
OVER = {"state": "JOB_STATE_SUCCEEDED"}


def stored(*states, **more):
    return (
        200,
        {},
        {"hosts": [{"host": f"gpu-{n}", "state": each, **more} for n, each in enumerate(states)]},
    )


def test_files_are_waited_for_where_that_is_asked(submit, console):
    """So that the next command of a script finds them, also over a console that is away for a moment."""
    made = [(200, {}, MADE), (200, {}, JOB_42), (200, {}, OVER)]
    coming = stored("WRITING", problem="the host does not answer")
    away = (503, {}, {"error": {"message": "The database does not answer."}})
    console.answers = [*made, coming, coming, away, stored("STORED", "KEPT"), (200, {}, JOB_42)]
    done = submit("--files", "--no-upload", "--", "true")
    assert [path for _, path, _ in console.sent].count("/api/v1/jobs/42/outputs") == 4
    assert done.stderr.count("waiting for files. gpu-0: the host does not answer") == 1
    assert "database does not answer" in done.stderr and "some files stay on host gpu-1" in done.stderr
    assert "Job 42 has succeeded" in done.stdout


def test_without_that_only_the_end_is_waited_for(submit, console):
    console.answers = [(200, {}, MADE), (200, {}, JOB_42), (200, {}, OVER), (200, {}, JOB_42)]
    submit("--wait", "--no-upload", "--", "true")
    assert not any("outputs" in path for _, path, _ in console.sent)


def test_variables_that_nothing_would_get_are_refused(submit, console):
    job = {"jobSpec": {"workerPoolSpecs": [{"machineSpec": {}}]}}
    done = submit("-", "--env", "A=1", stdin=json.dumps(job), check=False)
    assert done.returncode == 2 and "--env has no effect" in done.stderr and not console.sent


def test_pools_of_gcloud(submit, console):
    console.answers = [MISSING, (201, {}, {}), (200, {}, MADE)]
    submit(
        "--worker-pool-spec", "executor-image-uri=host,local-package-path=.,script=train.py", "--args=--lr,1"
    )
    [pool] = submitted(console)["jobSpec"]["workerPoolSpecs"]
    assert pool["containerSpec"] == {
        "imageUri": "host",
        "command": ["python3", "train.py"],
        "args": ["--lr", "1"],
    }
    assert pool["trainyard"]["code"]["artifact"]


def test_advice_is_shown_and_a_dry_run_sends_nothing(submit, console):
    console.answers = [(200, {"Warning": '299 trainyard "No checkpoints are kept."'}, MADE)]
    assert "No checkpoints are kept." in submit("--no-upload", "--", "true").stderr
    sent = len(console.sent)
    assert json.loads(submit("--dry-run", "--", "true").stdout)["jobSpec"]
    assert len(console.sent) == sent


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "Say what to submit"),
        (("job.json", "--", "true"), "Say what to submit"),
        (("none.json",), "cannot be read"),
        (("--accelerator", "X:y", "--", "true"), "is no number"),
        (("--label", "x", "--no-upload", "--", "true"), "NAME=VALUE"),
        (("--folder", "nowhere", "--", "true"), "is no folder"),
        (("train.py",), "is no JSON"),
        (("--accelerator", "NVIDIA_H100_80GB:8", "train.py"), "--accelerator has no effect with a file"),
        (("--replicas", "2", "train.py"), "--replicas has no effect with a file"),
        (("--image", "a/b:1", "train.py"), "--image has no effect with a file"),
        (("--machine-type", "host", "train.py"), "--machine-type has no effect with a file"),
        (("--folder", ".", "train.py"), "--folder has no effect with a file"),
        (("--command", "a", "train.py"), "--command has no effect with a file"),
        (("--args=--lr", "train.py"), "--args has no effect with a file"),
        (
            ("--python-package-uris", "gs://a/b", "train.py"),
            "--python-package-uris has no effect with a file",
        ),
        ((*POOL, "--accelerator", "X:8"), "--accelerator has no effect with --worker-pool-spec"),
        ((*POOL, "--replicas", "2"), "--replicas has no effect with --worker-pool-spec"),
        ((*POOL, "--image", "a/b:1"), "--image has no effect with --worker-pool-spec"),
        ((*POOL, "--no-upload"), "--no-upload has no effect with --worker-pool-spec"),
        ((*POOL, "--python-package-uris", "gs://a/b"), "no pool is a Python package"),
        (
            ("--worker-pool-spec", "python-module=a", "--python-package-uris=gs://a/b", "--command=x"),
            "no pool is a container",
        ),
        (("--command", "a", "--", "true"), "--command has no effect with -- COMMAND"),
        (("--args", "a", "--", "true"), "--args has no effect with -- COMMAND"),
        (("--folder", ".", "--no-upload", "--", "true"), "--folder has no effect with --no-upload"),
        (("--git", GIT, "--folder", ".", "--", "true"), "--folder has no effect with --git"),
        (("--git", GIT, "--no-upload", "--", "true"), "--no-upload has no effect with --git"),
        (("--git-secret", "K", "--", "true"), "--git-secret has no effect without --git"),
        ((*POOL, "--git", GIT), "--git has no effect with --worker-pool-spec"),
        (("--git", "git@example.com:lab/train.git", "--", "true"), "URL@REVISION is expected"),
        (("--git", "ssh://git@example.com/lab/train", "--", "true"), "URL@REVISION is expected"),
        (("--secret", "=x", "--no-upload", "--", "true"), "NAME=STORED is expected"),
        (("--runtime", "podman", "--no-upload", "--", "true"), "--runtime has no effect: no pool runs"),
        ((*POOL, "--shm-mb", "64"), "--shm-mb has no effect: no pool runs an image"),
        (("--runtime", "process", "--", "true"), "invalid choice"),
        (("--runtime", "", "--image", "a/b", "--", "true"), "invalid choice"),
        (("--shm-mb", "0", "--no-upload", "--", "true"), "--shm-mb has no effect: no pool runs an image"),
        (("--git", "https://ann:s3cret@example.com/a.git@v1", "--", "true"), "Store it"),
        (("--git", "https://s3cret@example.com/a.git@v1", "--", "true"), "Store it"),
        (("--git", "ssh://ann:s3cret@example.com/a.git@v1", "--", "true"), "Store it"),
    ],
)
def test_what_is_not_understood_is_told_and_nothing_is_sent(submit, console, words, why):
    done = submit(*words, check=False)
    assert done.returncode == 2 and why in done.stderr and not console.sent
    assert "s3cret" not in done.stderr


def test_no_room_in_dev_shm_is_what_the_job_says(submit, console):
    """So that the console can refuse it: an option that is silently without effect is worse."""
    console.answers = [(200, {}, MADE)]
    submit("--git", "ssh://git@example.com/lab/a.git@v1", "--image", "a/b", "--shm-mb", "0", "--", "true")
    [pool] = submitted(console)["jobSpec"]["workerPoolSpecs"]
    assert pool["trainyard"]["shmMb"] == 0


def test_a_console_without_room_says_so(submit, console):
    full = {"error": {"message": "The project has no room."}}
    console.answers = [MISSING, (429, {}, full)]
    done = submit("--", "true", check=False)
    assert done.returncode == 1 and "no room" in done.stderr and "Submitted" not in done.stdout
