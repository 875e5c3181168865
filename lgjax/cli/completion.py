"""`lgjax completion`: a script with which a shell completes commands, options, their choices and files.

The script holds the words themselves, so completing starts no Python.
"""

import argparse
from typing import Any

from lgjax.cli.commands import COMMANDS
from lgjax.cli.robots import METHODS
from lgjax.multibody import models

CHOICES = {"--method": METHODS}  # of options that take more than they list
SHELLS = ("bash", "zsh")
NO_FILES, NONE = ("cache", "completion"), ' files=""'  # commands that take no files, and what says so
SCRIPT = """_lgjax() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} last=${{COMP_WORDS[COMP_CWORD-1]}} known="" files=yes
    if [ "$COMP_CWORD" -eq 1 ]; then
        known="{commands} --help --version" files=""
    else
        case "${{COMP_WORDS[1]}}" in
{options}
        esac
        case "$last" in
{choices}
        esac
    fi
    COMPREPLY=($(compgen -W "$known" -- "$current"))
    if [ -n "$files" ]; then
        COMPREPLY+=($(compgen -f -- "$current"))
    fi
}}
complete -o filenames -F _lgjax lgjax
"""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "completion",
        description='Print a script for a shell. In ~/.bashrc: eval "$(lgjax completion bash)". In ~/.zshrc, after '
        'compinit: eval "$(lgjax completion zsh)".',
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from lgjax.cli import parser_of  # which imports this file

    of_zsh = "autoload -U +X bashcompinit && bashcompinit\n"
    print((of_zsh if args.shell == "zsh" else "") + script(parser_of), end="")
    return 0


def script(parser_of: Any) -> str:
    """The script; parser_of(command): the parser of a command."""
    options, choices = [], {name: " ".join(words) for name, words in CHOICES.items()}
    named = " ".join(name.partition(":")[0] for name in models.BUILT_IN)
    for command in COMMANDS:
        words, files = [], command not in NO_FILES
        for action in parser_of(command)._actions:
            words += action.option_strings
            words += [named] if action.dest == "model" else []
            if action.choices and action.option_strings:
                choices |= {option: " ".join(map(str, action.choices)) for option in action.option_strings}
            elif action.choices:
                words += map(str, action.choices)
        options.append(f'            {command}) known="{" ".join(words)}"{"" if files else NONE} ;;')
    listed = [f'            {option}) known="{words}"{NONE} ;;' for option, words in choices.items()]
    return SCRIPT.format(commands=" ".join(COMMANDS), options="\n".join(options), choices="\n".join(listed))
