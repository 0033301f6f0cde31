# SPDX-License-Identifier: Apache-2.0
"""The lvm driver on fakes, for the tests of this folder."""

import testtools

from attachd import exception
from attachd.drivers import base
from attachd.drivers.lvm.driver import LvmDriver
from attachd.tests.fixtures import fake_lvm, processes
from attachd.tests.unit.drivers import configured

VOLUME = base.VolumeRef("8f5a1d0a-94a4-4a57-9df9-6e2d6f4f7f11", 1)
COPY = base.VolumeRef("8f5a1d0a-94a4-4a57-9df9-6e2d6f4f7f12", 2)
SECRET = "0123456789abcdef0123456789abcdef"


def export(host: str, mode: base.AccessMode = "rw") -> base.Export:
    """Describe an attachment to a host."""
    connector = {"initiator": f"iqn.2026-01.test:{host}", "nqn": f"nqn.2026-01.test:{host}"}
    return base.Export(f"57f9a6e4-53b8-4ac9-8f12-a44ca4a5bd0{host}", connector, mode, SECRET)


class LvmCase(testtools.TestCase):
    """A driver on fakes.

    :cvar TARGET: the option lvm_target
    """

    TARGET = "lio"

    def setUp(self) -> None:
        super().setUp()
        self.kernel = self.useFixture(fake_lvm.FakeKernel())
        self.tree, self.lvm = self.kernel.tree, self.kernel.lvm
        self.portal = f"127.0.0.1:{processes.free_port()}"

    def new_driver(self, **options) -> LvmDriver:
        """Create a driver, without setup()."""
        known = {
            "lvm_volume_group": fake_lvm.GROUP,
            "lvm_target": self.TARGET,
            "lvm_portals": [self.portal],
        }
        return configured.driver(LvmDriver, **{**known, **options})

    def driver(self, **options) -> LvmDriver:
        """Create a driver that is set up."""
        driver = self.new_driver(**options)
        driver.setup()
        return driver

    def assert_setup_refused(self, pattern: str, **options) -> None:
        """Expect a final error that names an option."""
        error = self.assertRaises(exception.BackendError, self.driver, **options)
        self.assertTrue(error.final)
        self.assertRegex(f"{error}", pattern)

    def assert_as_expected(self, driver: LvmDriver, *exports: base.Export) -> None:
        """Check that the target has just these exports of the volume."""
        expected = set(driver.expected_exports(VOLUME, exports))
        self.assertEqual(expected, set(driver.list_volume_exports(VOLUME)))
