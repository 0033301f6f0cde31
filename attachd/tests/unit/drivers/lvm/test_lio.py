# SPDX-License-Identifier: Apache-2.0
"""Targets of LIO: order of changes, damage that audits find, sessions and reservations."""

import dataclasses
import functools

from attachd import exception
from attachd.drivers import abilities, base, iscsi
from attachd.tests.unit.drivers.lvm import case

WRITER, READER = case.export("1"), case.export("2", "ro")


class LioTest(case.LvmCase):
    def setUp(self):
        super().setUp()
        self.lio = self.driver()
        self.lio.create(case.VOLUME)

    def group(self, mode="rw"):
        return self.lio.target._group(case.VOLUME.id, mode).path

    def acl(self, export):
        return self.group(export.mode) / "acls" / export.connector["initiator"]

    def store(self, mode="rw"):
        return self.lio.target._group(case.VOLUME.id, mode).store.path

    def grant(self, *exports):
        return [self.lio.grant(case.VOLUME, export) for export in exports]

    def test_writer_and_reader_have_own_targets_accounts_and_protection(self):
        infos = self.grant(WRITER, READER)
        seen = []
        for export, info in zip((WRITER, READER), infos, strict=True):
            acl, data = self.acl(export), info["data"]
            self.assertEqual(acl.parent.parent.parent.name, data["target_iqn"])
            self.assertEqual(self.tree.read(acl / "auth" / "userid"), data["auth_username"])
            self.assertEqual(case.SECRET, self.tree.read(acl / "auth" / "password"))
            seen.append(self.tree.read(acl / "lun_0" / "write_protect"))
        self.assertEqual(["0", "1"], seen)
        self.assertNotEqual(infos[0]["data"]["auth_username"], infos[1]["data"]["auth_username"])

    def test_account_is_set_after_lun_is_protected(self):
        written = []
        self.tree._write, write = (
            lambda path, value: (written.append(path.name), write(path, value)),
            self.tree._write,
        )
        self.grant(READER)
        self.assertEqual(["userid", "password"], written[-2:])

    def test_readers_and_writers_have_own_backstores_of_one_name(self):
        self.grant(WRITER, READER)
        writers, readers = self.store("rw"), self.store("ro")
        self.assertNotEqual(writers.parent, readers.parent)
        serials = {self.tree.read(store / "wwn/vpd_unit_serial") for store in (writers, readers)}
        self.assertEqual({iscsi.scsi_id(case.VOLUME.id)}, serials)
        self.assertIn("fd_async_io=1", self.tree.read(readers / "control"))
        values = [self.tree.read(store / "attrib/emulate_pr") for store in (writers, readers)]
        self.assertEqual(["1", "0"], values)

    def test_last_reader_takes_its_backstore_and_leaves_that_of_writers(self):
        self.grant(WRITER, READER)
        self.lio.revoke(case.VOLUME, READER, [WRITER])
        self.assertEqual([True, False], [self.store(mode).is_dir() for mode in ("rw", "ro")])
        self.assert_as_expected(self.lio, WRITER)
        self.lio.revoke(case.VOLUME, WRITER, [])
        self.assertFalse(self.store("rw").is_dir())

    def test_reader_without_writers_has_no_backstore_of_writers(self):
        self.grant(READER)
        self.assertEqual([False, True], [self.store(mode).is_dir() for mode in ("rw", "ro")])
        self.assert_as_expected(self.lio, READER)

    def test_immediate_data_is_refused_without_option_and_damage_is_found(self):
        for options, value, other in (
            ({}, "No", "Yes"),
            ({"lvm_immediate_data": True}, "Yes", "No"),
        ):
            lio = self.driver(**options)
            lio.grant(case.VOLUME, WRITER)
            setting = self.group() / "param/ImmediateData"
            self.assertEqual(value, self.tree.read(setting))
            self.tree.write(setting, other)
            expected = set(lio.expected_exports(case.VOLUME, [WRITER]))
            self.assertNotEqual(expected, set(lio.list_volume_exports(case.VOLUME)))
            lio.revoke_all_except(case.VOLUME, [WRITER])
            self.assert_as_expected(lio, WRITER)
            self.assertEqual(value, self.tree.read(setting))

    def test_initiator_is_lower_case_and_no_path(self):
        connector = {"initiator": "iqn.2026-01.Test:A"}
        info = self.lio.grant(case.VOLUME, base.Export("x", connector, "rw", case.SECRET))
        self.assertEqual(["iqn.2026-01.test:a"], self.tree.list(self.group() / "acls"))
        self.assertEqual(
            iscsi.account(info["data"]["target_iqn"], "iqn.2026-01.test:a"),
            info["data"]["auth_username"],
        )
        self.assertRaises(
            exception.InvalidInput, self.lio.check_connector, {"initiator": "iqn.2026-01.x:a/b"}
        )

    def test_portals_for_multipath_are_all_returned(self):
        portals = [self.portal, self.portal.replace("127.0.0.1", "127.0.0.2")]
        self.lio = self.driver(lvm_portals=portals)
        (info,) = self.grant(WRITER)
        self.assertEqual(portals, info["data"]["target_portals"])
        self.assertEqual(portals, self.tree.list(self.group() / "np"))
        self.assert_as_expected(self.lio, WRITER)

    def test_portal_that_is_taken_at_grant_names_option(self):
        self.tree.refused_portal = self.portal
        error = self.assertRaises(exception.BackendError, self.grant, WRITER)
        self.assertRegex(f"{error}", "lvm_portals.*in use")
        self.assertFalse(error.final)

    def test_damage_is_listed_and_repaired(self):
        self.grant(WRITER, READER)
        for damage in (
            lambda: (self.acl(READER) / "lun_0" / "write_protect").write_text("0\n"),
            lambda: (self.acl(WRITER) / "auth" / "userid").write_text("\n"),
            lambda: (self.group() / "attrib" / "generate_node_acls").write_text("1\n"),
            lambda: (self.group() / "attrib" / "authentication").write_text("0\n"),
            lambda: (self.group() / "enable").write_text("0\n"),
            lambda: self.tree.remove(self.group() / "np" / self.portal),
            lambda: self.tree.make(self.group() / "acls" / "iqn.2026-01.test:other"),
            lambda: self.tree.remove(self.acl(WRITER) / "lun_0" / "lun_0"),
            lambda: self.tree.make(self.acl(WRITER) / "lun_7"),
            *(
                functools.partial((self.store(mode) / "attrib" / name).write_text, f"{value}\n")
                for mode, name, value in (
                    ("rw", "max_write_same_len", 65535),
                    ("rw", "emulate_caw", 1),
                    ("rw", "emulate_3pc", 1),
                    ("ro", "max_write_same_len", 65535),
                    ("ro", "emulate_pr", 1),
                )
            ),
        ):
            damage()
            expected = set(self.lio.expected_exports(case.VOLUME, [WRITER, READER]))
            self.assertNotEqual(expected, set(self.lio.list_volume_exports(case.VOLUME)))
            self.lio.revoke_all_except(case.VOLUME, [WRITER, READER])
            extra = set(self.lio.list_volume_exports(case.VOLUME))
            for item in extra:
                (same,) = (other for other in expected if other.mode == item.mode)
                self.assertLessEqual(item.holders, same.holders)
            self.grant(WRITER, READER)
            self.assert_as_expected(self.lio, WRITER, READER)

    def test_session_without_acl_that_cannot_be_ended_is_an_error(self):
        self.grant(WRITER)
        (self.group() / "dynamic_sessions").write_text("iqn.2026-01.test:other\n")
        error = self.assertRaises(
            exception.BackendError, self.lio.revoke_all_except, case.VOLUME, [WRITER]
        )
        self.assertIn("iqn.2026-01.test:other", f"{error}")

    def test_sessions_are_listed(self):
        self.grant(WRITER)
        (self.acl(WRITER) / "info").write_text("InitiatorName: iqn.2026-01.test:1\nLIO Session")
        exports = {item.mode: item for item in self.lio.list_volume_exports(case.VOLUME)}
        self.assertEqual({"iqn.2026-01.test:1"}, exports["rw"].sessions)

    def test_reservation_and_its_type_are_returned(self):
        store = self.store() / "pr"
        self.assertIsNone(self.lio.get_persistent_reservation(case.VOLUME))
        self.grant(WRITER)
        self.assertIsNone(self.lio.get_persistent_reservation(case.VOLUME))
        # As Linux 6.1 shows them.
        for holder, shown, kind in (
            (
                "SPC-3 Reservation: iSCSI Initiator: iqn.2026-01.Test:1,i,0x00023d000001",
                "SPC-3 Reservation Type: Write Exclusive Access, Registrants Only",
                "Write Exclusive Access, Registrants Only",
            ),
            (
                "SPC-2 Reservation: iSCSI Initiator: iqn.2026-01.test:1",
                "No SPC-3 Reservation holder",
                "SPC-2 Reservation",
            ),
        ):
            (store / "res_holder").write_text(f"{holder}\n")
            (store / "res_pr_type").write_text(f"{shown}\n")
            expected = abilities.PersistentReservation("iqn.2026-01.test:1", kind)
            self.assertEqual(expected, self.lio.get_persistent_reservation(case.VOLUME))

    def reservation_holder(self, endpoint):
        """Return the holder of a reservation that the kernel shows with a target, or without."""
        shown = self.store() / "pr"
        kind = "SPC-3" if endpoint else "SPC-2"
        initiator = WRITER.connector["initiator"]
        (shown / "res_holder").write_text(f"{kind} Reservation: iSCSI Initiator: {initiator}\n")
        port = f"SPC-3 Reservation: iSCSI Target Node Endpoint: {endpoint}\n" if endpoint else ""
        (shown / "res_pr_holder_tg_port").write_text(port or "No SPC-3 Reservation holder\n")
        return self.lio.get_persistent_reservation(case.VOLUME).holder

    def test_holder_with_own_target_is_named_as_in_the_listing(self):
        own = dataclasses.replace(case.export("1"), attachment_id="own", own_connection=True)
        (info,) = self.grant(own)
        (expected,) = self.lio.expected_exports(case.VOLUME, [own])[0].holders
        self.assertEqual(expected, self.reservation_holder(info["data"]["target_iqn"]))
        self.assertEqual(expected, self.reservation_holder(None))
        (shared,) = self.grant(WRITER)
        self.assertEqual(expected, self.reservation_holder(info["data"]["target_iqn"]))
        initiator = WRITER.connector["initiator"]
        self.assertEqual(initiator, self.reservation_holder(shared["data"]["target_iqn"]))
        self.assertEqual(initiator, self.reservation_holder(None))
