# SPDX-License-Identifier: Apache-2.0
import unittest

from attachd.csi.node_paths import PathRules
from attachd.platforms.calls import CallError, ErrorCode
from attachd.tests.fixtures.lifetime import temp_dir


class PathRulesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = temp_dir(self)
        self.directory = self.folder / "kubelet"
        (self.directory / "pods").mkdir(parents=True)
        self.rules = PathRules(self.directory)

    def refused(self, path, rules=None):
        """Return the message of the refusal of a path."""
        with self.assertRaises(CallError) as caught:
            (rules or self.rules).check("target_path", f"{path}")
        self.assertIs(ErrorCode.INVALID_ARGUMENT, caught.exception.code)
        return f"{caught.exception}"

    def test_paths_below_directory_are_permitted(self):
        for path in ("pods/volume", "pods/volume/", "missing/volume", "volume"):
            self.rules.check("target_path", f"{self.directory}/{path}")

    def test_paths_elsewhere_are_refused_with_directory(self):
        for path in ("/", "/etc/volume", self.directory, f"{self.directory}-other/volume"):
            self.assertIn(f"not below {self.directory}", self.refused(path))
            PathRules(None).check("target_path", f"{path}")

    def test_relative_paths_are_refused_also_without_directory(self):
        for path in ("volume", "./volume", f"{self.directory}/../etc", f"{self.directory}/./pods"):
            for rules in (self.rules, PathRules(None)):
                self.assertIn("target_path is no absolute path", self.refused(path, rules))

    def test_links_in_path_count(self):
        (self.directory / "out").symlink_to("/etc")
        self.assertIn("not below", self.refused(f"{self.directory}/out/volume"))
        link = self.folder / "link"
        link.symlink_to(self.directory)
        PathRules(link).check("target_path", f"{self.directory}/pods/volume")
        self.rules.check("target_path", f"{link}/pods/volume")
