# SPDX-License-Identifier: Apache-2.0
"""Refuse identifiers that use a private word where the field has a standard term.

    python tools/check_identifiers.py [FOLDER ...]

An identifier is a name that the code defines: of a module, a class, a function, a parameter, a
variable, an attribute or an option.  It is split into words at underscores and capital letters.
The exit code is 1 if any is refused.
"""

import ast
from collections.abc import Iterator
import itertools
from pathlib import Path
import re
import sys

STANDARD_TERMS = {
    "anybody": "any",
    "begun": "started, operation",
    "bereaved": "on_member_lost",
    "bury": "expire",
    "caretaker": "recovery, periodic task",
    "census": "row counts",
    "crew": "worker pool",
    "desk": "RPC server",
    "duties": "desired state",
    "duty": "desired state",
    "everybody": "all, fanout",
    "haste": "timeout",
    "heard": "received",
    "hub": "broadcaster",
    "leftover": "orphan",
    "leftovers": "orphans",
    "lifeline": "liveness lock",
    "lifelines": "liveness locks",
    "lingering": "idle timeout",
    "nap": "poll interval",
    "nudge": "request reconcile, notify",
    "nudging": "notify",
    "patience": "timeout",
    "room": "free capacity, concurrency limit, layer",
    "rooms": "layers",
    "seal": "encrypt",
    "sealed": "encrypted",
    "seer": "visibility",
    "somebody": "other",
    "tell": "record, notify, describe",
    "tells": "records, notifies, describes",
    "told": "recorded, notified, doc",
    "twin": "duplicate request",
    "twins": "duplicate requests",
    "undertaker": "member reaper",
    "unplaced": "orphan",
    "unseal": "decrypt",
    "unsealed": "decrypted",
    "upkeep": "heartbeat, background task",
    "whatever": "any",
    "whoever": "caller, owner",
    "wish": "request, query",
    "wishes": "requests, queries",
}
"""Words that no identifier contains, and what to say instead.

Words with a standard use are not in it, such as reap (of processes), guest (of QEMU), nobody (the
user) and age.
"""

PLAIN_NAMES = {
    "at": "the name of the time or place",
    "each": "the name of the item",
    "had": "a noun",
    "here": "a noun",
    "look": "a verb: reconcile, check, read",
    "mine": "own, expected",
    "of": "a verb: get, find, create",
    "the": "params",
    "there": "a noun",
    "way": "method, connector type",
    "ways": "methods, connector types",
}
"""Words that are no identifier by themselves; constants may be called so: HERE."""

FILE_METHODS = frozenset({"tell"})
"""Methods of file objects, which keep their names."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_OPTION = re.compile(r"[A-Za-z]*Opt")


def defined_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each identifier that a module defines."""
    excused = _file_methods(tree)
    for node in itertools.filterfalse(excused.__contains__, ast.walk(tree)):
        line = getattr(node, "lineno", 1)
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield line, node.name
            case ast.arg():
                yield line, node.arg
            case ast.Name(id=name, ctx=ast.Store()):
                yield line, name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield line, name
            case ast.Call(func=ast.Attribute(attr=kind), args=[ast.Constant(value=str(name)), *_]):
                if _OPTION.fullmatch(kind):
                    yield line, name


def _file_methods(tree: ast.AST) -> set[ast.stmt]:
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {
        child
        for node in classes
        for child in node.body
        if isinstance(child, ast.FunctionDef) and child.name in FILE_METHODS
    }


def find_refused(name: str) -> Iterator[tuple[str, str]]:
    """Yield the refused words of an identifier, and what to say instead of each."""
    if not name.isupper() and (advice := PLAIN_NAMES.get(name.strip("_").lower())):
        yield name, advice
    for word in _WORD.findall(name):
        if advice := STANDARD_TERMS.get(word.lower()):
            yield word, advice


def main(folders: list[str]) -> int:
    """Print the refused identifiers of all Python files in the folders; return the exit code."""
    refused = 0
    for path in sorted(path for folder in folders for path in Path(folder).rglob("*.py")):
        names = [(1, path.stem), *defined_names(ast.parse(path.read_bytes(), str(path)))]
        for line, name in names:
            for word, advice in find_refused(name):
                refused += 1
                print(f"{path}:{line}: {name}: say {advice} instead of {word}")
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["attachd", "benchmarks", "tools"]))
