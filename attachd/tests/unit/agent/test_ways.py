# SPDX-License-Identifier: Apache-2.0
"""Which way a host takes."""

from pathlib import Path

import fixtures

from attachd import exception
from attachd.agent import ways


class ChooseTest(fixtures.TestWithFixtures):
    """By name, or by what there is."""

    def setUp(self):
        super().setUp()
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)

    def chosen(self, *, scsi, lacking):
        if scsi:
            (self.folder / "scsi_host").mkdir(exist_ok=True)
        with (
            fixtures.MonkeyPatch("attachd.agent.ways._SCSI", self.folder / "scsi_host"),
            fixtures.MonkeyPatch(
                "shutil.which", lambda name, path: None if name in lacking else name
            ),
            fixtures.MonkeyPatch("os.access", lambda *_: True),
        ):
            return ways.choose(ways.AUTO, self.folder).NAME

    def test_each_has_its_name(self):
        for name in ("kernel", "user-space"):
            self.assertEqual(name, ways.choose(name, self.folder, "iqn.2026-01.x:me").NAME)

    def test_a_wrong_name_is_answered_with_the_right_ones(self):
        for wrong in ("", "Kernel", "os-brick"):
            with self.assertRaisesRegex(exception.HostError, "of: auto, kernel, user-space"):
                ways.choose(wrong, self.folder)

    def test_the_kernel_is_chosen_unless_it_cannot(self):
        daemon = "qemu-storage-daemon"
        for scsi, lacking, expected in (
            (False, [], "user-space"),
            (False, [daemon], "kernel"),
            (False, ["iscsiadm", daemon], "kernel"),
            (True, ["iscsiadm"], "user-space"),
            (True, ["iscsiadm", daemon], "kernel"),
            (True, [daemon], "kernel"),
            (True, [], "kernel"),
        ):
            with self.subTest(scsi=scsi, lacking=lacking):
                self.assertEqual(expected, self.chosen(scsi=scsi, lacking=lacking))
