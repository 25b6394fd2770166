"""The arguments of the verbs of `trainyard` that work on the data directory.

This module must be importable before Django is set up, because the arguments can change the environment from which
Django's settings are made.
"""

from __future__ import annotations

import argparse
from typing import TypeAlias

from jobs.rules.scheduling.order import PRIORITIES

PROCESSES = ("web", "worker", "dispatcher", "beat")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="trainyard",
        description="A managed training service on machines of your own. These verbs work on the data directory; "
        "trainyard --help lists those that work at any computer.",
    )
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--data", metavar="DIR", help="the data directory (TRAINYARD_DATA; default: var/)")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    add_up(commands, shared)
    add_people(commands, shared)
    add_tokens(commands, shared)
    add_projects(commands, shared)
    add_secrets(commands, shared)
    add_registries(commands, shared)
    add_hosts(commands, shared)
    add_locations(commands, shared)
    add_recovery(commands, shared)
    add_clock(commands, shared)
    add_notices(commands, shared)
    return top


CommandGroup: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_up(commands: CommandGroup, shared: argparse.ArgumentParser) -> None:
    up = commands.add_parser("up", parents=[shared], help="run Trainyard in the foreground")
    up.add_argument("--port", help="the port of the pages (TRAINYARD_PORT; default 8000; 0: any free port)")
    up.add_argument("--bind", help="the address to listen on (TRAINYARD_BIND; default 127.0.0.1)")
    up.add_argument(
        "--only",
        type=process_names,
        default=PROCESSES,
        metavar="NAME,...",
        help=f"some of {', '.join(PROCESSES)}",
    )
    up.set_defaults(command="run.start")
    migrate = commands.add_parser("migrate", parents=[shared], help="migrate the database to this version")
    migrate.set_defaults(command="run.migrate")


def add_people(commands: CommandGroup, shared: argparse.ArgumentParser) -> None:
    user = commands.add_parser("user", help="people").add_subparsers(required=True, metavar="VERB")
    add = user.add_parser("add", parents=[shared], help="add a person")
    add.add_argument("name")
    add.add_argument("--admin", action="store_true", help="may do everything")
    add.add_argument(
        "--no-project", action="store_true", help="do not make the person a member of the project default"
    )
    add.add_argument(
        "--password-stdin", action="store_true", help="read the password from the first line of stdin"
    )
    add.add_argument(
        "--invite", action="store_true", help="print a one-time link with which they set their password"
    )
    add.set_defaults(command="people.add_user")
    invite = user.add_parser("invite", parents=[shared], help="print a one-time link to set a password with")
    invite.add_argument("name")
    invite.set_defaults(command="people.invite_user")
    password = user.add_parser("password", parents=[shared], help="give a person a new password")
    password.add_argument("name")
    password.add_argument("--password-stdin", action="store_true")
    password.set_defaults(command="people.change_password")
    for verb, what in (
        ("disable", "disable a person and revoke their tokens"),
        ("enable", "enable a person again"),
        ("logout", "log a person out of all browsers, with the shells that these opened"),
        (
            "reset-second-factor",
            "take the second factor of a person away, who logs in with the password then",
        ),
        ("delete", "delete the account of a disabled person; jobs and histories keep the name"),
    ):
        access = user.add_parser(verb, parents=[shared], help=what)
        access.add_argument("name")
        access.set_defaults(command=f"people.{verb.replace('-', '_')}_user")
    listing = user.add_parser("list", parents=[shared], help="list all people")
    listing.set_defaults(command="people.list_users")

    member = commands.add_parser("member", help="roles in a project").add_subparsers(
        required=True, metavar="VERB"
    )
    place = member.add_parser("set", parents=[shared], help="give a person a role in a project")
    place.add_argument("name")
    place.add_argument("role", choices=("viewer", "submitter", "admin", "none"))
    place.add_argument("--project", default="default")
    place.set_defaults(command="people.set_member")


