# SPDX-License-Identifier: Apache-2.0
"""Order of the requests of the tgt driver to tgtd, and its refusals."""

import dataclasses
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import base, iscsi
from attachd.drivers.tgt import client, parser
from attachd.drivers.tgt.driver import TgtDriver
from attachd.tests.fixtures import lifetime
from attachd.tests.unit.drivers import configured
from attachd.tests.wait import TIMEOUT

VOLUME = base.VolumeRef("8f5a1d0a-94a4-4a57-9df9-6e2d6f4f7f11", 1)
SECRET = "0123456789abcdef0123456789abcdef"
SENTINEL = "attachd-sentinel.backend.aaaa"
NAME = f"iqn.2026-01.internal.attachd:volume-{VOLUME.id}"
PATH = "/volumes/file"
UNIT = parser.Lun("8f5a1d0a94a44a579df96e2d6f4f7f11", PATH, 1074, online=True, read_only=False)


def export(number, host="a", mode="rw", **changes):
    connector = {"initiator": f"iqn.2026-01.test:{host}"}
    return dataclasses.replace(
        base.Export(f"attachment-{number}", connector, mode, SECRET), **changes
    )


def target(*accounts, hosts=("a",), unit=UNIT, ready=True):
    initiators = tuple(f"iqn.2026-01.test:{host}" for host in hosts)
    return parser.Target(7, NAME, ready, {1: unit}, (SENTINEL, *accounts), initiators)


def targets(*accounts, **changes):
    return [target(*accounts, **changes)]


def user(host="a", mode="rw"):
    """Return the account of a host."""
    name = NAME if mode == "rw" else f"{NAME}-ro"
    return iscsi.account(name, f"iqn.2026-01.test:{host}")


class TgtDriverCase(unittest.TestCase):
    def setUp(self):
        super().setUp()
        folder = lifetime.temp_dir(self)
        self.driver = configured.driver(
            TgtDriver, tgt_volumes_dir=str(folder), tgt_timeout=TIMEOUT
        )
        self.driver.create(VOLUME)
        self.tgtd = mock.create_autospec(client.Tgtd, instance=True)
        self.tgtd.targets = self.tgtd.named
        self.tgtd.accounts.return_value = [SENTINEL]
        self.tgtd.connections.return_value = []
        self.tgtd.timeout = TIMEOUT
        self.driver._tgtd = self.tgtd
        self.driver._target_manager = dataclasses.replace(
            self.driver._target_manager, tgtd=self.tgtd
        )

    def asked(self, *methods):
        """Return the calls of some methods of tgtd, in order, as (method, last argument)."""
        return [
            (mock_call[0], mock_call.args[-1])
            for mock_call in self.tgtd.mock_calls
            if mock_call[0] in methods
        ]


