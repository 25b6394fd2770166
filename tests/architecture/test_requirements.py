"""tools/install installs what pyproject.toml and constraints.txt say, and each file has a digest (tools/pin)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LISTS = {path.stem: path for path in sorted((ROOT / "tools" / "requirements").glob("*.txt"))}
LOCKS = ("package-lock.json", "tools/requirements/lighthouse/package-lock.json")
# Lists of environments beside ours, which have versions of their own.
OF_THEIR_OWN = ("google-sdk-1.60",)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def entries(text):
    """The packages of a list: name, then version and number of digests."""
    found = {}
    for entry in re.sub(r"\\\n", " ", text).splitlines():
        requirement, _, digests = entry.partition(" --hash=")
        read = Requirement(requirement)
        found[canonicalize_name(read.name)] = str(read.specifier), entry.count("--hash=sha256:")
    return found


def wanted(requirements):
    return {canonicalize_name(read.name): str(read.specifier) for read in map(Requirement, requirements)}


@pytest.mark.parametrize("name", LISTS)
def test_each_package_of_a_list_has_one_version_and_its_digests(name):
    text = LISTS[name].read_text()
    assert entries(text) and "://" not in text
    for package, (version, digests) in entries(text).items():
        assert version.startswith("==") and digests >= 1, package


@pytest.mark.parametrize("name", [name for name in LISTS if name not in OF_THEIR_OWN])
def test_the_lists_have_the_versions_of_the_constraints(name):
    pins = wanted((ROOT / "constraints.txt").read_text().split())
    found = {package: version for package, (version, _) in entries(LISTS[name].read_text()).items()}
    assert {package: pins[package] for package in found.keys() & pins.keys()} == {
        package: version for package, version in found.items() if package in pins
    }, "run tools/pin"


@pytest.mark.parametrize("name", ["run", "all"])
def test_the_lists_have_what_the_project_asks_for(name):
    asked = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
    asked += PROJECT["project"]["optional-dependencies"]["dev"] if name == "all" else []
    asked = [re.sub(r"\[.*?\]", "", each) for each in asked]
    found = {package: version for package, (version, _) in entries(LISTS[name].read_text()).items()}
    assert wanted(asked).items() <= found.items(), "run tools/pin"


@pytest.mark.parametrize("lock", LOCKS, ids=str)
def test_each_package_of_npm_has_one_version_and_its_digest_and_comes_from_any_registry(lock):
    packages = json.loads((ROOT / lock).read_text())["packages"]
    del packages[""]
    assert packages
    for name, package in packages.items():
        assert "version" in package and package["integrity"].startswith("sha512-"), name
        assert "resolved" not in package, f"{name}: npm install --omit-lockfile-registry-resolved"


@pytest.mark.parametrize("lock", LOCKS, ids=str)
def test_no_package_of_npm_asks_for_whatever_is_newest(lock):
    """`npm ci` refuses such a lock as soon as there is a newer release: `overrides` name the version."""
    project = json.loads((ROOT / lock).with_name("package.json").read_text())
    for name, package in json.loads((ROOT / lock).read_text())["packages"].items():
        newest = {each for each, asked in package.get("dependencies", {}).items() if asked == "latest"}
        assert newest <= project.get("overrides", {}).keys(), name


def test_pip_resolves_nothing_since_it_may_ask_for_a_newer_release_that_has_no_digest():
    lines = (ROOT / "tools" / "install").read_text().splitlines()
    (line,) = [line for line in lines if "--require-hashes" in line and "pip install" in line]
    assert "--no-deps" in line


def test_the_lists_are_complete():
    asked = [sys.executable, "-m", "pip", "check", "--disable-pip-version-check"]
    found = subprocess.run(asked, check=False, capture_output=True, text=True)
    assert found.returncode == 0, f"run tools/pin\n{found.stdout}{found.stderr}"
