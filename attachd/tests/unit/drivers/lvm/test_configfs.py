# SPDX-License-Identifier: Apache-2.0
"""Portals, and what is missing of configfs."""

from pathlib import Path
import socket
from unittest import mock

import fixtures
import testtools

from attachd import exception
from attachd.drivers import base
from attachd.drivers.lvm import configfs
from attachd.tests.unit.drivers.lvm import case


class PortalsTest(testtools.TestCase):
    def test_portals_are_parsed_and_shown(self):
        for text, address in (("10.0.0.1:3260", "10.0.0.1"), ("[fd00::1]:4420", "fd00::1")):
            (portal,) = configfs.parse_portals([text])
            self.assertEqual((address, text), (portal.address, f"{portal}"))

    def test_other_texts_are_refused(self):
        for text in ("10.0.0.1", "host:3260", "10.0.0.1:0", "10.0.0.1:70000", "fd00::1", ""):
            error = self.assertRaises(exception.BackendError, configfs.parse_portals, [text])
            self.assertRegex(f"{error}", "lvm_portals.*ADDRESS:PORT")


class MissingTest(case.LvmCase):
    def test_portal_in_use_names_option(self):
        address, _colon, port = self.portal.rpartition(":")
        with socket.socket() as other:
            other.bind((address, int(port)))
            other.listen()
            for target in ("lio", "nvmet"):
                error = self.assertRaises(exception.BackendError, self.driver, lvm_target=target)
                self.assertRegex(f"{error}", f"lvm_portals.*{self.portal}: Address already in use")

    def test_address_of_other_machine_names_option(self):
        for target in ("lio", "nvmet"):
            options = {"lvm_target": target, "lvm_portals": ["192.0.2.1:3260"]}
            error = self.assertRaises(exception.BackendError, self.driver, **options)
            self.assertRegex(f"{error}", "lvm_portals.*192.0.2.1:3260: Cannot assign")

    def test_missing_modules_are_named(self):
        (self.tree.root / "nvmet" / "hosts").rmdir()
        (self.tree.root / "nvmet" / "ports").rmdir()
        (self.tree.root / "nvmet" / "subsystems").rmdir()
        (self.tree.root / "nvmet").rmdir()
        self.assert_setup_refused("lvm_target.*load.*nvmet_tcp$|nvmet_tcp[.]", lvm_target="nvmet")

    def test_missing_configfs_is_named(self):
        self.tree.root = Path(self.useFixture(fixtures.TempDir()).path)
        for target in ("lio", "nvmet"):
            self.assert_setup_refused("lvm_target.*mount configfs", lvm_target=target)


class TreeTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.root = Path(self.useFixture(fixtures.TempDir()).path)
        self.tree = configfs.Tree(self.root)
        self.checks = []

    def checked(self, call, *arguments):
        """Return how often fencing was checked."""
        self.checks.clear()
        with base.ownership(lambda: self.checks.append(1)):
            call(*arguments)
        return len(self.checks)

    def test_each_needed_change_is_checked_and_repetition_changes_nothing(self):
        folder, link, value = self.root / "object", self.root / "link", self.root / "value"
        value.write_text("0\n")
        for call, arguments in (
            (self.tree.make, (folder,)),
            (self.tree.link, (link, folder)),
            (self.tree.write, (value, "1")),
        ):
            self.assertEqual([1, 0], [self.checked(call, *arguments) for _ in range(2)])
        self.assertEqual("1", self.tree.read(value))
        self.assertEqual(["link", "object"], self.tree.list(self.root))
        for path in (link, folder):
            self.assertEqual([1, 0], [self.checked(self.tree.remove, path) for _ in range(2)])

    def test_link_that_is_removed_meanwhile_leads_nowhere(self):
        tree, link, target = self.tree, self.root / "link", self.root / "target"
        target.mkdir()
        self.assertFalse(tree.leads_to(link, target))
        link.symlink_to(target)
        self.assertTrue(tree.leads_to(link, target))
        gone = FileNotFoundError(2, "No such file or directory")
        with mock.patch("os.readlink", side_effect=gone):
            self.assertFalse(tree.leads_to(link, target))

    def test_missing_attribute_is_an_error_and_not_created(self):
        missing = self.root / "missing"
        self.assertRaises(FileNotFoundError, self.tree.write, missing, "1")
        self.assertEqual("", self.tree.read(missing))
        self.assertEqual([], self.tree.list(missing))