def add_tokens(commands: CommandGroup, shared: argparse.ArgumentParser) -> None:
    token = commands.add_parser("token", help="bearer tokens for scripts").add_subparsers(
        required=True, metavar="VERB"
    )
    create = token.add_parser("create", parents=[shared], help="print a new token of a person")
    create.add_argument("user")
    create.add_argument("--name", default="command line", help="what it is for")
    create.add_argument("--days", type=int, default=90, help="how long it is valid (90; at most 366)")
    create.add_argument(
        "--elevated",
        action="store_true",
        help="it may also make tokens, give admin rights and make login links",
    )
    create.add_argument(
        "--scope",
        choices=("read", "submit", "admin"),
        default="admin",
        help="what it may do of that what the person may: only read; also submit, cancel and delete jobs and open "
        "shells; everything (if nothing is said)",
    )
    create.add_argument("--project", default="", help="it is good for this project only")
    create.set_defaults(command="tokens.create")
    listing = token.add_parser("list", parents=[shared], help="the tokens, and when they end")
    listing.add_argument("user", nargs="?", default="")
    listing.set_defaults(command="tokens.show")
    revoke = token.add_parser("revoke", parents=[shared], help="revoke a token")
    revoke.add_argument("id", type=int)
    revoke.set_defaults(command="tokens.revoke")


def add_projects(commands: CommandGroup, shared: argparse.ArgumentParser) -> None:
    project = commands.add_parser("project", help="tenants").add_subparsers(required=True, metavar="VERB")
    add = project.add_parser("add", parents=[shared], help="add a project, with the quotas of new ones")
    add.add_argument("name")
    add.add_argument("--title", default="")
    add.set_defaults(command="projects.add_project")
    change = project.add_parser(
        "set", parents=[shared], help="rename, title or weigh a project, or cap its priority"
    )
    change.add_argument("name")
    change.add_argument("--rename", metavar="NAME")
    change.add_argument("--title")
    change.add_argument(
        "--weight", type=float, help="its share of the machines against other projects; 1 is usual"
    )
    change.add_argument(
        "--highest-priority", choices=tuple(PRIORITIES), help="the highest priority of its jobs"
    )
    change.set_defaults(command="projects.change_project")
    archive = project.add_parser("archive", parents=[shared], help="accept no new jobs in a project")
    archive.add_argument("name")
    archive.add_argument("--undo", action="store_true", help="accept jobs again")
    archive.set_defaults(command="projects.archive_project")
    listing = project.add_parser("list", parents=[shared], help="list all projects")
    listing.set_defaults(command="projects.list_projects")

    quota = commands.add_parser("quota", help="limits of projects").add_subparsers(
        required=True, metavar="VERB"
    )
    place = quota.add_parser("set", parents=[shared], help="set a limit; running jobs are not stopped")
    place.add_argument(
        "what",
        help="an accelerator type such as NVIDIA_L4, or running, queued, gpu-hours, log-gb, storage-gb",
    )
    place.add_argument("limit", help="a number, or none")
    place.set_defaults(command="projects.set_quota")
    limits = quota.add_parser("list", parents=[shared], help="the limits that are set")
    limits.set_defaults(command="projects.list_quotas")
    for each in (place, limits):
        each.add_argument("--project", default="default")
        each.add_argument(
            "--new-projects", action="store_true", help="the limits that new projects start with"
        )
        whose = each.add_mutually_exclusive_group()
        whose.add_argument(
            "--each-member", action="store_true", help="the limit of each member, not of all together"
        )
        whose.add_argument("--member", metavar="NAME", help="the limit of this member only")

    bucket = commands.add_parser("bucket", help="buckets of stored files").add_subparsers(
        required=True, metavar="VERB"
    )
    keep = bucket.add_parser("keep", parents=[shared], help="let a bucket delete old objects by itself")
    keep.add_argument("name")
    keep.add_argument("days", help="for how many days objects are kept, or none")
    keep.set_defaults(command="projects.keep_objects")

    report = commands.add_parser("usage", parents=[shared], help="the usage of a month, as CSV")
    report.add_argument("--month", metavar="YYYY-MM", help="default: the current month")
    report.add_argument("--project", help="only this project")
    report.set_defaults(command="projects.report_usage")


