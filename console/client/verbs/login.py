"""`login`, `logout` and `whoami`."""

from __future__ import annotations

import argparse
import getpass
import os
import platform
import sys
import time
import webbrowser
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from .. import configuration, credentials
from ..configuration import Console
from ..connection import Connection, Target
from ..errors import NOT_UNDERSTOOD, REFUSED, ClientError, Offline, Refusal
from ..progress import Waiting
from ..session import Session
from ..tables import painted, print_json, print_pairs
from ..text import harmless
from ..times import local

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
# A person needs minutes to log in; each question after the first waits at least so long.
EVERY_S = 2.0


def login_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("address", nargs="?", default="", help="such as https://trainyard.example.org")
    parser.add_argument("--name", default="", help="how you call this console (default: its host)")
    parser.add_argument("--token", action="store_true", help="read a token from stdin, and open no browser")
    parser.add_argument("--no-browser", action="store_true", help="only print the address of the page")


def login(session: Session) -> int:
    args = session.args
    kept = configuration.load()
    console = _console(args, kept)
    parts = urlsplit(console.url)
    if parts.scheme == "http" and parts.hostname not in LOCAL:
        print("trainyard: without https, others on the network can read the token.", file=sys.stderr)
    connection = Connection(Target(console.url, "", console.ca_file), says=False)
    token = _typed_token() if args.token else _by_page(connection, args.no_browser)
    account = Connection(Target(console.url, token, console.ca_file)).get("/api/v1/account")
    console.project = args.project or account["token"].get("project", "") or console.project
    credentials.keep(console, token)
    kept.consoles[console.name] = console
    kept.current = console.name
    configuration.save(kept)
    where = "the keyring" if console.keyring else str(configuration.directory() / credentials.FILE)
    print(f"Logged in to {console.name} as {harmless(account['user'])}. The token is in {where}.")
    until, scope = local(account["token"].get("expireTime")), account["token"].get("scope", "")
    print(f"It is good until {until}, with the scope “{scope}”.")
    return 0


def _console(args: argparse.Namespace, kept: configuration.Configuration) -> Console:
    """The console to log in to: a new one, or one that was kept."""
    named = args.address or args.console or ""
    if not named or named in kept.consoles:
        console = kept.chosen(named)
        console.name = console.name or args.name or urlsplit(console.url).netloc
    else:
        url = configuration.address(named)
        known = next(
            (one for one in kept.consoles.values() if one.url == url and args.name in ("", one.name)), None
        )
        console = known or Console(url, args.name or urlsplit(url).netloc)
    other = kept.consoles.get(console.name)
    if other is not None and other.url != console.url:
        raise ClientError(
            f"{console.name} is the name of {other.url}.", "Choose another one: --name NAME", NOT_UNDERSTOOD
        )
    if args.ca_file:
        console.ca_file = os.path.abspath(args.ca_file)
    return console


def _typed_token() -> str:
    """A token from the person or a script, never from the arguments: everybody on the machine can read these."""
    given = getpass.getpass("Token: ") if sys.stdin.isatty() else sys.stdin.readline()
    token = given.strip()
    if not token or not token.isascii() or any(letter.isspace() for letter in token):
        raise ClientError(
            "That is no token.", "Make one on the page of your account: API tokens.", NOT_UNDERSTOOD
        )
    return token


def _by_page(connection: Connection, no_browser: bool) -> str:
    """Log in on a page: a code is shown here and there, and the person confirms it there."""
    try:
        begun = connection.post("/api/v1/deviceLogins", {"client": _client_name()})
    except Refusal as problem:
        if problem.status in (404, 501):
            raise ClientError(
                "This console is older than the client, and has no such login.",
                "Make a token on the page of your account, then: trainyard login --token ADDRESS",
            ) from None
        raise
    page = connection.target.url + str(begun["page"])
    print(f"Your code: {painted(str(begun['userCode']), 'bold')}")
    opened = False
    if not no_browser:
        opened = _browse(page)
    print(
        f"{'A page opens. If it does not, open' if opened else 'Open this page, and confirm the code there'}: {page}"
    )
    sys.stdout.flush()
    with Waiting("Waiting until you confirm the code"):
        return _when_confirmed(connection, begun)


def _client_name() -> str:
    """How the page names this machine, so that a person sees which login is asked for."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"
    return f"{user} on {platform.node() or 'a machine'}"[:100]


def _browse(page: str) -> bool:
    """Only where there is a screen: a text browser would take the terminal."""
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return False
    try:
        return webbrowser.open(page)
    except webbrowser.Error:
        return False


def _when_confirmed(connection: Connection, begun: Mapping[str, Any]) -> str:
    until = time.monotonic() + float(begun["expiresIn"])
    while time.monotonic() < until:
        time.sleep(max(float(begun.get("interval", EVERY_S)), 0.2))
        try:
            answer = connection.post("/api/v1/deviceLogins:token", {"deviceCode": begun["deviceCode"]})
        except Offline:
            continue
        if answer.get("token"):
            return str(answer["token"])
        if answer.get("state") == "DENIED":
            raise ClientError("The login was refused on the page.", "", REFUSED)
    raise ClientError("The code was not confirmed in time.", "Run the login again.", REFUSED)


def logout_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default="", help="the console; without one, the current one")


def logout(session: Session) -> int:
    args = session.args
    kept = configuration.load()
    console = kept.chosen(args.name or args.console or "")
    session._console = console
    try:
        session.api.request("DELETE", "/api/v1/account/token")
    except ClientError as problem:
        print(f"trainyard: the token could not be revoked: {problem.message}", file=sys.stderr)
    credentials.forget(console)
    kept.consoles.pop(console.name, None)
    if kept.current == console.name:
        kept.current = next(iter(kept.consoles), "")
    configuration.save(kept)
    print(f"Logged out of {console.name or console.url}.")
    if kept.current:
        print(f"The current console is {kept.current} now.")
    return 0


def whoami_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs")


def whoami(session: Session) -> int:
    account = session.api.get("/api/v1/account")
    if session.args.json:
        print_json({"console": session.console.url, **account})
        return 0
    token = account["token"]
    print_pairs(
        [
            ("person", account["user"] + (" (admin)" if account.get("admin") else "")),
            ("console", session.console.url),
            ("name", session.console.name),
            ("version", account.get("version", "")),
            ("project", session.chosen_project),
            ("projects", ", ".join(f"{row['name']} ({row['role']})" for row in account["projects"])),
            ("scope", token.get("scope", "")),
            ("token ends", local(token.get("expireTime"))),
        ]
    )
    return 0


ARGUMENTS: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {
    "login": login_arguments,
    "logout": logout_arguments,
    "whoami": whoami_arguments,
}
