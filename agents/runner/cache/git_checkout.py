"""A revision of a git repository, checked out on this host as the job's user.

Only https and ssh are spoken. Nothing that the repository or its server says is executed: no hooks, no submodules, no
other transport. A credential reaches git by its own ways: through the program that it asks for passwords, or as a key
file that exists as long as git runs.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from typing import Callable, Dict, List

from agents.runner.preparations.long_programs import LongProgram, Unprepared
from agents.runner.runs.orders import login_env

CLONE_S = 3600.0
PROTOCOLS = "https:ssh"
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])"
_USER = r"[A-Za-z0-9_](?:[A-Za-z0-9_.+-]*)"
_PATH = r"[^\s\x00-\x1f\x7f]+"
_HTTPS = re.compile(rf"https://{_HOST}(?::\d{{1,5}})?/{_PATH}\Z", re.ASCII)
_SSH = re.compile(rf"ssh://(?:{_USER}@)?{_HOST}(?::\d{{1,5}})?/{_PATH}\Z", re.ASCII)
_SHORT_SSH = re.compile(rf"{_USER}@{_HOST}:(?![-:]){_PATH}\Z", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+@-]{0,254}\Z", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_PROGRESS = re.compile(r"(?:Receiving|Resolving|Updating) [a-z]+: +\d+% \((\d+)/(\d+)\)")
# Settings of the login that still count: which authorities it trusts.
_KEPT = ("GIT_SSL_CAINFO", "GIT_SSL_CAPATH")
_OPTIONS = [
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "submodule.recurse=false"),
    *("-c", "fetch.recurseSubmodules=false", "-c", "advice.detachedHead=false", "-c", "gc.auto=0"),
    *("-c", "protocol.allow=never", "-c", "protocol.https.allow=always", "-c", "protocol.ssh.allow=always"),
]
# git asks for a user and a password by calling a program with the question.
_ASKPASS = """#!/bin/sh
case "$1" in
    Username*) printf '%s\\n' "$TRAINYARD_GIT_USER" ;;
    *) printf '%s\\n' "$TRAINYARD_GIT_PASSWORD" ;;
esac
"""


def checkout(
    source: Dict[str, str], credential: str, into: str, output: str, report: Callable[[int, int, str], None]
) -> str:
    """Check out `revision` of `url` into the empty directory `into`; returns the commit. Raises Unprepared.

    `credential`: a private key, `user:password`, a token, or nothing.
    """
    url, revision = source.get("url"), source.get("revision")
    check(url, revision)
    secrets = into + ".secrets"
    shutil.rmtree(secrets, ignore_errors=True)
    os.mkdir(secrets, 0o700)
    try:
        env = environment(secrets, credential)
        return _Checkout(LongProgram(output, env, CLONE_S), str(url), str(revision), into, report).run()
    finally:
        shutil.rmtree(secrets, ignore_errors=True)


def check(url: object, revision: object) -> None:
    """Refuse every address but those of https and ssh, and every revision that git could take for something else."""
    if not isinstance(url, str) or not any(form.match(url) for form in (_HTTPS, _SSH, _SHORT_SSH)):
        text = "the repository must be at https://host/path or ssh://user@host/path, without a password in it"
        raise Unprepared("user", "bad_url", text)
    if not isinstance(revision, str) or not _REVISION.match(revision) or ".." in revision or "@{" in revision:
        raise Unprepared("user", "bad_revision", "the revision must be a commit, a branch or a tag")


def environment(secrets: str, credential: str) -> Dict[str, str]:
    """The environment of git. `secrets` is a directory for as long as git runs."""
    env = {
        name: value
        for name, value in login_env().items()
        if name in _KEPT or not name.startswith(("GIT_", "SSH_ASKPASS"))
    }
    ssh = ["ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ForwardAgent=no"]
    askpass = "/bin/false"
    # Not the whole line: whoever looks for keys on hosts must not find one in the runner's own file.
    if " PRIVATE KEY--" in credential:
        path = os.path.join(secrets, "key")
        _write(path, credential.replace("\r\n", "\n").rstrip("\n") + "\n", 0o600)
        ssh += ["-o", "IdentitiesOnly=yes", "-i", path]
    elif credential:
        user, colon, password = credential.strip().partition(":")
        # A token alone is the password, with any name: that is how GitHub, GitLab and Gitea take it.
        env["TRAINYARD_GIT_USER"] = user if colon else "oauth2"
        env["TRAINYARD_GIT_PASSWORD"] = password if colon else user
        askpass = os.path.join(secrets, "askpass")
        _write(askpass, _ASKPASS, 0o700)
    env.update(
        GIT_ASKPASS=askpass,
        SSH_ASKPASS="/bin/false",
        SSH_ASKPASS_REQUIRE="never",
        GIT_TERMINAL_PROMPT="0",
        GIT_ALLOW_PROTOCOL=PROTOCOLS,
        GIT_PROTOCOL_FROM_USER="0",
        GIT_LFS_SKIP_SMUDGE="1",
        GIT_SSH_COMMAND=" ".join(map(shlex.quote, ssh)),
        GIT_SSH_VARIANT="ssh",
        LC_ALL="C",
    )
    return env


def _write(path: str, text: str, mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(fd, "w") as file:
        file.write(text)


class _Checkout:
    def __init__(
        self,
        program: LongProgram,
        url: str,
        revision: str,
        into: str,
        report: Callable[[int, int, str], None],
    ) -> None:
        self.program, self.url, self.revision, self.into, self.report = program, url, revision, into, report

    def run(self) -> str:
        self.must("init", "--quiet", "--template=", ".")
        commit = self.commit("FETCH_HEAD") if self.fetch("--depth=1", self.revision) else self.fetch_all()
        self.must("checkout", "--quiet", "--force", "--detach", commit)
        # It names the address; what remains says nothing of where it came from.
        os.unlink(os.path.join(self.into, ".git", "FETCH_HEAD"))
        return commit

    def fetch_all(self) -> str:
        """Fetch all branches and tags: for a short commit, and for servers that give out no single commits."""
        if not self.fetch("", "+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"):
            raise self.failed("git cannot fetch from %s" % self.url)
        for name in (self.revision, "refs/remotes/origin/" + self.revision, "refs/tags/" + self.revision):
            commit = self.commit(name)
            if commit:
                return commit
        raise Unprepared("user", "bad_revision", "%s has no revision %s" % (self.url, self.revision))

    def fetch(self, depth: str, *what: str) -> bool:
        options = [
            option for option in ("--progress", "--no-tags", "--no-recurse-submodules", depth) if option
        ]
        return self.git("fetch", *options, "--", self.url, *what) == 0

    def commit(self, name: str) -> str:
        """The commit of a name, or "". git writes it into the output, which is its last line then."""
        if self.git("rev-parse", "--verify", "--quiet", "--end-of-options", name + "^{commit}"):
            return ""
        found = self.program.tail(200).rpartition("\n")[2].strip()
        return found if COMMIT.match(found) else ""

    def must(self, *arguments: str) -> None:
        if self.git(*arguments):
            raise self.failed("git %s failed" % arguments[0])

    def git(self, *arguments: str) -> int:
        command: List[str] = ["git", *_OPTIONS, *arguments]
        return self.program.run(command, self.into, self.look)

    def look(self, tail: str) -> None:
        found = _PROGRESS.findall(tail)
        if found:
            self.report(int(found[-1][0]), int(found[-1][1]), "objects")

    def failed(self, text: str) -> Unprepared:
        return Unprepared("user", "git", "%s: %s" % (text, self.program.tail(600)))