class GrantTest(TgtDriverCase):
    def setUp(self):
        super().setUp()
        self.tgtd.named.return_value = []
        self.tgtd.new_target.return_value = 7

    def test_grant_allows_initiator_last(self):
        self.driver.grant(VOLUME, export(1))
        self.assertEqual(
            ["named", "new_target", "new_unit", "set_unit", "accounts",
             "bind_account", "new_account", "bind_account", "allow"],
            [call[0] for call in self.tgtd.mock_calls],
        )  # fmt: skip
        self.assertEqual(
            [("bind_account", SENTINEL), ("bind_account", user())], self.asked("bind_account")
        )

    def test_grant_returns_connection_info_for_os_brick(self):
        info = self.driver.grant(VOLUME, export(1))
        self.assertEqual("iscsi", info["driver_volume_type"])
        self.assertEqual(
            {
                "target_discovered": False,
                "target_portal": "127.0.0.1:3260",
                "target_iqn": NAME,
                "target_lun": 1,
                "volume_id": VOLUME.id,
                "auth_method": "CHAP",
                "auth_username": user(),
                "auth_password": SECRET,
                "access_mode": "rw",
                "discard": False,
            },
            info["data"],
        )

    def test_grant_with_several_portals_returns_all(self):
        self.driver = configured.driver(
            TgtDriver,
            tgt_volumes_dir=self.driver.options.tgt_volumes_dir,
            tgt_portal="192.0.2.1:3260",
            tgt_more_portals=["198.51.100.1:3260", "[2001:db8::1]:3260"],
        )
        self.driver._tgtd = self.tgtd
        self.driver._target_manager = dataclasses.replace(
            self.driver._target_manager, tgtd=self.tgtd
        )
        data = self.driver.grant(VOLUME, export(1, mode="ro"))["data"]
        self.assertEqual("192.0.2.1:3260", data["target_portal"])
        self.assertEqual(
            ["192.0.2.1:3260", "198.51.100.1:3260", "[2001:db8::1]:3260"], data["target_portals"]
        )
        self.assertEqual([f"{NAME}-ro"] * 3, data["target_iqns"])
        self.assertEqual([1] * 3, data["target_luns"])

    def test_grant_read_only_uses_own_target(self):
        info = self.driver.grant(VOLUME, export(1, mode="ro"))
        self.assertEqual(f"{NAME}-ro", info["data"]["target_iqn"])
        self.tgtd.set_unit.assert_called_once_with(
            7, scsi_id=UNIT.scsi_id, scsi_sn=VOLUME.id, readonly="1", thin_provisioning="0"
        )

    def test_grant_again_changes_no_unit(self):
        unit = dataclasses.replace(UNIT, path=f"{self.driver._volumes.path(VOLUME.id)}")
        self.tgtd.named.return_value = targets(user(), unit=unit)
        self.driver.grant(VOLUME, export(1))
        for method in (self.tgtd.new_target, self.tgtd.new_unit, self.tgtd.set_unit):
            method.assert_not_called()

    def test_grant_replaces_unbound_account(self):
        self.tgtd.accounts.return_value = [SENTINEL, user()]
        self.driver.grant(VOLUME, export(1))
        self.assertEqual(
            [("delete_account", user()), ("new_account", SECRET)],
            self.asked("delete_account", "new_account"),
        )

    def test_grant_keeps_bound_account(self):
        self.tgtd.accounts.return_value = [SENTINEL, user()]
        self.tgtd.named.return_value = targets(user())
        self.driver.grant(VOLUME, export(1))
        self.tgtd.delete_account.assert_not_called()

    def test_grant_completes_interrupted_grant(self):
        self.tgtd.named.return_value = [dataclasses.replace(target(), luns={})]
        self.driver.grant(VOLUME, export(1))
        self.tgtd.new_unit.assert_called_once()
        self.tgtd.set_unit.assert_called_once()

    def test_grant_after_interrupted_extend_opens_target(self):
        broken = (target(ready=False), target(unit=dataclasses.replace(UNIT, online=False)))
        for item in broken:
            self.tgtd.reset_mock()
            self.tgtd.named.return_value = [item]
            self.driver.grant(VOLUME, export(1))
            self.tgtd.open_target.assert_called_once_with(7)
            self.tgtd.set_unit.assert_called_with(7, online="1")

    def test_grant_without_initiator_or_secret_raises_final_error(self):
        for bad in (export(1, connector={}), export(1, secret=""), export(1, secret="short")):
            with self.subTest(bad), self.assertRaises(exception.BackendError) as caught:
                self.driver.grant(VOLUME, bad)
            self.assertTrue(caught.exception.final)
        self.assertEqual([], self.tgtd.mock_calls)

    def test_grant_creates_missing_sentinel(self):
        made = []
        self.tgtd.new_account.side_effect = lambda user, secret: made.append(user)
        self.tgtd.accounts.side_effect = lambda: list(made)
        self.driver.grant(VOLUME, export(1))
        self.assertRegex(made[0], r"attachd-sentinel\.backend\.[0-9a-f]{32}")
        self.assertEqual(made[0], self.asked("bind_account")[0][1])

    def test_boot_id_of_two_sentinels_is_first(self):
        self.tgtd.accounts.return_value = ["attachd-sentinel.backend.bb", "x", SENTINEL]
        self.assertEqual("aaaa", self.driver.boot_id())


