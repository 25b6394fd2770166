"""`completion`: a script for a shell, with all verbs and their options as they are in this version."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Mapping

from .. import calls, main
from ..session import Session

HOW = {
    "bash": "source <(trainyard completion bash)  # in ~/.bashrc",
    "zsh": "source <(trainyard completion zsh)  # in ~/.zshrc, behind compinit",
    "fish": "trainyard completion fish | source  # in ~/.config/fish/config.fish",
}


def completion_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("for_shell", choices=tuple(HOW), metavar="SHELL", help="bash, zsh or fish")


def completion(session: Session) -> int:
    kind = session.args.for_shell
    print(f"# {HOW[kind]}")
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[kind](_options()), end="")
    return 0


def _options() -> dict[str, list[tuple[str, str]]]:
    """The options of each verb, each with what it does."""
    found = {}
    for verb, (module, _) in main.VERBS.items():
        arguments = importlib.import_module(f"..verbs.{module}", __package__).ARGUMENTS[verb]
        parser = calls.parser_of(verb, arguments)
        found[verb] = [
            (option, (action.help or "").replace("'", "").partition(";")[0])
            for action in parser._actions
            for option in action.option_strings
            if option.startswith("--")
        ]
    return found


def _bash(options: Mapping[str, list[tuple[str, str]]]) -> str:
    verbs = " ".join([*options, *sorted(main.SERVER_VERBS - options.keys())])
    cases = "\n".join(
        f"        {verb}) words='{' '.join(name for name, _ in found)}' ;;" for verb, found in options.items()
    )
    return f"""_trainyard() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} words=''
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
    [ "$COMP_CWORD" -gt 1 ] || words='{verbs}'
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _trainyard trainyard
"""


def _zsh(options: Mapping[str, list[tuple[str, str]]]) -> str:
    quoted = {verb: what.replace("'", "").replace(":", ",") for verb, (_, what) in main.VERBS.items()}
    verbs = "\n".join(f"        '{verb}:{what}'" for verb, what in quoted.items())
    cases = "\n".join(
        f"        {verb}) compadd -- {' '.join(name for name, _ in found)} ;;"
        for verb, found in options.items()
    )
    return f"""_trainyard() {{
    local -a verbs
    verbs=(
{verbs}
    )
    if (( CURRENT == 2 )); then
        _describe 'verb' verbs
        return
    fi
    [[ $PREFIX == -* ]] || {{ _files; return }}
    case $words[2] in
{cases}
    esac
}}
compdef _trainyard trainyard
"""


def _fish(options: Mapping[str, list[tuple[str, str]]]) -> str:
    lines = [
        f"complete -c trainyard -f -n __fish_use_subcommand -a {verb} -d '{what.replace(chr(39), '')}'"
        for verb, (_, what) in main.VERBS.items()
    ]
    for verb, found in options.items():
        for name, what in found:
            lines.append(
                f"complete -c trainyard -n '__fish_seen_subcommand_from {verb}' -l {name[2:]} -d '{what}'"
            )
    return "\n".join(lines) + "\n"


ARGUMENTS: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {"completion": completion_arguments}
