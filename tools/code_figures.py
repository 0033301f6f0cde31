#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print figures about the size and the structure of the code.

Without arguments it prints one figure a line, with ``--list NAME`` what one of them counts.  It
needs an environment with the tests' libraries.
"""

import argparse
import ast
from collections.abc import Callable, Iterator
import configparser
import functools
import importlib
import inspect
import io
import json
from pathlib import Path
import re
import subprocess
import sys
import textwrap
import tokenize
from types import ModuleType
from typing import NamedTuple

TOP = Path(__file__).resolve().parent.parent
PACKAGE = TOP / "attachd"
TESTS = PACKAGE / "tests"

SMALL_MODULE = 50
"""A module with fewer lines is small."""

PRONOUNS = re.compile(r"\b(?:who|what)ever\b|\b(?:no|some|any|every)body\b", re.IGNORECASE)
"""Words that hide the actor."""

DOCUMENTED = frozenset({"_asdict", "_exit", "_fields", "_mapping", "_replace", "_upgrade_checks"})
"""Names with an underscore that the documentation of Python, SQLAlchemy and oslo.upgradecheck
describes."""

ACCESSORS = frozenset({"getattr", "setattr", "hasattr", "delattr"})
"""Functions that take the name of an attribute as text."""

WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")

# Runs in an environment that has the tests' libraries; prints JSON.
_REQUEST = """
import json, sys, threading, unittest
from attachd.api import policy_rules
from attachd.tests.fixtures import db_rows, wsgi_api
case = unittest.TestCase()
# On a slow machine the request would be the one that looks for changes of the policy files.
policy_rules._CHECK_INTERVAL = 3600.0
api = wsgi_api.use(case)
volume = db_rows.add_volume()["id"]
connector = {"host": "node", "initiator": "iqn.2026-01.org.example:node", "ip": "127.0.0.1"}
entered, moves = set(), [0]
def trace(frame, event, _argument):
    if event != "call":
        return
    code, caller = frame.f_code, frame.f_back
    last = max(line for _start, _end, line in code.co_lines() if line)
    entered.add((code.co_filename, code.co_firstlineno, last, code.co_qualname))
    if caller is not None and "attachd/" in code.co_filename:
        moves[0] += caller.f_code.co_filename != code.co_filename
threading.setprofile(trace)
sys.setprofile(trace)
body = {"attachment": {"volume_uuid": volume, "connector": connector}}
answer = api.request("POST", "/attachments", body)
sys.setprofile(None)
threading.setprofile(None)
assert answer.status == 200, answer.raw
case.doCleanups()
print(json.dumps({"entered": sorted(entered), "moves": moves[0]}))
"""


def product_files() -> list[Path]:
    """Return the modules of attachd, without its tests."""
    return [path for path in sorted(PACKAGE.rglob("*.py")) if TESTS not in path.parents]


def line_count(path: Path) -> int:
    """Return the number of lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def small_modules() -> list[str]:
    """Return the modules with fewer than SMALL_MODULE lines, packages' own excepted."""
    modules = [path for path in product_files() if path.name != "__init__.py"]
    return [
        f"{path.relative_to(TOP)}: {line_count(path)}"
        for path in modules
        if line_count(path) < SMALL_MODULE
    ]


def layer_count() -> int:
    """Return the number of layers in the first contract of .importlinter."""
    parser = configparser.ConfigParser()
    parser.read(TOP / ".importlinter", encoding="utf-8")
    layers = next(parser[name]["layers"] for name in parser.sections() if "layers" in parser[name])
    return len(layers.strip().splitlines())


class EnteredFunction(NamedTuple):
    """A function of attachd that a request enters at run time."""

    path: Path
    first: int
    last: int
    name: str

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return self.last - self.first + 1


