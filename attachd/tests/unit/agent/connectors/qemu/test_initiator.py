# SPDX-License-Identifier: Apache-2.0
"""The iSCSI name of a host."""

from pathlib import Path

import fixtures

from attachd import exception
from attachd.agent.connectors.qemu import initiator


class NameTest(fixtures.TestWithFixtures):
    """Where it comes from."""

    def setUp(self):
        super().setUp()
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.machine = self.folder / "etc"
        self.useFixture(fixtures.MonkeyPatch(f"{initiator.__name__}.MACHINE", self.machine))

    def test_what_is_given_comes_first(self):
        self.machine.write_text("InitiatorName=iqn.2026-01.x:machine\n")
        self.assertEqual("iqn.2026-01.x:me", initiator.name("iqn.2026-01.x:me", self.folder))

    def test_that_of_the_machine_comes_next(self):
        self.machine.write_text("## comment\n InitiatorName = iqn.2026-01.x:machine \n")
        self.assertEqual("iqn.2026-01.x:machine", initiator.name(None, self.folder / "host"))
        self.assertFalse((self.folder / "host").exists())

    def test_else_one_is_made_once(self):
        host = self.folder / "new" / "host"
        name = initiator.name(None, host)
        self.assertRegex(name, r"^iqn\.2026-01\.internal\.attachd:[0-9a-f]{32}$")
        self.assertEqual(name, initiator.name(None, host))
        self.assertNotEqual(name, initiator.name(None, self.folder))
        self.assertEqual(["etc"], [each.name for each in host.iterdir()])

    def test_what_is_no_name_is_refused(self):
        for wrong in ("", "me", "iqn.", "iqn.2026-01.x:with space", "iqn." + "x" * 220):
            with self.assertRaisesRegex(exception.HostError, "no iSCSI name"):
                initiator.name(wrong, self.folder)

    def test_a_file_that_cannot_be_read_is_not_replaced(self):
        self.machine.mkdir()
        with self.assertRaisesRegex(exception.HostError, "cannot be read"):
            initiator.name(None, self.folder)
