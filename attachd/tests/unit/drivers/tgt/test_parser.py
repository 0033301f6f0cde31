# SPDX-License-Identifier: Apache-2.0
"""Parsing of the output of tgtadm; forged listings are refused."""

import unittest

from attachd import exception
from attachd.drivers.tgt import parser

LISTING = """\
Target 7: iqn.2026-01.test:one
    System information:
        Driver: iscsi
        State: ready
    I_T nexus information:
        I_T nexus: 2
            Initiator: iqn.2026-01.test:host alias: {alias}
            Connection: 0
                IP Address: 127.0.0.1
    LUN information:
        LUN: 0
            Type: controller
            SCSI ID: IET     00070000
            SCSI SN: beaf70
            Size: 0 MB, Block size: 1
            Online: Yes
            Readonly: No
            Backing store path: None
            Backing store flags: 
        LUN: 1
            Type: disk
            SCSI ID: 0123456789abcdef
            SCSI SN: hello
            Size: 1074 MB, Block size: 512
            Online: Yes
            Readonly: Yes
            SWP: No
            Thin-provisioning: Yes
            Backing store path: /volumes/with space: and colon
            Backing store flags: 
    Account information:
        guard
        user-b
        user-a
    ACL information:
        10.0.0.0/8
        iqn.2026-01.test:host
Target 12: iqn.2026-01.test:two
    System information:
        Driver: iscsi
        State: offline
    I_T nexus information:
    LUN information:
        LUN: 0
            Type: controller
            SCSI ID: IET     000c0000
            Online: No
    Account information:
    ACL information:
"""  # noqa: W291 (as tgtadm prints it)

PLAIN = LISTING.format(alias="none")

CONNECTIONS = """\
Session: 3
    Connection: 0
        Initiator: iqn.2026-01.test:host-a
        IP Address: 127.0.0.1
Session: 2
    Connection: 1
        Initiator: iqn.2026-01.test:host-b
        IP Address: 127.0.0.1
    Connection: 0
        Initiator: iqn.2026-01.test:host-b
        IP Address: 127.0.0.1
"""


class TargetsTest(unittest.TestCase):
    def test_named_parses_complete_target(self):
        (target,) = parser.named(PLAIN, {"iqn.2026-01.test:one"})
        self.assertEqual(
            (7, "iqn.2026-01.test:one", True), (target.tid, target.name, target.ready)
        )
        self.assertEqual(("guard", "user-b", "user-a"), target.accounts)
        self.assertEqual(("10.0.0.0/8", "iqn.2026-01.test:host"), target.initiators)
        self.assertEqual(("iqn.2026-01.test:host",), target.sessions)
        self.assertEqual({0, 1}, set(target.luns))
        path = "/volumes/with space: and colon"
        expected = parser.Lun(
            "0123456789abcdef", path, 1074, online=True, read_only=True, discards=True
        )
        self.assertEqual(expected, target.luns[1])

    def test_named_parses_idle_target(self):
        (target,) = parser.named(PLAIN, {"iqn.2026-01.test:two"})
        self.assertEqual(((), (), False), (target.accounts, target.initiators, target.ready))
        self.assertEqual((), target.sessions)
        self.assertFalse(target.luns[0].online)

    def test_named_with_part_of_name_finds_nothing(self):
        for name in ("iqn.2026-01.test:on", "iqn.2026-01.test:one2", "one", ""):
            self.assertEqual([], parser.named(PLAIN, {name}))

    def test_of_volume_parses_targets_whose_name_has_a_suffix(self):
        shown = PLAIN.replace("test:two", "test:one-ro")
        found = parser.of_volume(shown, "iqn.2026-01.test:one")
        self.assertEqual([7, 12], [target.tid for target in found])
        self.assertEqual([], parser.of_volume(shown, "iqn.2026-01.test:on"))

    def test_targets_lists_all(self):
        self.assertEqual([7, 12], [target.tid for target in parser.targets(PLAIN)])

    def test_empty_listing_has_no_targets(self):
        self.assertEqual([], list(parser.targets("")))
        self.assertEqual([], parser.named("", {"iqn.2026-01.test:one"}))


class ForgedTest(unittest.TestCase):
    """Listings with an alias that a host has forged."""

    def test_forged_alias_with_same_number_is_refused(self):
        forged = LISTING.format(alias="x\nTarget 7: iqn.2026-01.test:three")
        self._assert_refused(forged, "iqn.2026-01.test:three")

    def test_forged_alias_with_number_of_other_target_is_refused(self):
        forged = LISTING.format(alias="x\nTarget 12: iqn.2026-01.test:three")
        self._assert_refused(forged, "iqn.2026-01.test:three")

    def test_forged_alias_with_name_of_other_target_is_refused(self):
        forged = LISTING.format(alias="x\nTarget 99: iqn.2026-01.test:two")
        self._assert_refused(forged, "iqn.2026-01.test:two")

    def test_forged_alias_with_section_is_refused(self):
        for section in ("Account information:", "ACL information:", "LUN information:"):
            forged = LISTING.format(alias=f"x\n    {section}\n        mine")
            self._assert_refused(forged, "iqn.2026-01.test:one")

    def _assert_refused(self, forged, name):
        with self.assertRaisesRegex(exception.BackendError, "forged"):
            parser.named(forged, {name})
        with self.assertRaisesRegex(exception.BackendError, "forged"):
            list(parser.targets(forged))


class ConnectionsTest(unittest.TestCase):
    def test_connections_are_parsed_with_session(self):
        host_a, host_b = "iqn.2026-01.test:host-a", "iqn.2026-01.test:host-b"
        self.assertEqual(
            [
                parser.Connection(3, 0, host_a),
                parser.Connection(2, 1, host_b),
                parser.Connection(2, 0, host_b),
            ],
            parser.connections(CONNECTIONS),
        )

    def test_empty_connection_list_is_parsed(self):
        self.assertEqual([], parser.connections(""))


class AccountsTest(unittest.TestCase):
    def test_accounts_skip_heading(self):
        self.assertEqual(["a", "b"], parser.accounts("Account list:\n    a\n    b\n"))
        self.assertEqual([], parser.accounts(""))