@functools.cache
def traced_request() -> tuple[list[EnteredFunction], int]:
    """Trace POST /attachments with a connector: the functions it enters, and moves between files.

    The API, the RPC transport and the manager run in one process, without a web server.  A move is
    a call of one of them from another file.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _REQUEST],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"The request could not be traced:\n{done.stderr}")
    traced = json.loads(done.stdout)
    functions = [
        EnteredFunction(Path(path), first, last, name)
        for path, first, last, name in traced["entered"]
        if PACKAGE in Path(path).parents
        and TESTS not in Path(path).parents
        and not name.endswith(">")  # lambdas and comprehensions are lines of their functions
    ]
    return functions, traced["moves"]


def request_files() -> list[str]:
    """Return the files of attachd that the request enters, and the length of each."""
    files = sorted({function.path for function in traced_request()[0]})
    return [f"{path.relative_to(TOP)}: {line_count(path)}" for path in files]


def request_functions() -> list[str]:
    """Return the functions of attachd that the request enters, and the lines of each."""
    return [
        f"{entered.path.relative_to(TOP)}:{entered.first}: {entered.name} {entered.lines}"
        for entered in traced_request()[0]
    ]


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED


def _private_imports(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    for alias in node.names:
        name = f"{module}.{alias.name}".strip(".")
        if not name.startswith("attachd") and any(map(_is_private, name.split("."))):
            yield name


def _private_attributes(node: ast.Attribute) -> Iterator[str]:
    """Yield a private attribute of an object other than ``self``: ruff refuses attachd's own."""
    if _is_private(node.attr) and ast.unparse(node.value) not in {"self", "cls", "super()"}:
        yield ast.unparse(node)


def _private_texts(node: ast.Call, constants: dict[str, ast.expr]) -> Iterator[str]:
    """Yield a private name that is given as text to getattr() and the like."""
    if not (isinstance(node.func, ast.Name) and node.func.id in ACCESSORS):
        return
    name = node.args[1]
    name = constants.get(name.id, name) if isinstance(name, ast.Name) else name
    if isinstance(name, ast.Constant) and _is_private(str(name.value)):
        yield f"{node.func.id}(..., {name.value!r})"


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the values of a module's constants by name."""
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            found |= {item.id: node.value for item in targets if isinstance(item, ast.Name)}
    return found


@functools.cache
def _private_parts(kind: type) -> set[str]:
    """Return the private names that a class of a library and its bases define."""
    names: set[str] = set()
    for item in kind.__mro__:
        if item.__module__.partition(".")[0] in {"attachd", "builtins", "typing", "abc"}:
            continue
        names |= {*vars(item)}
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(item)))
        except (OSError, TypeError):  # it is not written in Python
            continue
        names |= {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
        }
    return set(filter(_is_private, names))


def _resolve(module: ModuleType, expression: ast.expr) -> object:
    """Return what a base of a class is: a name, also one with a dot, or with type arguments."""
    if isinstance(expression, ast.Subscript):
        return _resolve(module, expression.value)
    if isinstance(expression, ast.Attribute):
        return getattr(_resolve(module, expression.value), expression.attr, None)
    return getattr(module, expression.id, None) if isinstance(expression, ast.Name) else None


def _private_inheritance(node: ast.ClassDef, module: ModuleType) -> Iterator[tuple[int, str]]:
    """Yield the private names of a library's class that a subclass uses or overrides."""
    names: set[str] = set()
    for base in node.bases:
        kind = _resolve(module, base)
        names |= _private_parts(kind) if isinstance(kind, type) else set()
    for item in ast.walk(node):
        name = ""
        if isinstance(item, ast.FunctionDef):
            name = item.name
        elif isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
            name = item.id
        elif isinstance(item, ast.Attribute) and ast.unparse(item.value) in {"self", "super()"}:
            name = item.attr
        if name in names and isinstance(item, ast.FunctionDef | ast.Name | ast.Attribute):
            yield item.lineno, f"{node.name}({', '.join(map(ast.unparse, node.bases))}).{name}"


def private_names() -> list[str]:
    """Return the uses of private names of libraries.

    They are imports, attributes, also by a name given as text, and what a class uses or overrides
    of its bases.  A library generates its own uses in modules *_pb2.py.
    """
    uses = []
    for path in product_files():
        if path.stem.endswith("_pb2"):
            continue
        tree = ast.parse(path.read_bytes())
        constants = _constants(tree)
        module = ".".join(path.relative_to(TOP).with_suffix("").parts)
        found: list[tuple[int, str]] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.bases:
                found += _private_inheritance(node, importlib.import_module(module))
            elif isinstance(node, ast.Import | ast.ImportFrom):
                found += [(node.lineno, name) for name in _private_imports(node)]
            elif isinstance(node, ast.Attribute):
                found += [(node.lineno, name) for name in _private_attributes(node)]
            elif isinstance(node, ast.Call):
                found += [(node.lineno, name) for name in _private_texts(node, constants)]
        uses += [f"{path.relative_to(TOP)}:{line}: {name}" for line, name in sorted(found)]
    return uses


