"""A revision of a repository, from a real git server over https: the right files, and nothing executed on the way."""

from __future__ import annotations

import os
import re

import pytest

from agents.runner.cache.git_checkout import check, checkout
from agents.runner.preparations.long_programs import Unprepared
from agents.runner.runs import orders
from tests.unit.agents.runner.git_server import PASSWORD, GitServer, git


@pytest.fixture(scope="module")
def repositories(tmp_path_factory):
    """`train.git` with two commits on main and a tag; each hook and submodule in it would leave a trace."""
    place = tmp_path_factory.mktemp("git")
    work = place / "work"
    work.mkdir()
    git("init", "--quiet", directory=work)
    (work / "train.py").write_text("print('first')\n")
    (work / "sub").mkdir()
    (work / "sub" / "run.sh").write_text("echo run\n")
    (work / "sub" / "run.sh").chmod(0o755)
    (work / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    (work / "weights.bin").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    git("add", "-A", directory=work)
    git("commit", "--quiet", "-m", "first", directory=work)
    git("tag", "-a", "v1", "-m", "v1", directory=work)
    (work / ".gitmodules").write_text('[submodule "x"]\n\tpath = x\n\turl = ext::sh -c "touch /tmp/pwned"\n')
    (work / "train.py").write_text("print('second')\n")
    git("update-index", "--add", "--cacheinfo", "160000", "1" * 40, "x", directory=work)
    git("add", "-A", "--", ".gitmodules", "train.py", directory=work)
    git("commit", "--quiet", "-m", "second", directory=work)
    git("clone", "--quiet", "--bare", str(work), str(place / "train.git"), directory=place)
    commits = {name: git("rev-parse", f"{name}^{{commit}}", directory=work) for name in ("main", "v1")}
    return place, commits


@pytest.fixture(params=[""], ids=["open"])
def server(request, repositories, tmp_path, monkeypatch):
    place, commits = repositories
    server = GitServer(place, request.param)
    server.commits = commits
    monkeypatch.setenv("GIT_SSL_CAINFO", str(server.pem))
    monkeypatch.setenv("HOME", str(tmp_path))
    orders.login_env.cache_clear()
    yield server
    server.close()
    orders.login_env.cache_clear()


@pytest.fixture
def get(server, tmp_path):
    """get(revision, credential) → the commit; the files are in get.into, git's words in get.output."""

    def get(revision, credential="", url=None):
        get.into = tmp_path / f"into-{len(os.listdir(tmp_path))}"
        get.into.mkdir()
        source = {"url": url or f"{server.url}/train.git", "revision": revision}
        return checkout(source, credential, str(get.into), str(get.output), lambda *report: None)

    get.output = tmp_path / "output"
    return get


protected = pytest.mark.parametrize("server", [PASSWORD], ids=["protected"], indirect=True)


@pytest.mark.parametrize(("revision", "commit"), [("main", "main"), ("v1", "v1"), ("HEAD", "main")])
def test_a_branch_a_tag_and_the_head_are_found(get, server, revision, commit):
    assert get(revision) == server.commits[commit]
    word = "second" if commit == "main" else "first"
    assert (get.into / "train.py").read_text() == f"print('{word}')\n"
    assert os.access(get.into / "sub" / "run.sh", os.X_OK)


@pytest.mark.parametrize("length", [40, 9])
def test_a_commit_whole_or_short_is_found(get, server, length):
    """A server that gives out no single commits is asked for all branches."""
    assert get(server.commits["v1"][:length]) == server.commits["v1"]
    assert (get.into / "train.py").read_text() == "print('first')\n"


def test_nothing_of_the_repository_is_executed(get, tmp_path):
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "reference-transaction", "post-merge"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/executed\n")
        (hooks / name).chmod(0o755)
    (tmp_path / ".gitconfig").write_text(
        f"[core]\n\thooksPath = {hooks}\n[init]\n\ttemplateDir = {tmp_path}\n[submodule]\n\trecurse = true\n"
        '[protocol "ext"]\n\tallow = always\n[protocol "file"]\n\tallow = always\n'
    )
    get("main")
    assert not (tmp_path / "executed").exists() and not os.path.exists("/tmp/pwned")
    assert list((get.into / "x").iterdir()) == [], "the submodule is an empty directory"
    assert "oid sha256" in (get.into / "weights.bin").read_text(), "a pointer, not fetched from anywhere"
    assert not list((get.into / ".git").rglob("hooks/*"))


@protected
@pytest.mark.parametrize("credential", [f"ada:{PASSWORD}", PASSWORD], ids=["user", "token"])
def test_a_credential_opens_the_server_and_stays_nowhere(get, server, credential, tmp_path):
    assert get("main", credential) == server.commits["main"]
    user = "ada" if ":" in credential else "oauth2"
    assert f"{user}:{PASSWORD}" in server.asked
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes(), path
    assert server.url.encode() not in (get.into / ".git" / "config").read_bytes()


@protected
@pytest.mark.parametrize("credential", ["", "ada:wrong"])
def test_without_the_right_credential_git_asks_nobody_and_says_why(get, credential):
    with pytest.raises(Unprepared, match=r"cannot fetch|Authentication failed") as refused:
        get("main", credential)
    words = str(refused.value)
    assert refused.value.whose == "user"
    assert ("uthentication failed" if credential else "could not read Username") in words
    assert "wrong" not in str(refused.value)


@pytest.mark.parametrize("url", ["https://127.0.0.1:1/x.git", "ssh://nobody@127.0.0.1:1/x.git"])
def test_a_server_that_is_not_there_is_told_in_gits_words(get, url):
    with pytest.raises(Unprepared, match=r"(?i)connect|refused"):
        get("main", url=url)


def test_a_revision_that_is_not_there_is_named(get, server):
    with pytest.raises(Unprepared, match="no revision nothing-of-that-name"):
        get("nothing-of-that-name")
    with pytest.raises(Unprepared, match="not found|no revision|cannot fetch"):
        get("main", url=f"{server.url}/missing.git")


def test_a_certificate_that_nobody_trusts_is_refused(get, monkeypatch):
    monkeypatch.delenv("GIT_SSL_CAINFO")
    orders.login_env.cache_clear()
    with pytest.raises(Unprepared, match="certificate"):
        get("main")


BAD_URLS = [
    "ext::sh -c touch% /tmp/pwned", "file:///etc", "/etc", "../x", "http://host/x", "git://host/x", "-oProxyCommand=x",
    "ssh://-oProxyCommand=touch/x", "ssh://a@-oProxyCommand=x/y", "-x@host:y", "a@-oX:y", "a@host:-x", "a@host::x",
    "https://user:password@host/x", "https://user@host/x", "https://host", "https:///x", "https://host/a b",
    "https://host/a\nb", "https://host/a\0b", "https://-host/x", "ssh://host:22x/y", "fd::3", "", None, 7,
    "https://host\\@evil/x", "testgit::https://host/x", "https::https://host/x",
]  # fmt: skip


@pytest.mark.parametrize("url", BAD_URLS)
def test_other_addresses_than_https_and_ssh_are_refused(url):
    with pytest.raises(Unprepared, match="https://host/path"):
        check(url, "main")


@pytest.mark.parametrize(
    "url",
    ["https://host/x", "https://git.example.com:8443/a/b.git", "ssh://git@host:2222/a.git", "ssh://host/~/a",
     "git@github.com:lab/train.git", "git@host:~ada/x", "ssh://git@[2001:db8::1]/a"],
)  # fmt: skip
def test_addresses_that_people_use_are_taken(url):
    check(url, "v1.0")


@pytest.mark.parametrize(
    "revision", ["--upload-pack=x", "-x", "a..b", "HEAD@{1}", "a b", "a^{/x}", "a~1", ":x", "", None]
)
def test_a_revision_is_no_option_and_no_expression(revision):
    with pytest.raises(Unprepared, match="a commit, a branch or a tag"):
        check("https://host/x", revision)


def test_git_is_run_with_these_protocols_only(get, server, tmp_path):
    """Even where the login's own configuration sends an address elsewhere."""
    (tmp_path / ".gitconfig").write_text(f'[url "file://{tmp_path}/"]\n\tinsteadOf = https://\n')
    with pytest.raises(Unprepared, match=re.compile("transport 'file' not allowed")):
        get("main")
