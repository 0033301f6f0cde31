# SPDX-License-Identifier: Apache-2.0
"""Finds mistakes in policy files, where oslo.policy would deny or ignore; read by policy.py.

A file is broken if it cannot be read, is no YAML, is no table of rules, or has a rule that asks
for something that there is not: no kind of check, no such rule, or in the end itself.
"""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
import re
from typing import Any

from oslo_config import cfg
from oslo_policy import _checks as oslo_checks  # pinned by tests/unit/api/test_policy_files.py
from oslo_policy import policy as oslo_policy

from attachd import exception

State = tuple[tuple[str, ...], ...]
Checks = dict[str, Any]
"""What oslo.policy makes of rules, by their names."""

_NEVER = re.compile(r"(?<![^\s(])!(?![^\s)])")


def find(conf: cfg.ConfigOpts) -> list[Path]:
    """Return the files that hold in this order: the policy file, those of the policy folders.

    :raises ConfigurationError: a folder cannot be read
    """
    main = conf.find_file(conf.oslo_policy.policy_file)
    found = [] if main is None else [Path(main)]
    for name in conf.oslo_policy.policy_dirs:
        folder = conf.find_file(name)
        if folder is not None:
            found += _in_folder(Path(folder))
    return found


def _in_folder(folder: Path) -> list[Path]:
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise _broken(folder, f"it cannot be read: {error.strerror}") from error
    return [each for each in inside if not each.name.startswith(".") and not each.is_dir()]


def state(conf: cfg.ConfigOpts) -> State:
    """Return what is different after any of the files has changed, come or gone."""
    try:
        return tuple(_state(path) for path in find(conf))
    except exception.ConfigurationError as error:
        return ((str(error),),)


def _state(path: Path) -> tuple[str, ...]:
    try:
        found = path.stat()
    except OSError as error:
        return str(path), str(error)
    return str(path), str(found.st_mtime_ns), str(found.st_size), str(found.st_ino)


def check(
    files: Sequence[Path],
    defaults: Sequence[oslo_policy.RuleDefault],
    credentials: Collection[str],
) -> list[str]:
    """Let files pass that have no mistake.

    :param defaults: the rules that there are
    :param credentials: what is known of callers, which a check may ask for
    :returns: the names of those rules in the files that nothing asks for
    :raises ConfigurationError: naming the file, the rule and the mistake
    """
    known: Checks = {each.name: each.check for each in defaults}
    checks = dict(known)
    places: dict[str, Path] = {}
    for path in files:
        for name, text in _read(path).items():
            checks[name] = _parse(path, name, text, credentials)
            places[name] = path
    for name, path in places.items():
        _check_references(path, name, checks)
    asked = known.keys() | {match for each in checks.values() for match in _references(each)}
    return [name for name in places if name not in asked]


def _broken(path: object, reason: str) -> exception.ConfigurationError:
    return exception.ConfigurationError(reason=f"The policy file {path} is broken: {reason}.")


def _read(path: Path) -> Mapping[str, Any]:
    try:
        rules = oslo_policy.parse_file_contents(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _broken(path, f"it cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _broken(path, "it is not UTF-8") from error
    except ValueError as error:
        raise _broken(path, f"it is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(rules, dict) or not all(isinstance(name, str) for name in rules):
        raise _broken(path, "it is no table of rules by their names")
    return rules


def _parse(path: Path, name: str, text: Any, credentials: Collection[str]) -> Any:
    """Return what oslo.policy makes of a rule; what it does not understand it denies."""
    if not isinstance(text, str):
        raise _broken(path, f"the rule {name} is no text but {text!r}")
    parsed = oslo_policy.RuleDefault(name, text).check
    leaves = list(_leaves(parsed))
    denials = sum(isinstance(leaf, oslo_checks.FalseCheck) for leaf in leaves)
    if denials > len(_NEVER.findall(text)):
        raise _broken(path, f"the rule {name} cannot be understood: {text!r}")
    for leaf in leaves:
        if isinstance(leaf, oslo_checks.GenericCheck) and not _is_known(leaf.kind, credentials):
            raise _broken(path, f"the rule {name} has an unknown check: '{leaf}'")
    return parsed


def _leaves(parsed: Any) -> Iterator[Any]:
    """Return what a check is made of in the end."""
    parts = list(getattr(parsed, "rules", ()))
    if isinstance(parsed, oslo_checks.NotCheck):
        parts.append(parsed.rule)
    if not parts:
        yield parsed
    for each in parts:
        yield from _leaves(each)


def _is_known(kind: str, credentials: Collection[str]) -> bool:
    """Tell whether a check compares a constant, or something that is known of callers."""
    try:
        ast.literal_eval(kind)
    except (ValueError, SyntaxError):
        return kind.partition(".")[0] in credentials
    return True


def _references(parsed: Any) -> set[str]:
    return {leaf.match for leaf in _leaves(parsed) if isinstance(leaf, oslo_checks.RuleCheck)}


def _check_references(path: Path, name: str, checks: Checks) -> None:
    """Let a rule pass whose references all lead somewhere."""
    waiting, seen = [name], set[str]()
    while waiting:
        for match in _references(checks[waiting.pop()]):
            if match == name:
                raise _broken(path, f"the rule {name} refers to itself in the end")
            if match not in checks:
                raise _broken(path, f"the rule {name} refers to the rule {match}: there is none")
            if match not in seen:
                seen.add(match)
                waiting.append(match)
