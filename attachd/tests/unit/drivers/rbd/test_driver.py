# SPDX-License-Identifier: Apache-2.0
"""Users and clients of the driver rbd, on a fake cluster."""

import dataclasses
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import base
from attachd.drivers.rbd import driver, host_key, users
from attachd.drivers.rbd.cluster import Session
from attachd.drivers.rbd.image_clients import Watch
from attachd.tests.unit.drivers import configured

VOLUME = base.VolumeRef("5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a0001", 1)
IDS = [f"5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a1{number:03}" for number in range(3)]
ENTITIES = [f"client.attachd-{attachment_id}" for attachment_id in IDS]
EXPORTS = [base.Export(attachment_id, {}) for attachment_id in IDS]
STORED = {"id": "10ab", "header": {"order": "16"}}
IMAGE = users.Image("volumes", f"attachd-{VOLUME.id}", "10ab")


def _session(number):
    return Session(number, ENTITIES[number], (f"127.0.0.1:0/{number}",))


_OF_CLIENTS = {"frozen_host_cut_off", "session_listing"}
"""What is promised of clients that are not manipulated."""


class RbdDriverTest(unittest.TestCase):
    """Three hosts: the first one is to be revoked."""

    def setUp(self):
        super().setUp()
        self.driver = configured.driver(driver.RbdDriver, rbd_timeout=1)  # nothing waits
        self.cluster = mock.Mock(spec_set=self.driver._cluster, entity="client.attachd")
        (images,) = self.driver._pools
        self.images = mock.Mock(spec_set=images)
        self.images.pool = "volumes"
        self.driver._cluster = self.cluster
        self.driver._pools._images["volumes"] = self.images
        self.enterContext(mock.patch.object(driver.time, "sleep"))
        self.images.find.return_value = IMAGE
        self.cluster.users.return_value = {
            entity: dict(users.capabilities(IMAGE, "rw")) for entity in ENTITIES
        }
        self.cluster.sessions.return_value = []
        self.cluster.blocklisted.return_value = frozenset()
        self.images.watches.return_value = []
        self.images.lock_owner.return_value = None
        self.headers = mock.Mock(spec_set=self.driver._headers)
        self.headers.check.return_value = STORED
        self.driver._headers = self.headers
        self.images.clients = mock.Mock()

    def test_key_of_hosts_needs_secret_and_user_and_takes_promises(self):
        self.cluster.users.return_value = {}
        self.host_key()
        self.driver.setup()
        self.assertFalse(self.driver.promises.frozen_host_cut_off)
        self.assertFalse(self.driver.promises.session_listing)
        self.driver._host_key._options.rbd_libvirt_user = None
        with self.assertRaisesRegex(exception.BackendError, "need each other"):
            self.driver.setup()

    def test_nothing_is_promised_that_a_manipulated_client_can_break(self):
        for others, expected in (
            ({}, {"per_host_access"}),
            ({"client.cinder": {"osd": "profile rbd pool=volumes"}}, set()),
        ):
            self.cluster.users.return_value = others
            self.driver.setup()
            promises = dataclasses.asdict(self.driver.promises)
            kept = {name for name, is_kept in promises.items() if is_kept}
            self.assertEqual({*_OF_CLIENTS, "read_only_enforced"} | expected, kept)

    def test_close_disconnects(self):
        self.driver.close()
        self.cluster.close.assert_called_once_with()

    def blocked(self):
        return [call.args[0] for call in self.cluster.blocklist.call_args_list]

    def test_revoke_withdraws_ends_and_deletes_in_this_order(self):
        self.cluster.sessions.return_value = [_session(0), _session(1)]
        self.driver.revoke(VOLUME, EXPORTS[0], EXPORTS[1:])
        calls = [call[0] for call in self.cluster.mock_calls]
        self.assertEqual(["set_capabilities", "sessions", "blocklist", "delete_user"], calls)
        self.assertEqual(["127.0.0.1:0/0"], self.blocked())

    def test_revoke_waits_until_client_of_unknown_user_is_known(self):
        watches = [Watch(number, f"127.0.0.1:0/{number}") for number in (0, 1)]
        self.images.watches.side_effect = [watches, watches, watches[1:]]
        self.cluster.sessions.side_effect = [[_session(1)], [_session(0), _session(1)]] * 2
        self.driver.revoke(VOLUME, EXPORTS[0], EXPORTS[1:])
        self.assertEqual(["127.0.0.1:0/0"], self.blocked())

    def test_revoke_beside_client_that_stays_unknown_fails_and_keeps_user(self):
        self.images.watches.return_value = [Watch(9, "127.0.0.1:0/9")]
        with (
            mock.patch.object(driver.time, "monotonic", side_effect=[0, 1000]),
            self.assertRaisesRegex(exception.BackendError, r"127\.0\.0\.1:0/9") as caught,
        ):
            self.driver.revoke(VOLUME, EXPORTS[0], EXPORTS[1:])
        self.assertFalse(caught.exception.final)
        self.assertEqual([], self.blocked())
        self.cluster.delete_user.assert_not_called()

    def test_revoke_of_last_export_ends_client_of_unknown_user(self):
        self.images.watches.side_effect = [[Watch(9, "127.0.0.1:0/9")], []]
        self.driver.revoke(VOLUME, EXPORTS[0], [])
        self.assertEqual(["127.0.0.1:0/9"], self.blocked())

    def test_revoke_ends_lock_owner_that_is_known_to_nothing_else(self):
        self.images.lock_owner.return_value = Watch(9, "127.0.0.1:0/9")
        self.cluster.sessions.return_value = [_session(1)]
        self.images.watches.return_value = [Watch(1, "127.0.0.1:0/1")]
        self.driver.revoke(VOLUME, EXPORTS[0], EXPORTS[1:])
        self.assertEqual(["127.0.0.1:0/9"], self.blocked())

    def test_revoke_spares_lock_owner_that_is_connected_or_has_closed(self):
        owner = Watch(1, "127.0.0.1:0/1")
        for sessions, watches, owners in (
            ([_session(1)], [], [owner]),
            ([], [[owner], []], [owner]),
            ([], [[], []], [owner, None]),
        ):
            self.cluster.sessions.return_value = sessions
            self.images.watches.side_effect = watches or None
            self.images.lock_owner.side_effect = owners
            self.driver.revoke(VOLUME, EXPORTS[0], EXPORTS[1:])
            self.assertEqual([], self.blocked())

    def test_revoke_spares_client_of_another_user_that_lock_names(self):
        self.images.lock_owner.return_value = Watch(9, "127.0.0.1:0/1")
        self.cluster.sessions.return_value = [_session(1)]
        self.driver.revoke(VOLUME, EXPORTS[0], EXPORTS[1:])
        self.assertEqual([], self.blocked())

    def test_revoke_spares_client_of_foreign_user(self):
        self.images.watches.return_value = [Watch(9, "127.0.0.1:0/9")]
        self.cluster.sessions.return_value = [Session(9, "client.admin", ("127.0.0.1:0/9",))]
        self.driver.revoke(VOLUME, EXPORTS[0], [])
        self.assertEqual([], self.blocked())

    def test_grant_in_other_mode_keeps_key_and_ends_clients(self):
        self.cluster.create_user.side_effect = [None, "KEY"]
        self.cluster.monitors.return_value = [("192.0.2.1", "6789")]
        self.cluster.sessions.return_value = [_session(0), _session(1)]
        info = self.driver.grant(VOLUME, EXPORTS[0])
        self.assertEqual(["127.0.0.1:0/0"], self.blocked())
        self.assertIn("key = KEY\n", info["data"]["keyring"])
        self.cluster.delete_user.assert_not_called()

    def test_connection_has_what_is_stored_of_the_image(self):
        self.cluster.create_user.return_value = "KEY"
        self.cluster.monitors.return_value = [("192.0.2.1", "6789")]
        info = self.driver.grant(VOLUME, EXPORTS[0])
        self.assertEqual(STORED, info["data"]["image"])

    def test_header_is_checked_before_each_use_and_after_an_extension(self):
        self.cluster.create_user.return_value = "KEY"
        self.cluster.monitors.return_value = []
        copy = dataclasses.replace(VOLUME, id="5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a0009")
        self.images.find.return_value = None
        self.headers.check.side_effect = [exception.BackendError("changed", final=True)] * 3
        for call in (
            lambda: self.driver.grant(VOLUME, EXPORTS[0]),
            lambda: self.driver.extend(VOLUME, 2, []),
            lambda: self.driver.clone(copy, VOLUME),
        ):
            self.assertRaisesRegex(exception.BackendError, "changed", call)
        self.images.extend.assert_not_called()
        self.images.clone.assert_not_called()
        self.cluster.create_user.assert_not_called()
        self.headers.check.side_effect = [STORED, exception.BackendError("changed")]
        self.assertRaises(exception.BackendError, self.driver.extend, VOLUME, 2, [])
        self.images.extend.assert_called_once_with(IMAGE.name, 2)

    def test_key_is_in_keyring_alone(self):
        self.cluster.create_user.return_value = "KEY"
        self.cluster.monitors.return_value = [("192.0.2.1", "6789")]
        info = self.driver.grant(VOLUME, EXPORTS[0])
        self.assertNotIn("KEY", str({**info["data"], "keyring": ""}))

    def test_key_for_agent_is_no_part_of_connection(self):
        self.cluster.create_user.return_value = "KEY"
        self.cluster.monitors.return_value = [("192.0.2.1", "6789")]
        export = dataclasses.replace(EXPORTS[0], key_holder="agent")
        granted = self.driver.grant(VOLUME, export)
        self.assertEqual({"key": "KEY"}, granted.provider_secrets)
        self.assertNotIn("keyring", granted.answer["data"])
        self.assertNotIn("KEY", str(granted.answer))
        self.assertEqual(IDS[0], granted.answer["data"]["secret_uuid"])

    def host_key(self):
        options = mock.Mock(rbd_secret_uuid="s1", rbd_libvirt_user="nova")
        self.driver._host_key = host_key.HostKey(self.cluster, options)
        self.enterContext(mock.patch.object(host_key, "WATCH_TIMEOUT", 0.01))
        return [dataclasses.replace(export, key_holder="host") for export in EXPORTS]

    def test_grant_by_key_of_hosts_makes_no_user(self):
        self.cluster.monitors.return_value = [("192.0.2.1", "6789")]
        granted = self.driver.grant(VOLUME, self.host_key()[0])
        data = granted.answer["data"]
        self.assertEqual(("nova", "s1"), (data["auth_username"], data["secret_uuid"]))
        self.assertNotIn("keyring", data)
        self.assertEqual(STORED, data["image"])
        self.cluster.create_user.assert_not_called()

    def test_revoke_by_key_of_hosts_ends_its_clients_of_this_image_alone(self):
        export = self.host_key()[0]
        others = Session(8, "client.nova", ("127.0.0.1:0/8",))
        client = Session(9, "client.nova", ("127.0.0.1:0/9",))
        self.cluster.sessions.return_value = [others, client]
        self.images.watches.side_effect = [[Watch(9, "127.0.0.1:0/9")], []]
        self.driver.revoke(VOLUME, export, EXPORTS[1:])
        self.assertEqual(["127.0.0.1:0/9"], self.blocked())
        self.cluster.delete_user.assert_not_called()

    def test_revoke_by_key_of_hosts_knows_user_of_former_options(self):
        export = dataclasses.replace(self.host_key()[0], provider_secrets={"user": "former"})
        self.cluster.sessions.return_value = [Session(9, "client.former", ("127.0.0.1:0/9",))]
        self.images.watches.side_effect = [[Watch(9, "127.0.0.1:0/9")], []]
        self.driver.revoke(VOLUME, export, [])
        self.assertEqual(["127.0.0.1:0/9"], self.blocked())

    def test_revoke_beside_same_key_needs_that_its_client_is_gone(self):
        first, second, _third = self.host_key()
        clients = [Watch(8, "127.0.0.1:0/8"), Watch(9, "127.0.0.1:0/9")]
        self.cluster.sessions.return_value = [
            Session(it.client_id, "client.nova", (it.address,)) for it in clients
        ]
        self.images.watches.return_value = clients
        with self.assertRaisesRegex(exception.BackendError, "2 clients of client.nova"):
            self.driver.revoke(VOLUME, first, [second])
        self.images.watches.return_value = clients[:1]
        self.driver.revoke(VOLUME, first, [second])
        self.assertEqual([], self.blocked())

    def test_attachment_by_key_of_hosts_is_no_expected_export(self):
        exports = [self.host_key()[0], EXPORTS[1]]
        (expected,) = self.driver.expected_exports(VOLUME, exports)
        self.assertEqual({IDS[1]}, expected.holders)

    def test_evict_revokes_changed_and_other_users_and_spares_other_volumes(self):
        changed = self.cluster.users.return_value
        changed[ENTITIES[0]]["mon"] = "allow *"
        other = "client.attachd-5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a2000"
        sessions = [_session(0), _session(1), Session(5, other, ("127.0.0.1:0/5",))]
        self.cluster.sessions.return_value = sessions
        self.driver.revoke_all_except(VOLUME, EXPORTS[:2])
        deleted = [call.args[0] for call in self.cluster.delete_user.call_args_list]
        self.assertEqual([ENTITIES[0], ENTITIES[2]], deleted)
        self.assertEqual(["127.0.0.1:0/0"], self.blocked())

    def test_listing_shows_withdrawn_and_changed_users(self):
        caps = self.cluster.users.return_value
        caps[ENTITIES[0]] = users.no_capabilities("volumes", IMAGE.name)
        caps[ENTITIES[1]]["mon"] = "allow *"
        listed = {export.mode: export for export in self.driver.list_exports()}
        self.assertEqual({None, "rw"}, listed.keys())
        self.assertEqual((frozenset(), 1), (listed[None].holders, len(listed[None].parts)))
        self.assertEqual(frozenset(IDS[1:]), listed["rw"].holders)
        self.assertEqual(1, len(listed["rw"].parts))

    def test_listing_omits_blocklisted_client_of_deleted_user(self):
        del self.cluster.users.return_value[ENTITIES[0]]
        self.cluster.sessions.return_value = [_session(0)]
        self.cluster.blocklisted.return_value = frozenset({"127.0.0.1:0/0"})
        self.assertEqual({"rw"}, {export.mode for export in self.driver.list_exports()})
        self.images.watches.assert_not_called()

    def test_user_without_image_is_an_orphan(self):
        self.cluster.users.return_value[ENTITIES[0]] = {"mon": "allow r"}
        self.images.list_copies.return_value = []
        self.images.find_stray_data.return_value = []
        (orphan,) = self.driver.list_orphans()
        self.assertIn(ENTITIES[0], orphan.name)

    def test_quota_of_pool_limits_its_capacity(self):
        self.images.sizes.return_value = {}
        gib = 2**30
        stats = {"stored": gib, "max_avail": 10 * gib, "objects": 10}
        for quota, free in (
            ({}, 10),
            ({"quota_bytes": 3 * gib}, 2),
            ({"quota_bytes": 30 * gib}, 10),
            ({"quota_bytes": gib // 2}, 0),
            ({"quota_objects": 10 + 256}, 1),
        ):
            self.cluster.read.return_value = {
                "pools": [{"name": "volumes", "stats": {**stats, **quota}}]
            }
            found = self.driver.get_stats()
            self.assertEqual((free, free + 1), (found.free_gib, found.total_gib))

    def test_pool_without_statistics_has_no_free_space(self):
        self.cluster.read.return_value = {"pools": []}
        self.images.sizes.return_value = {VOLUME.id: 2**30}
        stats = self.driver.get_stats()
        self.assertEqual((0, 0, 1), (stats.total_gib, stats.free_gib, stats.allocated_gib))
