# SPDX-License-Identifier: Apache-2.0
"""Each sleep and each short time limit in the tests has a reason beside it.

A test that sleeps hopes that something has happened meanwhile, and a short limit hopes that the
machine is fast.  Where either is right all the same, a comment on its line, or on the line above,
says why.  ``attachd.tests.wait`` waits for conditions.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
import re
import tokenize
import unittest

from attachd import tests

SHORT = 30
"""Seconds below which a limit may be reached by a machine that is only slow."""

FOLDER = Path(tests.__file__).parent

_WAITS = frozenset({"wait", "join", "acquire", "result", "settimeout"})
"""Methods of threads, events, locks, queues, futures, processes and sockets that take a limit."""

_LIMIT = re.compile(r"(^|_)(timeout|deadline|seconds)($|_)", re.IGNORECASE)
"""Arguments and constants that hold a limit."""


def _is_short(node: ast.expr | None) -> bool:
    """Return whether an expression is a number of seconds that is short, and not zero."""
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
        and 0 < node.value < SHORT
    )


def _is_hasty(node: ast.AST) -> bool:
    """Return whether a node sleeps, or limits a wait to a short time."""
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in {"sleep", "timedelta"} or name.startswith("assert_"):
            return name == "sleep"
        limits = [keyword.value for keyword in node.keywords if _LIMIT.search(keyword.arg or "")]
        if name in _WAITS and node.args:
            limits.append(node.args[-1])
        return any(_is_short(limit) for limit in limits)
    if isinstance(node, ast.Assign):
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        return any(_LIMIT.search(name) for name in names) and _is_short(node.value)
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Add)
        and ast.unparse(node.left) == "time.monotonic()"
        and _is_short(node.right)
    )


def _commented(path: Path) -> set[int]:
    """Return the numbers of the lines that have a comment which is more than an excuse."""
    with tokenize.open(path) as source:
        tokens = list(tokenize.generate_tokens(source.readline))
    return {
        token.start[0]
        for token in tokens
        if token.type == tokenize.COMMENT
        and not re.fullmatch(r"#\s*(noqa|type|fmt):\s*\S+", token.string)
    }


def _without_reason(path: Path) -> Iterator[int]:
    """Return the numbers of the lines that sleep or hurry and do not say why."""
    nodes = ast.walk(ast.parse(path.read_bytes(), str(path)))
    hasty = [node for node in nodes if isinstance(node, ast.expr | ast.stmt) and _is_hasty(node)]
    commented = _commented(path) if hasty else set()
    for node in hasty:
        lines = range(node.lineno - 1, (node.end_lineno or node.lineno) + 1)
        if commented.isdisjoint(lines):
            yield node.lineno


class WaitsTest(unittest.TestCase):
    def test_sleeps_and_short_timeouts_have_reason(self):
        missing = [
            f"{path.relative_to(FOLDER.parents[1])}:{line}"
            for path in sorted(FOLDER.rglob("*.py"))
            for line in _without_reason(path)
        ]
        self.assertEqual([], missing, "say why beside it, or wait for a condition")

    def test_check_finds_sleeps_and_short_timeouts(self):
        hasty = (
            "time.sleep(1)",
            "event.wait(5)",
            "thread.join(timeout=2.5)",
            "run(command, timeout=10)",
            "_SECONDS = 2.0",
            "deadline = time.monotonic() + 5",
        )
        calm = (
            "event.wait(60)",
            "thread.join()",
            "run(command, timeout=300)",
            "asked.assert_called_with(timeout=7)",
            "x = 5",
        )
        for statement in (*hasty, *calm):
            found = any(map(_is_hasty, ast.walk(ast.parse(statement))))
            self.assertEqual(statement in hasty, found, statement)