class RevokeTest(TgtDriverCase):
    def test_revoke_of_last_export_deletes_target_and_accounts(self):
        self.tgtd.named.return_value = targets(user(), hosts=("a", "stray"))
        self.driver.revoke(VOLUME, export(1), [])
        self.assertEqual(2, self.tgtd.forbid.call_count)
        self.assertEqual(
            [("delete_target", 7), *(("delete_account", user(mode=m)) for m in ("rw", "ro"))],
            self.asked("delete_target", "delete_account"),
        )

    def test_revoke_with_export_of_other_mode_deletes_target(self):
        self.tgtd.named.return_value = targets(user())
        self.driver.revoke(VOLUME, export(1), [export(2, mode="ro")])
        self.tgtd.delete_target.assert_called_once_with(7)

    def test_revoke_also_revokes_other_mode(self):
        writers = target(user("b"), user("a"), hosts=("a", "b"))
        readers = dataclasses.replace(target(user(mode="ro")), tid=8, name=f"{NAME}-ro")
        self.tgtd.named.return_value = [writers, readers]
        self.driver.revoke(VOLUME, export(1, mode="ro"), [export(2, host="b")])
        self.tgtd.unbind_account.assert_called_once_with(7, user("a"), ())
        self.tgtd.delete_target.assert_called_once_with(8)
        self.assertEqual(
            [mock.call(7, "iqn.2026-01.test:a"), mock.call(8, "iqn.2026-01.test:a")],
            self.tgtd.forbid.call_args_list,
        )
        self.assertEqual("delete_account", self.tgtd.mock_calls[-1][0])

    def test_revoke_keeps_target_of_other_mode_without_account(self):
        readers = dataclasses.replace(target(user("c", "ro")), tid=8, name=f"{NAME}-ro")
        self.tgtd.named.return_value = [*targets(user()), readers]
        self.driver.revoke(VOLUME, export(1), [])
        self.tgtd.delete_target.assert_called_once_with(7)
        self.assertEqual(
            {7}, {mock_call.args[0] for mock_call in self.tgtd.connections.mock_calls}
        )

    def test_revoke_unbinds_account_with_later_ones(self):
        self.tgtd.named.return_value = targets(*(user(host) for host in "badc"))
        others = [export(n, host=host) for n, host in enumerate("bcd", 2)]
        self.driver.revoke(VOLUME, export(1), others)
        behind = (user("d"), user("c"))
        self.tgtd.unbind_account.assert_called_once_with(7, user("a"), behind)
        self.assertIn(("delete_account", user("a")), self.asked("delete_account"))
        self.tgtd.bind_account.assert_not_called()

    def test_revoke_binds_account_that_interrupted_revoke_unbound(self):
        self.tgtd.named.return_value = targets()
        self.driver.revoke(VOLUME, export(1), [export(2, host="b")])
        self.assertEqual([("bind_account", user("b"))], self.asked("bind_account"))

    def test_revoke_keeps_initiator_of_other_attachment(self):
        self.tgtd.named.return_value = targets(user())
        self.driver.revoke(VOLUME, export(1), [export(2)])
        for method in (self.tgtd.forbid, self.tgtd.close, self.tgtd.unbind_account):
            method.assert_not_called()
        self.assertEqual([("delete_account", user(mode="ro"))], self.asked("delete_account"))

    def test_revoke_ends_only_sessions_of_initiator(self):
        going = parser.Connection(3, 0, "iqn.2026-01.test:a")
        staying = parser.Connection(4, 0, "iqn.2026-01.test:b")
        self.tgtd.named.return_value = targets(user("a"), user("b"), hosts=("a", "b"))
        self.tgtd.connections.side_effect = [[going, staying], [staying]]
        self.driver.revoke(VOLUME, export(1), [export(2, host="b")])
        self.tgtd.close.assert_called_once_with(7, going)

    def test_revoke_with_session_that_does_not_end_raises_not_final_error(self):
        self.tgtd.named.return_value = targets(user())
        self.tgtd.timeout = 0.1  # the session never ends, slow or not
        self.tgtd.connections.return_value = [parser.Connection(3, 0, "iqn.2026-01.test:a")]
        with self.assertRaisesRegex(exception.BackendError, "does not end") as caught:
            self.driver.revoke(VOLUME, export(1), [])
        self.assertFalse(caught.exception.final)
        self.tgtd.delete_target.assert_not_called()

    def test_revoke_without_target_deletes_accounts(self):
        self.tgtd.named.return_value = []
        self.driver.revoke(VOLUME, export(1), [])
        gone = [("delete_account", user(mode=mode)) for mode in ("rw", "ro")]
        self.assertEqual(gone, self.asked("delete_account"))


