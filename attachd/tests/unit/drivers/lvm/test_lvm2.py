# SPDX-License-Identifier: Apache-2.0
"""Commands and reports of lvm2."""

from attachd import exception
from attachd.drivers.lvm import lvm2
from attachd.linux import commands
from attachd.tests.fixtures import fake_lvm
from attachd.tests.unit.drivers.lvm import case


class VolumeGroupTest(case.LvmCase):
    def setUp(self):
        super().setUp()
        self.group = lvm2.VolumeGroup(fake_lvm.GROUP, 60)

    def test_extents_of_lv_extend_another_one(self):
        for name in ("a", "b"):
            self.group.create_thick(name, 3 * fake_lvm.EXTENT)
        self.assertEqual(["/dev/sdx:3-5"], self.group.ranges("b"))
        self.assertTrue(self.group.move_extents("b", "a"))
        self.assertEqual(f"{6 * fake_lvm.EXTENT}", self.group.find("a")["lv_size"])

    def test_extents_that_other_process_took_are_noticed(self):
        for name in ("a", "b"):
            self.group.create_thick(name, 3 * fake_lvm.EXTENT)
        remove = self.lvm._lvremove

        def remove_and_take(arguments):
            remove(arguments)
            self.lvm._lvcreate(["--name", "c", "--size", f"{fake_lvm.EXTENT}b", fake_lvm.GROUP])

        self.lvm._lvremove = remove_and_take
        self.assertFalse(self.group.move_extents("b", "a"))
        self.assertEqual(f"{3 * fake_lvm.EXTENT}", self.group.find("a")["lv_size"])

    def test_failed_command_is_named(self):
        row = {"lv_name": "missing", "lv_active": ""}
        error = self.assertRaises(exception.BackendError, self.group.activate, row)
        self.assertRegex(f"{error}", "'lvm lvchange' failed: Failed to find .*vg/missing")

    def test_output_that_is_no_report_is_an_error(self):
        for said in ("", "no JSON", "{}"):
            self.lvm.run = lambda *_arguments, said=said: commands.CommandResult(0, said, "")
            error = self.assertRaises(exception.BackendError, self.group.list_lvs)
            self.assertIn("no JSON", f"{error}")

    def test_missing_commands_are_named(self):
        self.kernel.commands.list_missing = lambda packages: [*packages.values()]
        error = self.assertRaises(exception.BackendError, lvm2.check_commands)
        self.assertRegex(f"{error}", "Install lvm2, util-linux")
