"""Which commands lose the parameters of trials; what a real shell does is the judge."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from jobs.rules.spec.custom_job import CustomJobSpec, Machine, Pool
from jobs.rules.spec.tasks import Container, PythonPackage
from jobs.rules.tuning.lost_arguments import lost_arguments


def pool(*argv, args=()):
    return Pool(Machine(), 1, Container("host", argv, args))


@pytest.mark.parametrize(
    ("argv", "lost"),
    [
        (("sh", "-c", "echo"), True),
        (("/bin/bash", "-c", "echo"), True),
        (("bash", "-ec", "echo"), True),
        (("bash", "-e", "-c", "echo"), True),
        (("sh", "-c", 'echo "$@"', "trial"), False),
        (("bash", "-c", 'echo "${@}"', "trial"), False),
        (("sh", "-c", "echo $0"), False),
        (("echo",), False),
        (("env", "echo"), False),
    ],
)
def test_a_warning_is_given_where_a_shell_keeps_the_arguments(argv, lost):
    shown = subprocess.run([*argv, "--rate=0.1"], capture_output=True, text=True, check=True).stdout
    assert ("--rate=0.1" not in shown) is lost
    assert bool(list(lost_arguments(CustomJobSpec((pool(*argv),))))) is lost


def test_the_warning_names_pool_and_shell_and_the_cure():
    spec = CustomJobSpec((pool("python3", "train.py"), None, pool("/bin/sh", args=("-c", "train"))))
    [text] = lost_arguments(spec)
    assert "workerpool2" in text and '"sh -c"' in text and '"$@"' in text


def test_scripts_in_files_and_packages_get_their_arguments():
    package = replace(pool("x"), task=PythonPackage("host", ("gs://b/p.whl",), "trainer"))
    spec = CustomJobSpec(
        (pool("bash", "train.sh"), package, pool("bash", "--norc", "train.sh"), pool("bash", "-c"))
    )
    assert list(lost_arguments(spec)) == []
