# SPDX-License-Identifier: Apache-2.0
"""Compare the lists of the page "How to change things" with the files that name its examples."""

from collections.abc import Mapping
import functools
from pathlib import Path
import re
import subprocess
import unittest

ROOT = Path(__file__).parents[3]
PAGE = "doc/source/contributor/changing-things.rst"

EVERYWHERE = (
    # The page, and this test.
    PAGE,
    "attachd/tests/unit/test_changing_things.py",
    # As the page says: notes, and tests of what the example does.
    "releasenotes/notes/",
    "attachd/tests/functional/test_",
    "attachd/tests/consumers/",
    "attachd/tests/crash/",
    "attachd/tests/lab/",
    "attachd/tests/nova/",
    "attachd/tests/soak/",
    "benchmarks/",
    # Where to find what.
    "doc/source/contributor/architecture.rst",
)
"""Files that are in no list, or how their paths begin."""

EXCLUDED: Mapping[str, tuple[str, ...]] = {
    # What a move does.
    "A field of an attachment": (
        "attachd/api/attachments/handlers.py",
        "attachd/api/attachments/moves.py",
        "attachd/api/fencing/force_attach.py",
        "attachd/db/attachments/attachment_moves.py",
        "attachd/db/attachments/attachment_rows.py",
        "attachd/db/attachments/connect_rules.py",
        "attachd/manager/attach.py",
        "attachd/manager/detach.py",
        "attachd/manager/moves.py",
        "attachd/tests/fixtures/consistency.py",
        "attachd/tests/unit/api/attachments/test_moves.py",
        "attachd/tests/unit/db/attachments/test_attachment_moves.py",
        "attachd/tests/unit/manager/test_moves.py",
        "doc/source/admin/notifications.rst",
    ),
    "An action that a manager carries out": (
        # Messages name it.
        "attachd/db/attachments/attachment_moves.py",
        "attachd/exception.py",
        # A test imitates it.
        "attachd/tests/unit/agent/test_reconciler.py",
    ),
    # It observes more often there, to be faster.
    "A configuration option": ("attachd/tests/fixtures/agent_deployment.py",),
    # It starts the task.
    "An ability of drivers": ("attachd/manager/service.py",),
    # NFS below a file.
    "A driver": ("attachd/drivers/copying.py", "attachd/tests/unit/drivers/test_copying.py"),
}
"""Files that mention an example and are not in its list, by section."""

_SECTION = re.compile(r"(?m)^(\S.*)\n=+\n")
_EXAMPLE = re.compile(r"(?m)^Example: ((?:``[^`]+``(?: and )?)+)")
_ITEM = re.compile(r"(?m)^#\. ((?:``[^`]+``[,\s]*)+):")
_LITERAL = re.compile(r"``([^`]+)``")


@functools.cache
def read_tracked() -> dict[str, str]:
    """Return the texts of the files of the repository, by their paths."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    paths = [ROOT / name for name in listed.split("\0") if name]
    return {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8", errors="replace")
        for path in paths
        if path.is_file()
    }


def find_mentions(words: list[str]) -> set[str]:
    """Return the files that have one of some words, also in their paths and as part of a name."""
    forms = "|".join(re.escape(word).replace("_", "[_-]") for word in words)
    pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{forms})(?![A-Za-z0-9])")
    return {name for name, text in read_tracked().items() if pattern.search(f"{name}\n{text}")}


def is_below(name: str, beginnings: tuple[str, ...]) -> bool:
    """Return whether a path is one of these, or below one that ends in a slash."""
    return any(
        name.startswith(begin) if begin.endswith(("/", "_")) else name == begin
        for begin in beginnings
    )


def _resolve(path: str) -> str:
    """Return a path of the page, which may be relative to the package, from the repository."""
    return f"attachd/{path}" if (ROOT / "attachd" / path).exists() else path


def compare(title: str, text: str) -> tuple[set[str], set[str]]:
    """Return the files that are missing in a section, and those that it names for no reason."""
    (example,) = _EXAMPLE.findall(text)
    listed = tuple(
        _resolve(path) for item in _ITEM.findall(text) for path in _LITERAL.findall(item)
    )
    excluded = EXCLUDED.get(title, ())
    mentions = find_mentions(_LITERAL.findall(example))
    concerned = {name for name in mentions if not is_below(name, EVERYWHERE)}
    missing = {name for name in concerned if not is_below(name, listed + excluded)}
    used = {path for path in listed + excluded for name in concerned if is_below(name, (path,))}
    return missing, {*listed, *excluded} - used


class ChangingThingsTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        super().setUp()
        if not (ROOT / ".git").exists():
            self.skipTest("needs the repository")
        parts = _SECTION.split((ROOT / PAGE).read_text(encoding="utf-8"))
        parts = parts[3:]  # after the title of the page
        self.sections = dict(zip(parts[::2], parts[1::2], strict=True))
        self.assertLessEqual(EXCLUDED.keys(), self.sections.keys())

    def test_lists_name_the_files_that_mention_the_example(self):
        for title, text in self.sections.items():
            with self.subTest(title):
                self.assertEqual((set(), set()), compare(title, text))

    def test_missing_and_needless_files_are_found(self):
        title = "A notification"
        text = self.sections[title]
        named = "doc/source/admin/notifications.rst"
        self.assertEqual(({named}, set()), compare(title, text.replace(f"#. ``{named}``", "")))
        needless = text + "#. ``setup.cfg``, ``agent/``: nothing.\n"
        self.assertEqual((set(), {"setup.cfg", "attachd/agent/"}), compare(title, needless))