def add_secrets(commands: CommandGroup, shared: argparse.ArgumentParser) -> None:
    secret = commands.add_parser("secret", help="stored secrets that jobs refer to").add_subparsers(
        required=True, metavar="VERB"
    )
    place = secret.add_parser("set", parents=[shared], help="set a secret to what stdin has")
    place.add_argument("name")
    place.set_defaults(command="secrets.set_secret")
    listing = secret.add_parser("list", parents=[shared], help="the names, who set them, and when; no values")
    listing.set_defaults(command="secrets.list_secrets")
    remove = secret.add_parser("remove", parents=[shared], help="delete a secret; jobs keep what they got")
    remove.add_argument("name")
    remove.set_defaults(command="secrets.remove_secret")
    for each in (place, listing, remove):
        whose = each.add_mutually_exclusive_group()
        whose.add_argument("--project", default="default", help="a secret of this project (default)")
        whose.add_argument("--user", metavar="NAME", help="a secret of this person")
    rotate = secret.add_parser(
        "rotate", parents=[shared], help="encrypt everything with the first line of keys/field-key"
    )
    rotate.set_defaults(command="secrets.rotate")


def add_registries(commands: CommandGroup, shared: argparse.ArgumentParser) -> None:
    registry = commands.add_parser(
        "registry", help="the credentials with which hosts pull images"
    ).add_subparsers(required=True, metavar="VERB")
    place = registry.add_parser("set", parents=[shared], help="set a user, with the password that stdin has")
    place.add_argument("registry", help="as images name it: ghcr.io")
    place.add_argument("--user", required=True)
    place.set_defaults(command="registries.set_registry")
    listing = registry.add_parser("list", parents=[shared], help="the registries; no passwords")
    listing.set_defaults(command="registries.list_registries")
    remove = registry.add_parser("remove", parents=[shared], help="delete a credential")
    remove.add_argument("registry")
    remove.set_defaults(command="registries.remove_registry")
    for each in (place, listing, remove):
        whose = each.add_mutually_exclusive_group()
        whose.add_argument("--project", default="default", help="for the jobs of this project (default)")
        whose.add_argument("--location", metavar="NAME", help="for all jobs in this location")


def add_notices(commands: CommandGroup, shared: argparse.ArgumentParser) -> None:
    notice = commands.add_parser("notice", help="who is notified").add_subparsers(
        required=True, metavar="VERB"
    )
    listing = notice.add_parser(
        "list", parents=[shared], help="the addresses, and which are not confirmed yet"
    )
    listing.set_defaults(command="notifications.list_targets")
    vouch = notice.add_parser(
        "vouch", parents=[shared], help="confirm an e-mail address in place of its owner"
    )
    vouch.add_argument("id", type=int)
    vouch.set_defaults(command="notifications.vouch")


def add_locations(commands: CommandGroup, shared: argparse.ArgumentParser) -> None:
    location = commands.add_parser("location", help="groups of hosts").add_subparsers(
        required=True, metavar="VERB"
    )
    listing = location.add_parser("list", parents=[shared], help="the locations, and the projects they serve")
    listing.set_defaults(command="locations.list_locations")
    bind = location.add_parser(
        "bind", parents=[shared], help="let a location serve some projects and no others"
    )
    bind.add_argument("name")
    which = bind.add_mutually_exclusive_group(required=True)
    which.add_argument("--project", action="append", metavar="NAME", help="repeat it for several projects")
    which.add_argument("--all-projects", action="store_true", help="serve all projects again")
    bind.set_defaults(command="locations.bind_location")
    aliases = location.add_parser(
        "aliases", parents=[shared], help="the images that a location uses in place of those that jobs name"
    )
    aliases.add_argument("name")
    aliases.set_defaults(command="locations.list_aliases")
    alias = location.add_parser(
        "alias", parents=[shared], help="let a location use another image, or the host, for an image"
    )
    alias.add_argument("name")
    alias.add_argument("alias", help="an image without its tag, or a prefix with * at its end")
    alias.add_argument("image", help='the image that is used, or "host"')
    alias.set_defaults(command="locations.add_alias")
    unalias = location.add_parser("unalias", parents=[shared], help="take such an alias away")
    unalias.add_argument("name")
    unalias.add_argument("alias")
    unalias.set_defaults(command="locations.remove_alias")


