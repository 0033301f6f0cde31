# SPDX-License-Identifier: Apache-2.0
"""The gabbi stories of the microversions.

The stories are in tests/functional/gabbits/mv-3-NN-SLUG.yaml, and run there.
"""

from pathlib import Path
import re
import unittest

from attachd.api import microversions as mv

STORIES = Path(__file__).parents[1] / "functional" / "gabbits"

# The microversions that change something of what this service has, or of what clients expect of
# every Block Storage service.
DOCUMENTED = (
    *(
        2,
        3,
        7,
        12,
        16,
        21,
        22,
        27,
        28,
        29,
        31,
        32,
        33,
        34,
        40,
        41,
        42,
        44,
        45,
        46,
        48,
        49,
        50,
        52,
        53,
        54,
    ),
    *(59, 60, 61, 62, 63, 64, 65, 66, 67, 69, 71),
)

# Microversions without a story.
MISSING: frozenset[int] = frozenset()


def _stories() -> dict[int, list[Path]]:
    found: dict[int, list[Path]] = {}
    for path in sorted(STORIES.glob("mv-3-*.yaml")):
        name = re.fullmatch(r"mv-3-([1-9]\d*)-[a-z0-9-]+\.yaml", path.name)
        assert name is not None, path.name
        found.setdefault(int(name[1]), []).append(path)
    return found


class StoriesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        if not STORIES.is_dir():
            self.skipTest(f"The stories are not here: {STORIES}")
        self.stories = _stories()

    def test_microversions_have_story(self):
        self.assertEqual(sorted(MISSING), sorted(set(DOCUMENTED) - self.stories.keys()))

    def test_stories_are_of_known_microversions(self):
        known = {version.minor for version in mv.versions()}
        self.assertLessEqual(self.stories.keys(), known)

    def test_stories_request_version_before_and_version_itself(self):
        for minor, paths in self.stories.items():
            asked = {
                found
                for path in paths
                for found in re.findall(r"volume 3\.(\d+)\b", path.read_text(encoding="utf-8"))
            }
            with self.subTest(minor):
                self.assertLessEqual({str(minor - 1), str(minor)}, asked)

    def test_stories_begin_with_comment_naming_version(self):
        for minor, paths in self.stories.items():
            for path in paths:
                with self.subTest(path.name):
                    first = path.read_text(encoding="utf-8").partition("\n")[0]
                    self.assertRegex(first, rf"^# (|.* )3\.{minor}\b")
