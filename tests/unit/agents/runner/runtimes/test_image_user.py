"""The user of an image gets the directories of its run, and nothing else."""

from __future__ import annotations

import os

import pytest

from agents.runner.runtimes.image_user import give

USER = (1234, 1235)


@pytest.fixture
def place(tmp_path):
    """A directory of a run, and a file of the host beside it."""
    assert os.getuid() == 0, "run this test as root, as tools/with-hosts does"
    (tmp_path / "outputs" / "models").mkdir(parents=True)
    (tmp_path / "outputs" / "models" / "shadow").write_text("the run's")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "shadow").write_text("the host's")
    (tmp_path / "outputs" / "link").symlink_to(tmp_path / "etc")
    return tmp_path


def owner(path):
    return os.stat(path, follow_symlinks=False).st_uid


def test_all_in_the_directories_is_given_and_nothing_behind_a_link(place):
    give(USER, [str(place / "outputs")])
    for path in ("outputs", "outputs/models", "outputs/models/shadow", "outputs/link"):
        assert owner(place / path) == USER[0], path
    assert owner(place / "etc") == owner(place / "etc" / "shadow") == 0
    os.chown(place / "outputs" / "models" / "shadow", 77, 77)
    give((4321, 4321), [str(place / "outputs")])
    assert owner(place / "outputs" / "models" / "shadow") == 77


def test_a_link_that_takes_the_place_of_a_directory_meanwhile_leads_nowhere(place, monkeypatch):
    """Replicas of a job share their output directories on a host, and one of them may run already."""
    directory, honest = place / "outputs" / "models", {name: getattr(os, name) for name in ("stat", "lstat")}

    def swapping(name):
        def look(path, **options):
            if str(path).endswith("shadow") and not directory.is_symlink():
                directory.rename(place / "outputs" / "moved")
                directory.symlink_to(place / "etc")
            return honest[name](path, **options)

        return look

    with monkeypatch.context() as patch:
        for name in honest:
            patch.setattr(os, name, swapping(name))
        give(USER, [str(place / "outputs")])
    assert directory.is_symlink()
    assert owner(place / "etc" / "shadow") == 0