class ExtendTest(TgtDriverCase):
    def test_extend_ends_sessions_before_reopening_file(self):
        self.tgtd.named.return_value = targets(user())
        session = parser.Connection(3, 0, "iqn.2026-01.test:a")
        self.tgtd.connections.side_effect = [[session], []]
        self.driver.extend(VOLUME, 2, [export(1)])
        self.assertEqual(
            ["named", "close_target", "connections", "close", "connections",
             "set_unit", "set_unit", "set_unit", "open_target"],
            [call[0] for call in self.tgtd.mock_calls],
        )  # fmt: skip

    def test_extend_that_fails_opens_target(self):
        self.tgtd.named.return_value = targets(user())
        self.tgtd.set_unit.side_effect = exception.BackendError("no")
        with self.assertRaises(exception.BackendError):
            self.driver.extend(VOLUME, 2, [export(1)])
        self.tgtd.open_target.assert_called_once_with(7)

    def test_extend_to_same_size_keeps_target_open(self):
        self.tgtd.named.return_value = targets(user())
        self.driver.extend(VOLUME, 1, [export(1)])
        self.tgtd.close_target.assert_not_called()


class SetupTest(TgtDriverCase):
    def test_setup_with_invalid_iqn_prefix_raises(self):
        for bad in ("", "volume-", "iqn.26-1.x:", "iqn.2026-01.x:A_b", "iqn.2026-01.x"):
            driver = configured.driver(TgtDriver, tgt_iqn_prefix=bad)
            with self.subTest(bad), self.assertRaisesRegex(exception.BackendError, "tgt_iqn"):
                driver.setup()

    def test_setup_with_comma_in_folder_raises(self):
        driver = configured.driver(TgtDriver, tgt_volumes_dir="/tmp/a,b")
        with self.assertRaisesRegex(exception.BackendError, "comma"):
            driver.setup()

    def test_setup_with_incompatible_tgtd_raises(self):
        self.tgtd.accounts.return_value = []
        with self.assertRaisesRegex(exception.BackendError, "dialect"):
            self.driver.setup()


class NamesTest(TgtDriverCase):
    def test_list_exports_skips_foreign_targets(self):
        foreign = dataclasses.replace(target(), accounts=("attachd-sentinel.backend2.aaaa",))
        reader = dataclasses.replace(target(hosts=("c",)), name=f"{NAME}-ro")
        self.tgtd.targets.return_value = [target(hosts=("a", "b")), reader, foreign]
        found = [(item.volume_id, item.mode) for item in self.driver.list_exports()]
        self.assertEqual([(VOLUME.id, "rw"), (VOLUME.id, "ro")], found)

    def test_delete_exported_volume_raises_final_error(self):
        self.tgtd.named.return_value = [dataclasses.replace(target(), name=f"{NAME}-ro")]
        with self.assertRaisesRegex(exception.BackendError, "-ro") as caught:
            self.driver.delete(VOLUME)
        self.assertTrue(caught.exception.final)

    def test_connection_key_is_shared_by_host_and_mode(self):
        first, same = export(1), export(2, secret="f" * 32)
        others = [export(3, mode="ro"), export(4, host="b")]
        key = self.driver.connection_key(VOLUME, first)
        self.assertEqual(key, self.driver.connection_key(VOLUME, same))
        keys = {self.driver.connection_key(VOLUME, item) for item in (first, *others)}
        self.assertEqual(3, len(keys))
        self.assertNotEqual(key, self.driver.connection_key(base.VolumeRef("another", 1), first))
        self.assertEqual([], self.tgtd.mock_calls)

    def test_scsi_id_is_unique_for_any_id(self):
        ids = {iscsi.scsi_id(item) for item in ("a", "b", VOLUME.id)}
        self.assertEqual(3, len(ids))
        self.assertEqual({32}, {len(id_) for id_ in ids})