def add_recovery(commands: CommandGroup, shared: argparse.ArgumentParser) -> None:
    verbs = commands.add_parser("recovery", help="after a backup was restored").add_subparsers(
        required=True, metavar="VERB"
    )
    show = verbs.add_parser("show", parents=[shared], help="differences between the hosts and the database")
    show.set_defaults(command="maintenance.show_recovery")
    begin = verbs.add_parser(
        "begin",
        parents=[shared],
        help="only observe from now on, when a backup was restored and no host can show it",
    )
    begin.add_argument("--why", required=True, help="the reason, shown to everybody")
    begin.set_defaults(command="maintenance.begin_recovery")
    confirm = verbs.add_parser("confirm", parents=[shared], help="end recovery mode, let jobs continue")
    confirm.add_argument("--stop", metavar="RUN", action="append", default=[], help="an unknown run to stop")
    confirm.add_argument("--stop-all", action="store_true", help="stop all unknown runs")
    confirm.set_defaults(command="maintenance.confirm_recovery")


def add_clock(commands: CommandGroup, shared: argparse.ArgumentParser) -> None:
    verbs = commands.add_parser("clock", help="Trainyard's time").add_subparsers(
        required=True, metavar="VERB"
    )
    show = verbs.add_parser("show", parents=[shared], help="what each clock shows, and which were set lately")
    show.set_defaults(command="clock.show")
    right = verbs.add_parser(
        "set-right",
        parents=[shared],
        help="set Trainyard's time to the database's clock at once; back only while nothing runs",
    )
    right.set_defaults(command="clock.set_right")


def add_hosts(commands: CommandGroup, shared: argparse.ArgumentParser) -> None:
    key = commands.add_parser(
        "key", parents=[shared], help="print the public key for authorized_keys on hosts"
    )
    key.set_defaults(command="hosts.key")
    host = commands.add_parser("host", help="machines").add_subparsers(required=True, metavar="VERB")
    add = host.add_parser("add", parents=[shared], help="add a machine, check it and print the checklist")
    add.add_argument("name")
    add.add_argument("address")
    add.add_argument("--user", required=True, help="the login on the host")
    add.add_argument("--port", dest="ssh_port", type=int, default=22)
    add.add_argument("--location", default="default")
    add.add_argument("--jump", default="", help="as ssh's ProxyJump: user@host:port,...")
    trust = add.add_mutually_exclusive_group(required=True)
    trust.add_argument(
        "--accept-key", metavar="SHA256:...", action="append", help="a host key fingerprint to trust"
    )
    trust.add_argument(
        "--accept-first-key", action="store_true", help="trust the key that the host shows now"
    )
    add.set_defaults(command="hosts.add")
    add_host_changes(host, shared)
    listing = host.add_parser("list", parents=[shared], help="the machines and their status")
    listing.set_defaults(command="hosts.list_hosts")
    cordon = host.add_parser(
        "cordon", parents=[shared], help="place nothing new on a host; what runs there continues"
    )
    cordon.add_argument("name")
    cordon.add_argument(
        "--message", default="", help="the reason, shown to people whose jobs wait for the host"
    )
    cordon.set_defaults(command="maintenance.cordon")
    drain = host.add_parser("drain", parents=[shared], help="move what runs on it to other hosts")
    drain.add_argument("name")
    drain.add_argument("--message", default="", help="the reason, shown to people whose jobs must leave")
    drain.add_argument("--deadline", default="", help="a time from now, such as 30m, 2h or 1d")
    drain.add_argument("--force", action="store_true", help="at the deadline, queue the remaining jobs again")
    drain.set_defaults(command="maintenance.drain")
    contain = host.add_parser("contain", parents=[shared], help="whether new runs get PID namespaces")
    contain.add_argument("name")
    contain.add_argument(
        "--pid-namespaces", choices=("on", "off"), required=True, help="one namespace for each new run"
    )
    contain.set_defaults(command="maintenance.contain")
    network = host.add_parser(
        "network", parents=[shared], help="the address at which replicas of other hosts reach its own"
    )
    network.add_argument("name")
    network.add_argument(
        "--data-address", required=True, metavar="ADDRESS", help="one of the host's addresses, or: found"
    )
    network.set_defaults(command="maintenance.network")
    logins = host.add_parser("logins", parents=[shared], help="a login of its own for each project on a host")
    logins.add_argument("name")
    which = logins.add_mutually_exclusive_group()
    which.add_argument("--template", help="the names of the logins, such as train-{project}")
    which.add_argument("--one", action="store_true", help="one login for all projects again")
    logins.set_defaults(command="maintenance.set_logins")
    add_host_losses(host, shared)


