# SPDX-License-Identifier: Apache-2.0
"""The part of the drivers' contract on modes and shared connections; see test_drivers.py."""

import dataclasses
import json
import secrets
import uuid

import testscenarios

from attachd import exception
from attachd.agent.strays import AnyNames
from attachd.drivers import base
from attachd.tests.contract import backends
from attachd.tests.contract.driving import DriverCase

load_tests = testscenarios.load_tests_apply_scenarios


class ConnectionKeyTest(DriverCase):
    """Exports that share a connection."""

    def setUp(self):
        super().setUp()
        self.ref = base.VolumeRef(f"{uuid.uuid4()}", 1)

    def key(self, export):
        return self.driver.connection_key(self.ref, export)

    def test_connection_key_needs_no_backend_request(self):
        before = self.exported()
        export = self.export()
        key = self.key(export)
        self.assertIsInstance(key, str)
        copied = json.loads(json.dumps(dict(export.connector)))
        again = dataclasses.replace(export, connector=copied)
        ref = base.VolumeRef(self.ref.id, self.ref.size_gib, dict(self.ref.provider))
        self.assertEqual([key] * 2, [self.key(again), self.driver.connection_key(ref, again)])
        self.assertEqual(key, self.new_driver().connection_key(self.ref, export))
        self.assertEqual(before, self.exported())

    def test_connection_key_is_stable_over_grant_and_restart(self):
        volume, export = self.volume(), self.export()
        before = self.driver.connection_key(volume, export)
        self.granted(volume, export)
        self.assertEqual(before, self.driver.connection_key(volume, export))
        self.backend.restart(self.driver)
        self.assertEqual(before, self.driver.connection_key(volume, export))

    def test_connection_key_has_no_secret(self):
        export = self.export()
        key = self.key(export)
        self.assertNotIn(export.secret, key)
        other = dataclasses.replace(export, secret=secrets.token_hex(16))
        self.assertEqual(key, self.key(other))

    def test_connection_keys_of_different_hosts_differ(self):
        for mode in ("rw", "ro"):
            keys = [self.key(self.export(host, mode)) for host in ("a", "b")]
            self.assertTrue(keys[0] != keys[1] or keys == ["", ""], keys)

    def test_connection_keys_of_reader_and_writer_differ(self):
        self.require_promise("read_only_enforced")
        keys = [self.key(self.export("a", mode)) for mode in ("rw", "ro")]
        self.assertTrue(keys[0] != keys[1] or keys == ["", ""], keys)

    def test_connection_key_accepts_any_connector(self):
        for connector in ({}, {"host": None}, {"initiator": 7}, *self.backend.unusable_connectors):
            export = base.Export(f"{uuid.uuid4()}", connector, "rw", secrets.token_hex(16))
            self.assertIsInstance(self.key(export), str)

    def test_shared_targets_is_true_false_or_none(self):
        self.assertIn(self.driver.SHARED_TARGETS, (True, False, None))

    def test_agents_recognize_the_targets_of_kernel_devices(self):
        if not self.driver.KERNEL_DEVICES:
            self.skipTest(f"{self.driver.name} does not declare KERNEL_DEVICES")
        names, volume = AnyNames(), self.volume()
        for mode in ("rw", "ro"):
            data = self.granted(volume, self.export("a", mode))["data"]
            target = data.get("target_iqn") or data.get("target_nqn")
            self.assertEqual(volume.id, names.volume_id(target), target)

    def test_revoke_keeps_exports_that_share_the_connection(self):
        host, volume, secret = self.host(), self.volume(), secrets.token_hex(16)
        exports = [dataclasses.replace(self.export(), secret=secret) for _ in range(3)]
        infos = [self.granted(volume, export) for export in exports]
        shared = self.key(exports[0]) != ""
        for gone in (1, 0, 2):
            self.revoked(volume, exports[gone])
            # The host may have connected with any of these connection infos.
            for known in infos if shared else infos[2:]:
                if gone == 2:
                    self.assertRaises(backends.Refused, host.read, known, 0, 512)
                else:
                    host.write(known, 0, bytes([gone]) * 512)
                    self.assertEqual(bytes([gone]) * 512, host.read(known, 0, 512))
            if not shared:
                self.assertRaises(backends.Refused, host.read, infos[gone], 0, 512)


class ModesTest(DriverCase):
    """Access of a host, and its end."""

    def test_revoke_with_other_mode_ends_all_access(self):
        host, other = self.host("a"), self.host("b")
        for mode, named in (("rw", "ro"), ("ro", "rw")):
            volume = self.volume()
            beside = [self.export("b", mode), self.export("b", named)]
            spared = [self.granted(volume, item) for item in beside]
            export = self.export("a", mode)
            info = self.granted(volume, export)
            host.read(info, 0, 512)
            self.revoked(volume, dataclasses.replace(export, mode=named))
            self.assertRaises(backends.Refused, host.read, info, 0, 512)
            for item in spared:
                other.read(item, 0, 512)

    def test_revoke_after_interrupted_change_of_mode_leaves_nothing(self):
        self.require_promise("read_only_enforced")
        volume, export = self.volume(), self.export()
        self.granted(volume, export)
        changed = dataclasses.replace(export, mode="ro")
        self.granted(volume, changed)
        self.revoked(volume, changed)
        self.assertEqual([], self.exported())

    def test_read_only_is_refused_unless_promised(self):
        self.driver.check_access_mode("rw")
        if self.driver.promises.read_only_enforced:
            self.driver.check_access_mode("ro")
            return
        self.assertRaises(exception.InvalidInput, self.driver.check_access_mode, "ro")
        export = dataclasses.replace(self.export(), mode="ro")
        self.assert_refused(self.driver.grant, self.volume(), export, final=True)
        self.assertEqual([], self.exported())

    def test_revoke_of_reader_or_writer_keeps_the_other(self):
        self.require_promise("read_only_enforced")
        writing, reading, volume = self.host("a"), self.host("b"), self.volume()
        writer, reader = self.export("a"), self.export("b", "ro")
        infos = [self.granted(volume, item) for item in (writer, reader)]
        self.revoked(volume, reader)
        self.assertRaises(backends.Refused, reading.read, infos[1], 0, 512)
        writing.write(infos[0], 0, b"w" * 512)
        reader = self.export("b", "ro")
        info = self.granted(volume, reader)
        self.revoked(volume, writer)
        self.assertEqual(b"w" * 512, reading.read(info, 0, 512))
