"""Pools in gcloud's grammar become pools of the document, which the console's own parser accepts."""

from __future__ import annotations

import pytest

from console.client.errors import ClientError
from console.client.worker_pool_spec import document, parsed


def pool(text, command=(), args=(), packages=()):
    return document(parsed(text), list(command), list(args), [], list(packages))


def test_a_container_with_gpus():
    assert pool(
        "machine-type=n1-standard-8,replica-count=2,accelerator-type=nvidia-tesla-v100,accelerator-count=4,"
        "container-image-uri=gcr.io/x/y:1",
        command=["python", "t.py"],
        args=["--lr=1"],
    ) == {
        "replicaCount": "2",
        "machineSpec": {
            "machineType": "n1-standard-8",
            "acceleratorType": "NVIDIA_TESLA_V100",
            "acceleratorCount": 4,
        },
        "containerSpec": {"imageUri": "gcr.io/x/y:1", "command": ["python", "t.py"], "args": ["--lr=1"]},
    }


def test_a_script_of_a_folder_and_a_module_of_a_package():
    assert pool("executor-image-uri=host,local-package-path=src,script=train.py")["containerSpec"] == {
        "imageUri": "host",
        "command": ["python3", "train.py"],
    }
    assert pool("executor-image-uri=host,local-package-path=src,python-module=trainer.task")[
        "containerSpec"
    ] == {
        "imageUri": "host",
        "command": ["python3", "-m", "trainer.task"],
    }
    assert pool("executor-image-uri=host,python-module=trainer.task", packages=["gs://b/p.tar.gz"])[
        "pythonPackageSpec"
    ] == {"executorImageUri": "host", "packageUris": ["gs://b/p.tar.gz"], "pythonModule": "trainer.task"}


def test_another_separator_and_an_empty_pool():
    assert parsed("^;^machine-type=host;container-image-uri=a,b") == {
        "machine-type": "host",
        "container-image-uri": "a,b",
    }
    assert pool("") == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("machine=host", "there is no 'machine'; known are"),
        ("machine-type", "has no ="),
        ("machine-type=a,machine-type=b", "given twice"),
        ("replica-count=two,container-image-uri=host", "must be a number"),
        ("accelerator-count=2,container-image-uri=host", "needs an accelerator-type"),
        ("machine-type=host", "container-image-uri is missing"),
        ("executor-image-uri=host,script=t.py", "local-package-path"),
        ("executor-image-uri=host,python-module=m", "needs packages"),
        ("requirements=torch", "requirements is not supported"),
    ],
)
def test_what_is_wrong_is_named_with_its_cure(text, why):
    with pytest.raises(ClientError, match=why) as refused:
        pool(text)
    assert refused.value.code == 2 and refused.value.cure
