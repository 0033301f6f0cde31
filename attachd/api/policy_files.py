# SPDX-License-Identifier: Apache-2.0
"""Validation of policy files, where oslo.policy would deny or ignore mistakes; used by policy.py.

A file is invalid if it cannot be read, is not YAML, is not a mapping of rules, or has a rule that
refers to an unknown kind of check, to an unknown rule, or to itself.
"""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
import re
from typing import Any

from oslo_config import cfg
from oslo_policy import policy as oslo_policy

from attachd import exception

State = tuple[tuple[str, ...], ...]
Checks = dict[str, Any]
"""Parsed rules by name."""

_NEVER = re.compile(r"(?<![^\s(])!(?![^\s)])")
_AttributeCheck: type[Any] = type(oslo_policy.RuleDefault("any", "attribute:value").check)
"""What oslo.policy makes of a kind that no check is registered for."""


def find(conf: cfg.ConfigOpts) -> list[Path]:
    """Return the policy files in their order: the policy file, then those of policy_dirs.

    :raises ConfigurationError: a directory cannot be read
    """
    main = conf.find_file(conf.oslo_policy.policy_file)
    files = [] if main is None else [Path(main)]
    for name in conf.oslo_policy.policy_dirs:
        folder = conf.find_file(name)
        if folder is not None:
            files += _list_folder(Path(folder))
    return files


def _list_folder(folder: Path) -> list[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise _invalid(folder, f"it cannot be read: {error.strerror}") from error
    return [entry for entry in entries if not entry.name.startswith(".") and not entry.is_dir()]


def state(conf: cfg.ConfigOpts) -> State:
    """Return a value that differs after any of the files was changed, added or removed."""
    try:
        return tuple(_state(path) for path in find(conf))
    except exception.ConfigurationError as error:
        return ((str(error),),)


def _state(path: Path) -> tuple[str, ...]:
    try:
        status = path.stat()
    except OSError as error:
        return str(path), str(error)
    return str(path), str(status.st_mtime_ns), str(status.st_size), str(status.st_ino)


def check(
    files: Sequence[Path],
    defaults: Sequence[oslo_policy.RuleDefault],
    credentials: Collection[str],
) -> list[str]:
    """Check that files have no mistake.

    :param defaults: all rules of the service
    :param credentials: the attributes of callers that a check may use
    :returns: the names of rules in the files that no check uses
    :raises ConfigurationError: naming the file, the rule and the mistake
    """
    known: Checks = {default.name: default.check for default in defaults}
    checks = dict(known)
    sources: dict[str, Path] = {}
    for path in files:
        for name, text in _read(path).items():
            checks[name] = _parse(path, name, text, credentials)
            sources[name] = path
    for name, path in sources.items():
        _check_references(path, name, checks)
    used = known.keys() | {match for parsed in checks.values() for match in _references(parsed)}
    return [name for name in sources if name not in used]


def _invalid(path: object, reason: str) -> exception.ConfigurationError:
    return exception.ConfigurationError(reason=f"The policy file {path} is invalid: {reason}.")


def _read(path: Path) -> Mapping[str, Any]:
    try:
        rules = oslo_policy.parse_file_contents(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _invalid(path, f"it cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _invalid(path, "it is not UTF-8") from error
    except ValueError as error:
        raise _invalid(path, f"it is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(rules, dict) or not all(isinstance(name, str) for name in rules):
        raise _invalid(path, "it is not a mapping of rule names to rules")
    return rules


def _parse(path: Path, name: str, text: Any, credentials: Collection[str]) -> Any:
    """Parse a rule; oslo.policy would turn a malformed one into a denial."""
    if not isinstance(text, str):
        raise _invalid(path, f"the rule {name} is not a string but {text!r}")
    parsed = oslo_policy.RuleDefault(name, text).check
    leaves = list(_leaves(parsed))
    denials = sum(str(leaf) == "!" for leaf in leaves)
    if denials > len(_NEVER.findall(text)):
        raise _invalid(path, f"the rule {name} cannot be parsed: {text!r}")
    for leaf in leaves:
        if isinstance(leaf, _AttributeCheck) and not _is_known(leaf.kind, credentials):
            raise _invalid(path, f"the rule {name} has an unknown check: '{leaf}'")
    return parsed


def _leaves(parsed: Any) -> Iterator[Any]:
    """Yield the leaves of a parsed rule."""
    parts = list(getattr(parsed, "rules", ()))
    if isinstance(parsed, oslo_policy.NotCheck):
        parts.append(parsed.rule)
    if not parts:
        yield parsed
    for part in parts:
        yield from _leaves(part)


def _is_known(kind: str, credentials: Collection[str]) -> bool:
    """Return whether a check compares a constant, or an attribute of callers."""
    try:
        ast.literal_eval(kind)
    except (ValueError, SyntaxError):
        return kind.partition(".")[0] in credentials
    return True


def _references(parsed: Any) -> set[str]:
    return {leaf.match for leaf in _leaves(parsed) if isinstance(leaf, oslo_policy.RuleCheck)}


def _check_references(path: Path, name: str, checks: Checks) -> None:
    """Check that the references of a rule are known, and not circular."""
    pending, seen = [name], set[str]()
    while pending:
        for match in _references(checks[pending.pop()]):
            if match == name:
                raise _invalid(path, f"the rule {name} refers to itself")
            if match not in checks:
                raise _invalid(path, f"the rule {name} refers to the unknown rule {match}")
            if match not in seen:
                seen.add(match)
                pending.append(match)