def _texts_of_code() -> Iterator[tuple[Path, str]]:
    """Return docstrings, comments and other strings of the product, a text at a time."""
    for path in product_files():
        source = path.read_text(encoding="utf-8")
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in {tokenize.COMMENT, tokenize.STRING}:
                yield path, token.string


def _texts_of_documents() -> Iterator[tuple[Path, str]]:
    """Return the pages of doc/, api-ref/ and releasenotes/, and the README."""
    for folder in ("doc/source", "api-ref/source", "releasenotes/notes"):
        for path in sorted((TOP / folder).rglob("*")):
            if path.suffix in {".rst", ".inc", ".yaml"}:
                yield path, path.read_text(encoding="utf-8")
    yield TOP / "README.rst", (TOP / "README.rst").read_text(encoding="utf-8")


def pronoun_rate(texts: Callable[[], Iterator[tuple[Path, str]]]) -> float:
    """Return how many of 1,000 words are PRONOUNS."""
    words = pronouns = 0
    for _path, text in texts():
        words += len(WORD.findall(text))
        pronouns += len(PRONOUNS.findall(text))
    return 1000 * pronouns / words


def pronouns() -> list[str]:
    """Return where PRONOUNS stand, a file a line."""
    lines = []
    for texts in (_texts_of_code, _texts_of_documents):
        counts: dict[Path, int] = {}
        for path, text in texts():
            counts[path] = counts.get(path, 0) + len(PRONOUNS.findall(text))
        lines += [f"{path.relative_to(TOP)}: {count}" for path, count in counts.items() if count]
    return lines


def test_share(folder: Path) -> float:
    """Return the share of lines, in percent, that stand inside of test functions."""
    lines = inside = 0
    for path in sorted(folder.rglob("*.py")):
        lines += line_count(path)
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
                inside += (node.end_lineno or node.lineno) - node.lineno + 1
    return 100 * inside / lines


def figures() -> Iterator[tuple[str, str]]:
    """Return name and value of each figure."""
    files = product_files()
    modules = [path for path in files if path.name != "__init__.py"]
    yield "product files", f"{len(files)}"
    yield "product lines", f"{sum(map(line_count, files))}"
    top = [path for path in modules if path.parent == PACKAGE]
    yield "top-level modules", f"{len(top)}"
    packages = [path for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]
    yield "top-level packages, with tests", f"{len(packages)}"
    yield "layers", f"{layer_count()}"
    small = len(small_modules())
    yield f"modules under {SMALL_MODULE} lines", f"{small} ({100 * small / len(modules):.0f} %)"
    yield "test lines", f"{sum(map(line_count, TESTS.rglob('*.py')))}"
    entered, moves = traced_request()
    lines = sum(function.lines for function in entered)
    yield "functions entered by POST with a connector", f"{len(entered)} ({lines} lines)"
    yield "files entered by it", f"{len(request_files())}"
    yield "moves between files", f"{moves}"
    yield "private names of libraries", f"{len(private_names())}"
    yield "pronouns in 1,000 words of code", f"{pronoun_rate(_texts_of_code):.2f}"
    yield "pronouns in 1,000 words of documents", f"{pronoun_rate(_texts_of_documents):.2f}"
    yield "test lines in test functions", f"{test_share(TESTS):.0f} %"
    yield "the same, functional tests", f"{test_share(TESTS / 'functional'):.0f} %"


LISTS = {
    "private": private_names,
    "pronouns": pronouns,
    "request": request_files,
    "functions": request_functions,
    "small": small_modules,
}


def main() -> None:
    """Print all figures, or what one of them counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", choices=sorted(LISTS), help="print what is counted")
    chosen = parser.parse_args().list
    if chosen:
        print(*LISTS[chosen](), sep="\n")
        return
    for name, value in figures():
        print(f"{name:<40} {value:>20}")


if __name__ == "__main__":
    main()
