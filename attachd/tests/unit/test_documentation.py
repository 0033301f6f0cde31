# SPDX-License-Identifier: Apache-2.0
"""That the documentation has every page in one place, and shows the house as it is."""

import ast
import configparser
from pathlib import Path
import re
import unittest

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "doc/source"
ARCHITECTURE = SOURCE / "contributor/architecture.rst"
_NAMED = re.compile(r"``((?:[\w]+/)*\w+\.py)(?::([\w.]+)(?:\(\))?)?``")
"""A file, and perhaps a name in it: manager/attach.py:attach()."""
_TREE = re.compile(r"^\.\. toctree::\n(?:   :.*\n)*\n((?:   \S+\n)+)", re.MULTILINE)


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        super().setUp()
        if not SOURCE.is_dir():
            self.skipTest("the documentation is not here, only what is installed")


class PagesTest(Case):
    def test_each_page_is_in_one_tree(self):
        listed = []
        for index in SOURCE.rglob("*.rst"):
            for entries in _TREE.findall(index.read_text(encoding="utf-8") + "\n"):
                for entry in entries.split():
                    found = (index.parent / f"{entry}.rst").resolve()
                    listed.append(found.relative_to(SOURCE.resolve()))
        pages = {
            page.relative_to(SOURCE)
            for page in SOURCE.rglob("*.rst")
            if "_generated" not in page.parts
        }
        self.assertEqual(sorted(pages - {Path("index.rst")}), sorted(listed))


class ArchitectureTest(Case):
    def setUp(self):
        super().setUp()
        self.text = ARCHITECTURE.read_text(encoding="utf-8")

    def test_the_layers_are_those_that_are_checked(self):
        contracts = configparser.ConfigParser()
        contracts.read(ROOT / ".importlinter", encoding="utf-8")
        checked = contracts["importlinter:contract:layers"]["layers"]
        shown = self.text.split("``tox -e pep8`` checks it:\n\n.. code-block:: text\n\n")[1]
        shown = shown.split("\n\n")[0]
        # What is behind two spaces is a remark.
        lines = [re.split(r" {2,}", line.strip())[0] for line in shown.splitlines()]
        without = checked.replace("(", "").replace(")", "")
        self.assertEqual([line for line in without.splitlines() if line], lines)

    def test_every_room_is_in_the_tree(self):
        tree = self.text.split("   attachd/\n")[1].split("\n\n")[0]
        shown = set(re.findall(r"^     (\w+(?:\.py|/)) ", tree, re.MULTILINE))
        package = ROOT / "attachd"
        rooms = {f"{each.parent.name}/" for each in package.glob("*/__init__.py")}
        rooms |= {each.name for each in package.glob("*.py")} - {"__init__.py"}
        self.assertEqual(rooms, shown)

    def test_every_named_file_and_function_exists(self):
        missing = [
            f"{path}:{name}"
            for path, name in _NAMED.findall(self.text)
            if not _exists(ROOT / "attachd" / path, name)
        ]
        self.assertEqual([], missing)

    def test_names_of_missing_functions_are_found(self):
        module = Path(__file__)
        self.assertTrue(_exists(module, "ArchitectureTest.setUp"))
        self.assertTrue(_exists(module, "ROOT"))
        self.assertFalse(_exists(module, "ArchitectureTest.missing"))
        self.assertFalse(_exists(module.with_name("missing.py"), ""))


def _exists(path: Path, name: str) -> bool:
    """Return whether a module exists, and has a function, class, method or constant."""
    if not path.is_file():
        return False
    body = ast.parse(path.read_bytes()).body
    for part in name.split(".") if name else ():
        found = next((node for node in body if part in _defined(node)), None)
        if found is None:
            return False
        body = getattr(found, "body", [])
    return True


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return {target.id for target in targets if isinstance(target, ast.Name)}
