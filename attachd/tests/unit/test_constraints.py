# SPDX-License-Identifier: Apache-2.0
"""constraints.txt: it has each library of setup.cfg, in a version that setup.cfg permits."""

import configparser
from pathlib import Path
import unittest

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_TOP = Path(__file__).resolve().parents[3]
_LEFT_OUT = frozenset({"setuptools"})
"""Each build chooses its own."""


class ConstraintsTest(unittest.TestCase):
    def test_constraints_meet_each_requirement(self):
        pinned: dict[str, list[str]] = {}
        for line in _read((_TOP / "constraints.txt").read_text(encoding="utf-8")):
            (version,) = line.specifier
            self.assertEqual("==", version.operator, line)
            pinned.setdefault(canonicalize_name(line.name), []).append(version.version)
        configuration = configparser.ConfigParser()
        configuration.read(_TOP / "setup.cfg", encoding="utf-8")
        required = [configuration["options"]["install_requires"]]
        required += configuration["options.extras_require"].values()
        for requirement in (found for text in required for found in _read(text)):
            name = canonicalize_name(requirement.name)
            if name in _LEFT_OUT:
                continue
            versions = pinned.get(name, [])  # one for each range of Pythons
            self.assertTrue(
                versions and all(map(requirement.specifier.contains, versions)),
                f'{requirement} is required and {versions} pinned: run "tox -e constraints".',
            )


def _read(text: str) -> list[Requirement]:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [Requirement(line) for line in lines if line]