def add_host_changes(host: CommandGroup, shared: argparse.ArgumentParser) -> None:
    """The verbs of `trainyard host` about keys of many hosts, and about how a host is reached."""
    many = host.add_parser("accept-keys", parents=[shared], help="accept the keys that equal a list")
    many.add_argument("file", help="what ssh-keyscan or ssh-keygen -l prints; - for standard input")
    many.add_argument(
        "--changed", metavar="NAME", action="append", default=[], help="a host whose key has changed"
    )
    many.set_defaults(command="hosts.accept_many_keys")
    edit = host.add_parser("edit", parents=[shared], help="change how a host is reached, after a check")
    edit.add_argument("name")
    edit.add_argument("--address")
    edit.add_argument("--port", dest="ssh_port", type=int)
    edit.add_argument("--user", help="another login; nothing may run under the old one")
    edit.add_argument("--jump", help="as ssh's ProxyJump; an empty text for none")
    edit.add_argument("--location")
    edit.add_argument(
        "--accept-jump-key", metavar="SHA256:...", action="append", default=[], help="of a new jump host"
    )
    edit.set_defaults(command="hosts.edit")


def add_host_losses(host: CommandGroup, shared: argparse.ArgumentParser) -> None:
    """The verbs of `trainyard host` about hosts that are lost, runs that no job has, and opening a host again."""
    gone = host.add_parser(
        "declare-gone", parents=[shared], help="give up an unreachable host and what ran there"
    )
    add_login(gone)
    gone.add_argument("--confirm", default="", metavar="NAME", help="repeat the host's name, as you gave it")
    gone.set_defaults(command="maintenance.declare_gone")
    for verb, what in (("stop-run", "stop"), ("dismiss-run", "do not show any more")):
        act = host.add_parser(verb, parents=[shared], help=f"{what} a run on the host that belongs to no job")
        add_login(act)
        act.add_argument("run")
        act.set_defaults(command="maintenance.act_on_run", what=verb.partition("-")[0])
    uncordon = host.add_parser("uncordon", parents=[shared], help="open a host to jobs again")
    uncordon.add_argument("name")
    uncordon.set_defaults(command="maintenance.uncordon")


def add_login(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("name", help="a host, or one of its logins: gpu-1/train-vision")
    verb.add_argument("--project", default="", metavar="NAME", help="the login of this project on the host")


def process_names(value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(","))
    if not set(names) <= set(PROCESSES):
        raise argparse.ArgumentTypeError(f"give some of {', '.join(PROCESSES)}")
    return names
