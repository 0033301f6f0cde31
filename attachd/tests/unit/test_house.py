# SPDX-License-Identifier: Apache-2.0
"""The limits of sizes, the import cycles and the arrangement of the source tree.

Cyclomatic complexity is measured by ruff (C901, see pyproject.toml), and the layers
by import-linter (.importlinter).
"""

import ast
from collections.abc import Iterable, Iterator
import functools
from pathlib import Path
import re
import statistics
import tokenize
from typing import NamedTuple
import unittest

import attachd

MAX_FILE_LINES = 800
MAX_FUNCTION_LINES = 60
MAX_METHODS = 20

PACKAGE = Path(attachd.__file__).parent
TESTS = PACKAGE / "tests"
# A migration is written once, by a tool and in one piece, and never grows.
MIGRATIONS = PACKAGE / "db" / "migrations"

# A helper belongs into the lowest package that needs it, under the name of its purpose.
GENERIC_NAMES = frozenset({"common", "constants", "helpers", "misc", "util", "utils"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def _sources() -> list[Path]:
    """Return every file of the package, its tests included."""
    return [path for path in sorted(PACKAGE.rglob("*.py")) if MIGRATIONS not in path.parents]


def _product_sources() -> list[Path]:
    """Return the files of the service itself."""
    return [path for path in _sources() if TESTS not in path.parents]


class Parsed(NamedTuple):
    """What the tests need to know of a file; the tree itself costs more to keep than to make.

    :ivar functions: line, name and number of lines of each
    :ivar classes: line, name and number of methods of each
    :ivar shadows: lines of methods that take the place of TestCase.fail()
    :ivar imports: wherever they stand
    """

    functions: list[tuple[int, str, int]]
    classes: list[tuple[int, str, int]]
    shadows: list[int]
    imports: list[ast.Import | ast.ImportFrom]


@functools.cache
def _parsed(path: Path) -> Parsed:
    found = Parsed([], [], [], [])
    for node in _statements(ast.parse(path.read_bytes(), str(path))):
        if isinstance(node, Function):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            found.functions.append((node.lineno, node.name, lines))
        elif isinstance(node, ast.ClassDef):
            methods = sum(isinstance(child, Function) for child in node.body)
            found.classes.append((node.lineno, node.name, methods))
            found.shadows.extend(_list_shadows(node))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.imports.append(node)
    return found


def _list_shadows(node: ast.ClassDef) -> Iterator[int]:
    """Yield the lines of methods of a class with parents that are named as TestCase.fail()."""
    for child in node.body if node.bases else ():
        if isinstance(child, Function) and child.name == "fail":
            yield child.lineno


def _statements(block: ast.AST) -> Iterator[ast.AST]:
    """Walk through statements; no expression has one in it."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        inner = getattr(block, name, ())
        for node in inner if isinstance(inner, list) else ():
            yield node
            yield from _statements(node)


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _where(path: Path) -> str:
    return str(path.relative_to(PACKAGE.parent))


def _spread(sizes: Iterable[int], median: int, p90: int) -> str:
    """Describe the distance from the targets, for the message of a failure."""
    ordered = sorted(sizes)
    return (
        f"(median {statistics.median(ordered):.0f}, target {median}; "
        f"p90 {ordered[len(ordered) * 9 // 10]}, target {p90})"
    )


@functools.cache
def _internal_imports(path: Path, modules: frozenset[str]) -> set[str]:
    """Return the modules of attachd that a file names in its imports, wherever they stand."""
    found = set()
    for node in _parsed(path).imports:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            package = _package_of(path, node)
            for alias in node.names:
                inner = f"{package}.{alias.name}"
                found.add(inner if inner in modules else package)
    return (found & modules) - {_name(path)}


def _package_of(path: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    above = _name(path).split(".")
    if path.name != "__init__.py":
        above.pop()
    base = above[: len(above) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def _cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return one cycle of the graph, its first member repeated at the end, or nothing."""
    done: set[str] = set()

    def search(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for imported in sorted(graph.get(module, ())):
            if found := search(imported, [*path, module]):
                return found
        done.add(module)
        return []

    for module in sorted(graph):
        if found := search(module, []):
            return found
    return []


class BudgetsTest(unittest.TestCase):
    """The sizes; a failure names the object and its size."""

    maxDiff = None

    def test_files_are_within_limit(self):
        sizes = {path: len(path.read_bytes().splitlines()) for path in _sources()}
        too_long = {_where(p): size for p, size in sizes.items() if size > MAX_FILE_LINES}
        spread = _spread([sizes[p] for p in _product_sources()], 80, 250)
        self.assertEqual({}, too_long, f"files over {MAX_FILE_LINES} lines {spread}")

    def test_functions_are_within_limit(self):
        sizes = {
            f"{_where(path)}:{line} {name}": size
            for path in _sources()
            for line, name, size in _parsed(path).functions
        }
        too_long = {name: size for name, size in sizes.items() if size > MAX_FUNCTION_LINES}
        tests = _where(TESTS)
        spread = _spread([s for n, s in sizes.items() if not n.startswith(tests)] or [0], 8, 30)
        self.assertEqual({}, too_long, f"functions over {MAX_FUNCTION_LINES} lines {spread}")

    def test_classes_have_no_more_methods_than_limit(self):
        # Not for the tests: a test case has as many tests as it has claims, and its file ends.
        too_many = {
            f"{_where(path)}:{line} {name}": methods
            for path in _product_sources()
            for line, name, methods in _parsed(path).classes
            if methods > MAX_METHODS
        }
        self.assertEqual({}, too_many, f"classes with more than {MAX_METHODS} methods")


class ImportsTest(unittest.TestCase):
    """Imports between the modules."""

    maxDiff = None

    def test_modules_have_no_import_cycle(self):
        modules = frozenset(map(_name, _sources()))
        graph = {_name(path): _internal_imports(path, modules) for path in _sources()}
        self.assertEqual([], _cycle(graph))

    def test_modules_keep_their_names(self):
        renamed = [
            f"{_where(path)}: {alias.name} as {alias.asname}"
            for path in _product_sources()
            for node in _parsed(path).imports
            if isinstance(node, ast.ImportFrom) and _package_of(path, node).startswith("attachd")
            for alias in node.names
            if alias.name.islower() and alias.name not in (alias.asname or alias.name)
        ]
        allowed = {"microversions as mv"}
        self.assertEqual([], [line for line in renamed if line.split(": ")[1] not in allowed])

    def test_import_cycle_is_detected(self):
        graph = {"a": {"b"}, "b": {"c"}, "c": {"d", "b"}, "d": set()}
        self.assertEqual(["b", "c", "b"], _cycle(graph))


class OrderTest(unittest.TestCase):
    """Places of files, and their first lines."""

    maxDiff = None

    def test_modules_have_test_file(self):
        missing = []
        for path in _product_sources():
            parsed = _parsed(path)
            if not (parsed.functions or parsed.classes):
                continue  # A list of options has nothing to test.
            inner = path.relative_to(PACKAGE)
            stem = path.parent.name if path.name == "__init__.py" else inner.stem
            expected = TESTS / "unit" / inner.parent / f"test_{stem}.py"
            if not expected.is_file():
                missing.append(f"{_where(path)} wants {_where(expected)}")
        self.assertEqual([], missing)

    def test_folders_of_tests_are_packages(self):
        folders = {path.parent for path in TESTS.rglob("test_*.py")}
        bare = [_where(folder) for folder in folders if not (folder / "__init__.py").is_file()]
        self.assertEqual([], bare, "stestr does not find tests in a folder without __init__.py")

    def test_no_test_replaces_the_method_by_which_assertions_fail(self):
        # Of ProcessScope it is the purpose.
        tests = set(TESTS.rglob("*.py")) - {TESTS / "fixtures" / "lifetime.py"}
        found = [f"{_where(path)}:{line}" for path in tests for line in _parsed(path).shadows]
        self.assertEqual([], found, "assertEqual() and others would pass")

    def test_modules_have_specific_names(self):
        generic = [
            _where(path) for path in _sources() if GENERIC_NAMES & set(_name(path).split("."))
        ]
        self.assertEqual([], generic)

    def test_files_have_license_identifier(self):
        bare = []
        for path in sorted(PACKAGE.rglob("*.py")):
            with tokenize.open(path) as source:
                head = source.readline() + source.readline()
            if "SPDX-License-Identifier: Apache-2.0" not in head:
                bare.append(_where(path))
        self.assertEqual([], bare)


class DocstringsTest(unittest.TestCase):
    def test_docstrings_describe_existing_parameters(self):
        found = [
            f"{path}:{function.lineno}: :param {name}:"
            for path in _sources()
            for function in _statements(ast.parse(path.read_bytes()))
            if isinstance(function, Function)
            for name in re.findall(r":param (\w+):", ast.get_docstring(function) or "")
            if name not in {argument.arg for argument in _arguments(function.args)}
        ]
        self.assertEqual([], found)

    def test_named_source_files_exist(self):
        known = [f"/{path.relative_to(PACKAGE.parent)}" for path in PACKAGE.rglob("*.py")]
        found = [
            f"{path}: {name}"
            for path in _product_sources()
            for name in re.findall(r"[\w/]+\.py\b", path.read_text())
            if not any(one.endswith(f"/{name}") for one in known)
        ]
        self.assertEqual([], found)


def _arguments(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from filter(None, (arguments.vararg, arguments.kwarg))
