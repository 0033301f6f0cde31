# SPDX-License-Identifier: Apache-2.0
"""The space for conversions, and the name of a format; test_conversion.py runs the program."""

import errno
from pathlib import Path

from attachd import exception
from attachd.images import qemu_img
from attachd.tests.fixtures import conf_fixture, lifetime
from attachd.tests.unit.images.test_checks import image


class SpaceTest(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        self.folder = Path(lifetime.temp_dir(self)) / "new"
        conf_fixture.override(self, "conversion_dir", f"{self.folder}", group="glance")
        conf_fixture.override(self, "conversion_free_space", 0, group="glance")
        self.steps = []

    def test_step_gets_fraction_that_is_done_last(self):
        with qemu_img.space_for(image(), self.steps.append) as space:
            space.check(0.3)
            space.check()
        self.assertEqual([0.3, 0.3], self.steps)
        self.assertEqual(0o700, self.folder.stat().st_mode & 0o777)

    def test_lack_of_space_names_option(self):
        conf_fixture.override(self, "conversion_free_space", 10**6, group="glance")
        with (
            self.assertRaisesRegex(exception.HostError, "conversion_dir"),
            qemu_img.space_for(image(), self.steps.append) as space,
        ):
            space.check()

    def test_other_error_of_files_is_described(self):
        with (
            self.assertRaisesRegex(exception.HostError, "Image i cannot be converted: .*bad"),
            qemu_img.space_for(image(), self.steps.append),
        ):
            raise OSError(errno.EIO, "bad")

    def test_vhd_has_another_name(self):
        self.assertEqual(["vpc", "qcow2"], [qemu_img.name_of(name) for name in ("vhd", "qcow2")])
