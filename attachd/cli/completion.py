# SPDX-License-Identifier: Apache-2.0
"""The command complete: a function by which bash or zsh completes commands, options and values.

cliff's own needs the package bash-completion, and knows neither values nor zsh.
"""

import argparse
from collections.abc import Iterable, Iterator
import re
import shlex
from typing import Final

from cliff import command, complete

# bash expands the words of compgen -W, and would run $(COMMAND) in the name of a volume or a
# directory: -W is for constants only. zsh has no mapfile.
_HEAD: Final = """\
_attachd_names() {
  local name quoted
  while IFS= read -r name; do
    [[ -n $name ]] || continue
    case "$cur" in
      "~"*) printf -v quoted %q "${name#"~"}"; quoted="~$quoted";;
      *) printf -v quoted %q "$name";;
    esac
    if [[ $name == "$cur"* || $quoted == "$cur"* ]]; then COMPREPLY+=("$quoted"); fi
  done <<< "$1"
}
_attachd() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} word
  local command= values= listed=
  COMPREPLY=()
"""
_COMMAND: Final = """\
  for word in "${COMP_WORDS[@]:1:$((COMP_CWORD-1))}"; do
    case " $names " in *" $word "*) command=$word; break;; esac
  done
  case "$command $prev" in
"""
_OPTIONS: Final = """\
  esac
  case "$command $cur" in
"""
_TAIL: Final = """\
  esac
  COMPREPLY=( $(compgen -W "$values" -- "$cur") )
  _attachd_names "$listed"
}
complete -F _attachd attachd
"""
_ZSH: Final = "autoload -Uz bashcompinit && bashcompinit\n"

_DIRECTORIES: Final = '_attachd_names "$(compgen -d -- "$cur")"'
_BY_METAVAR: Final = {"True|False": "True False"}
_BY_ARGUMENT: Final = {
    "ATTACHMENT": "attachd attachment-list -f value -c ID",
    "HOST": "attachd agent-list -f value -c Host",
}
_LOCAL_VOLUMES: Final = "attachd local-list -f value -c Name"

_OPTION: Final = re.compile(r"--?[a-z][\w-]*(?: (?:\{[^}]*\}|[\w|]+))?")
"""An option in a line of usage, with its value."""


class Complete(command.Command):
    """Print a function that completes the command line of attachd.

    For bash: eval "$(attachd complete)". For zsh: eval "$(attachd complete --shell zsh)".
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the name of the shell."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--shell", choices=("bash", "zsh"), default="bash", help="default: bash"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print the function."""
        names = sorted(name for name, _entry in self.app.command_manager)
        of_cliff = complete.CompleteCommand(self.app, argparse.Namespace())
        actions = {name: of_cliff.get_actions([name]) for name in names}
        options = [line for name in names for line in _values(name, actions[name])]
        words = [
            line for name in names for line in _words(name, actions[name], self._arguments(name))
        ]
        commands = shlex.quote(" ".join(names))
        lines = (_HEAD, f"  local names={commands}\n", _COMMAND, *options, _OPTIONS)
        first = '    " "*) values=$names;;\n'
        text = "".join((*lines, first, *words, _TAIL))
        self.app.stdout.write((_ZSH if parsed_args.shell == "zsh" else "") + text)

    def _arguments(self, name: str) -> set[str]:
        """Return the arguments of a command that are no options, as in its line of usage."""
        factory, _name, _words = self.app.command_manager.find_command([name])
        usage = factory(self.app, None).get_parser(name).format_usage()
        return set(re.findall(r"\w+", _OPTION.sub("", " ".join(usage.split()))))


def _values(name: str, actions: Iterable[argparse.Action]) -> Iterator[str]:
    """Yield the cases of options that take one of several values."""
    for action in actions:
        values = " ".join(map(str, action.choices or ())) or _BY_METAVAR.get(f"{action.metavar}")
        if action.metavar == "DIR":
            completion = _DIRECTORIES
        elif values:
            completion = f'COMPREPLY=( $(compgen -W "{values}" -- "$cur") )'
        else:
            continue
        pattern = "|".join(f'"{name} {option}"' for option in action.option_strings)
        yield f"    {pattern}) {completion}; return;;\n"


def _words(name: str, actions: Iterable[argparse.Action], arguments: set[str]) -> Iterator[str]:
    """Yield the cases of words that are no value of an option."""
    options = " ".join(option for action in actions for option in action.option_strings)
    yield f'    "{name} -"*) values="{options}";;\n'
    found = [listed for argument, listed in _BY_ARGUMENT.items() if argument in arguments]
    if name == "local-detach":
        found.append(_LOCAL_VOLUMES)
    if found:
        yield f'    "{name} "*) listed=$({{ {"; ".join(found)}; }} 2>/dev/null);;\n'
