# SPDX-License-Identifier: Apache-2.0
"""The configured backends: loading, setup and locks."""

import dataclasses
from pathlib import Path
import subprocess
import sys
import threading
from typing import ClassVar
import unittest
from unittest import mock

from attachd import exception
from attachd.conf import CONF
from attachd.db import audit
from attachd.db.secrets import encryption
from attachd.db.types import qos_specs, type_store
from attachd.drivers import fake, file
from attachd.drivers.base import VolumeRef, WithSecrets
from attachd.lost_agents import Action, Rule
from attachd.manager import attach, backends, detach, volumes
from attachd.manager.audit import runner
from attachd.manager.periodic_tasks import ensure_exports
from attachd.objects import Attachment, Volume
from attachd.states import AttachmentState
from attachd.tests.fixtures import backends as made
from attachd.tests.fixtures import databases, db_rows, key_files, lifetime
from attachd.tests.fixtures.conf_fixture import override
from attachd.tests.fixtures.db_rows import CONNECTOR
from attachd.tests.wait import TIMEOUT


class LoadTest(unittest.TestCase):
    """From enabled_backends to drivers."""

    def setUp(self):
        super().setUp()
        folder = lifetime.temp_dir(self)
        override(self, "state_path", str(folder))
        override(self, "host", "here")

    def _enable(self, **drivers):
        override(self, "enabled_backends", list(drivers))
        for name, driver in drivers.items():
            CONF.register_opt(backends.conf.manager.DRIVER, group=name)
            override(self, "driver", driver, group=name)

    def test_load_makes_driver_per_backend_name(self):
        self._enable(slow="fake", quick="fake", disk="file")
        found = backends.load()
        self.assertEqual(
            [("slow", "here@slow"), ("quick", "here@quick"), ("disk", "here@disk")],
            [(item.name, item.host) for item in found],
        )
        kinds = [fake.FakeDriver, fake.FakeDriver, file.FileDriver]
        self.assertEqual(kinds, [type(item.driver) for item in found])
        self.assertEqual(["slow", "quick", "disk"], [item.driver.name for item in found])

    def test_load_reads_options_per_backend(self):
        self._enable(slow="fake", quick="fake")
        slow, quick = backends.load()
        override(self, "fake_delay", 0.5, group="slow")
        delays = (slow.driver.options.fake_delay, quick.driver.options.fake_delay)
        self.assertEqual((0.5, 0.0), delays)

    def test_load_reads_what_is_done_about_lost_agents_per_backend(self):
        self._enable(slow="fake", quick="fake")
        backends.load()
        override(self, "on_lost_agent", "fence", group="slow")
        override(self, "lost_agent_timeout", 30, group="slow")
        self.assertEqual(
            [Rule(Action.FENCE, 30), Rule(Action.NOTHING, 60)],
            [item.lost_agent_rule for item in backends.load()],
        )

    def test_load_reads_length_of_secrets_per_backend(self):
        self._enable(slow="fake", quick="fake")
        backends.load()
        override(self, "chap_secret_length", 16, group="slow")
        self.assertEqual([16, 32], [item.secret_length for item in backends.load()])

    def test_load_backend_without_driver_names_backend(self):
        self._enable(nameless=None)
        with self.assertRaisesRegex(exception.ConfigurationError, r"nameless.*driver"):
            backends.load()

    def test_load_unknown_driver_names_driver(self):
        self._enable(shelf="flying")
        with self.assertRaisesRegex(exception.ConfigurationError, r"shelf.*flying"):
            backends.load()

    def test_load_creates_private_locks_directory(self):
        backends.load()
        mode = (Path(CONF.state_path) / "locks").stat().st_mode
        self.assertEqual(0o700, mode & 0o777)


class ReadyTest(unittest.TestCase):
    """Readiness of a backend."""

    def setUp(self):
        super().setUp()
        self.backend = made.FakeBackend(made.NAME, made.RecordingDriver())

    def test_check_ready_before_setup_raises(self):
        with self.assertRaisesRegex(exception.Unavailable, "set up"):
            self.backend.check_ready()

    def test_check_ready_after_setup_passes(self):
        self.assertIs(True, self.backend.setup())
        self.backend.check_ready()

    def test_setup_failure_stores_reason_and_can_be_repeated(self):
        broken = exception.BackendError("tgtd is not running")
        with mock.patch.object(self.backend.driver, "setup", side_effect=broken):
            self.assertIs(False, self.backend.setup())
            with self.assertRaisesRegex(exception.Unavailable, r"fake.*tgtd is not running"):
                self.backend.check_ready()
        self.assertIs(True, self.backend.setup())

    def test_take_down_logs_same_reason_once(self):
        broken = exception.BackendError("tgtd is not running")
        logs = self.assertLogs("attachd.manager.backends", "ERROR")
        with mock.patch.object(self.backend.driver, "setup", side_effect=broken), logs as logged:
            self.backend.setup()
            self.backend.setup()
        self.assertEqual(1, len(logged.records))


_HOLDER = """
import sys
from attachd.conf import CONF
from attachd.lost_agents import Action, Rule
from attachd.manager import backends
CONF.set_override("state_path", sys.argv[1])
CONF.set_override("connection", sys.argv[2], group="database")
with backends.Backend("fake", None).lock(sys.argv[3]):
    print("held", flush=True)
    sys.stdin.read()
"""


class LockTest(unittest.TestCase):
    """One worker at a time on one volume."""

    def setUp(self):
        super().setUp()
        self.backend = made.use(self)
        self.other = made.FakeBackend(made.NAME, self.backend.driver, self.backend.membership)
        self.got = threading.Event()
        self.one, self.two = (db_rows.add_volume()["id"] for _ in range(2))

    def _lock_elsewhere(self, volume_id):
        def hold():
            with self.other.lock(volume_id):
                self.got.set()

        thread = threading.Thread(target=hold, daemon=True)
        thread.start()
        self.addCleanup(thread.join, TIMEOUT)

    def test_lock_in_second_thread_waits(self):
        with self.backend.lock(self.one):
            self._lock_elsewhere(self.one)
            self.assertFalse(self.got.wait(0.05))  # a slow one has not got it either
        self.assertTrue(self.got.wait(TIMEOUT))

    def test_lock_of_different_volumes_does_not_wait(self):
        with self.backend.lock(self.one):
            self._lock_elsewhere(self.two)
            self.assertTrue(self.got.wait(TIMEOUT))

    def test_lock_in_second_process_waits(self):
        where = (CONF.state_path, CONF.database.connection, self.one)
        holder = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _HOLDER, *where],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with holder:
            self.assertEqual("held\n", holder.stdout.readline())
            self._lock_elsewhere(self.one)
            self.assertFalse(self.got.wait(0.1))  # a slow one has not got it either
        self.assertTrue(self.got.wait(TIMEOUT))

    def test_delete_lock_files_twice_leaves_no_file(self):
        with self.backend.lock(self.one):
            self.assertTrue(list(Path(CONF.state_path).rglob(f"*{self.one}*")))
        self.backend.delete_lock_files(self.one)
        self.backend.delete_lock_files(self.one)
        self.assertEqual([], list(Path(CONF.state_path).rglob(f"*{self.one}*")))

    def test_lock_acquires_lease_and_releases_it(self):
        ours = self.backend.membership.id
        with self.backend.lock(self.one) as volume_lease:
            row = db_rows.get_volume(self.one)
            self.assertEqual((ours, 1), (row["lease_holder"], row["lease_generation"]))
            self.assertEqual((ours, 1), (volume_lease.token.holder, volume_lease.token.generation))
        row = db_rows.get_volume(self.one)
        self.assertEqual((None, 1), (row["lease_holder"], row["lease_generation"]))

    def test_volume_lease_alone_takes_no_lease(self):
        with self.backend.volume_lease(self.one):
            self.assertFalse(self.backend.is_idle(self.one))
            self.assertIsNone(db_rows.get_volume(self.one)["lease_holder"])
        self.assertTrue(self.backend.is_idle(self.one))

    def test_lock_missing_volume_raises_not_found(self):
        with self.assertRaises(exception.VolumeNotFound), self.backend.lock("gone"):
            self.fail("nothing is to be done here")


class LiveExportsTest(unittest.TestCase):
    """Exports that a call for another one must not disturb."""

    def test_live_exports_lists_only_attachments_with_access(self):
        held = [
            {"id": state.value, "state": state.value, "connector": CONNECTOR, "mode": None,
             "secret": None, "provider_secrets": None, "own_connection": None}
            for state in AttachmentState
        ]  # fmt: skip
        found = [export.attachment_id for export in backends.live_exports(held)]
        self.assertEqual(["connecting", "connected", "attached", "withdrawing"], found)

    def test_live_exports_skips_rows_without_connector(self):
        self.assertEqual([], backends.live_exports([{"state": "attached", "connector": None}]))


class SecretTest(databases.DatabaseCase):
    """Exports and connections with secrets."""

    def setUp(self):
        super().setUp()
        self.file = key_files.use(self)
        self.row = db_rows.get_attachment(
            db_rows.add_attachment(db_rows.add_volume()["id"], "attached")["id"]
        )

    def test_export_has_secret_only_for_grant(self):
        self.assertEqual("5" * 32, backends.export_with_secret(self.row).secret)
        self.assertEqual("", backends.export(self.row).secret)
        self.assertEqual([""], [export.secret for export in backends.live_exports([self.row])])

    def test_export_with_secret_of_row_without_secret_is_empty(self):
        self.assertEqual("", backends.export_with_secret({**self.row, "secret": None}).secret)

    def test_connection_info_is_decrypted(self):
        self.assertIsNone(backends.connection_info(self.row))
        info = {"driver_volume_type": "iscsi", "data": {"auth_password": "p"}}
        db_rows.change_attachment(self.row["id"], connection_info=info)
        self.assertEqual(info, backends.connection_info(db_rows.get_attachment(self.row["id"])))

    def test_export_with_lost_key_works_without_secret(self):
        key_files.replace_all_keys(self.file)
        with self.assertRaises(exception.SecretUnreadable):
            backends.export_with_secret(self.row)
        self.assertEqual(self.row["id"], backends.export(self.row).attachment_id)


class _Secretive(made.RecordingDriver):
    """Keeps a secret of each volume and of each export, and writes down what it gets back."""

    def __init__(self):
        super().__init__()
        self.got = []

    def create(self, volume):
        self.got.append(("create", dict(volume.provider_secrets)))
        return WithSecrets(super().create(volume), {"key": "volume-secret"})

    def delete(self, volume):
        self.got.append(("delete", dict(volume.provider_secrets)))
        super().delete(volume)

    def grant(self, volume, export):
        self.got.append(
            ("grant", {**volume.provider_secrets}, {**export.provider_secrets}),
        )
        return WithSecrets(super().grant(volume, export), {"key": "export-secret"})

    def revoke(self, volume, export, others):
        secrets = [{**item.provider_secrets} for item in (export, *others)]
        self.got.append(("revoke", {**volume.provider_secrets}, *secrets))
        super().revoke(volume, export, others)

    def expected_exports(self, volume, exports):
        secrets = [{**item.provider_secrets} for item in exports]
        self.got.append(("expected_exports", {**volume.provider_secrets}, *secrets))
        return super().expected_exports(volume, exports)


class ProviderSecretsTest(made.BackendCase):
    """Secrets that a driver returns beside its answers."""

    of_volume: ClassVar = {"key": "volume-secret"}
    of_export: ClassVar = {"key": "export-secret"}

    def setUp(self):
        super().setUp()
        self.file = key_files.use(self)
        self.driver = self.backend.driver = _Secretive()
        self.volume_id = db_rows.add_volume("creating", owner=made.HOST, multiattach=True)["id"]
        volumes.create(self.backend, self.volume_id)

    def attach(self, connector=CONNECTOR):
        row = db_rows.add_attachment(self.volume_id)
        return row, attach.attach(self.backend, row["id"], self.volume_id, connector)

    def test_driver_gets_its_secrets_with_each_later_call(self):
        row, _answer = self.attach()
        ensure_exports.grant_again(self.backend, row)
        second, _answer = self.attach(db_rows.OTHER_CONNECTOR)
        runner.compare_exports(self.backend, self.volume_id)
        detach.detach(self.backend, second["id"], self.volume_id)
        detach.detach(self.backend, row["id"], self.volume_id)
        db_rows.change_volume(self.volume_id, state="deleting", owner=made.HOST)
        volumes.delete(self.backend, self.volume_id)
        both = [self.of_volume, self.of_export]
        expected = [
            ("create", {}),
            ("grant", self.of_volume, {}),
            ("grant", *both),
            ("grant", self.of_volume, {}),
            ("revoke", *both, self.of_export),
            ("revoke", *both),
            ("delete", self.of_volume),
        ]
        listed = [call for call in self.driver.got if call[0] == "expected_exports"]
        self.assertEqual(expected, [call for call in self.driver.got if call not in listed])
        self.assertIn(("expected_exports", *both, self.of_export), listed)

    def test_secrets_are_stored_encrypted_and_shown_nowhere(self):
        row, answer = self.attach()
        stored = db_rows.get_volume(self.volume_id), db_rows.get_attachment(row["id"])
        for item in stored:
            self.assertIsInstance(item["provider_secrets"], encryption.Encrypted)
        exports = backends.live_exports([stored[1]])
        volume = backends.volume_ref(audit.find_volume(self.volume_id))
        shown = f"{stored} {answer} {exports} {volume} {Volume.from_row(None, stored[0])}"
        shown += f"{Attachment.from_row(None, stored[1])} {exports[0].provider_secrets!r}"
        self.assertNotIn("-secret", shown)
        self.assertEqual(self.of_export, exports[0].provider_secrets)

    def test_answer_with_secrets_has_no_repr_of_them(self):
        self.assertEqual("WithSecrets()", repr(WithSecrets({"a": "b"}, {"c": "d"})))

    def test_revoke_without_readable_secrets_fails_only_if_driver_reads_them(self):
        row, _answer = self.attach()
        key_files.replace_all_keys(self.file)
        with self.assertRaisesRegex(exception.DisconnectFailed, "encrypted with key"):
            detach.detach(self.backend, row["id"], self.volume_id)
        self.assertEqual({row["id"]}, self.driver.granted())
        with mock.patch.object(_Secretive, "revoke", made.RecordingDriver.revoke):
            detach.detach(self.backend, row["id"], self.volume_id)
        self.assertEqual(set(), self.driver.granted())

    def test_delete_without_readable_secrets_fails_with_reason(self):
        key_files.replace_all_keys(self.file)
        db_rows.change_volume(self.volume_id, state="deleting", owner=made.HOST)
        volumes.delete(self.backend, self.volume_id)
        self.assertIn("of this volume", db_rows.get_volume(self.volume_id)["error"])


class VolumeRefTest(made.BackendCase):
    """Every call of a driver describes the volume in the same way."""

    def setUp(self):
        super().setUp()
        qos = qos_specs.create("gold", "back-end", {"total_iops_sec_per_gb": "10"})
        self.qos, specs = qos["id"], {"compression": "on"}
        values = {"name": "fast", "qos_specs_id": self.qos, "extra_specs": specs}
        self.values = {"name": "disk", "size_gib": 2, "multiattach": True}
        self.values |= {
            "volume_type_id": type_store.create(values)["id"],
            "host": f"{made.HOST}#ssd",
        }
        self.expected = VolumeRef(
            "",
            2,
            {"lun": 1},
            name="disk",
            project_id=db_rows.PROJECT,
            pool="ssd",
            multiattach=True,
            extra_specs=specs,
            qos_specs={"total_iops_sec": 20},
        )

    def passed(self):
        refs = [dataclasses.replace(call.volume, id="") for call in self.driver.driver_calls]
        self.driver.driver_calls.clear()
        return refs

    def test_driver_gets_name_project_pool_and_type_of_volume_in_each_call(self):
        owner = {"owner": made.HOST}
        volume_id = db_rows.add_volume("creating", **self.values, **owner)["id"]
        volumes.create(self.backend, volume_id)
        self.assertEqual([dataclasses.replace(self.expected, provider={})], self.passed())
        db_rows.change_volume(volume_id, state="extending", new_size_gib=3, **owner)
        volumes.extend(self.backend, volume_id)
        db_rows.change_volume(volume_id, size_gib=2)
        row = db_rows.add_attachment(volume_id)
        attach.attach(self.backend, row["id"], volume_id, CONNECTOR)
        ensure_exports.grant_again(self.backend, row)
        detach.detach(self.backend, row["id"], volume_id)
        found = audit.find_volume(volume_id)
        db_rows.change_volume(volume_id, state="deleting", **owner)
        volumes.delete(self.backend, volume_id)
        self.assertEqual([self.expected] * 5, self.passed())
        self.assertEqual(volume_id, backends.volume_ref(found).id)

    def test_volume_without_type_has_empty_specs(self):
        ref = backends.volume_ref(audit.find_volume(db_rows.add_volume()["id"]))
        self.assertEqual(({}, {}, ""), (ref.extra_specs, ref.qos_specs, ref.name))

    def test_front_end_specs_are_not_for_driver(self):
        for consumer, expected in (("front-end", {}), ("both", {"total_iops_sec": 20})):
            qos_specs.update(self.qos, consumer, {})
            row = audit.find_volume(db_rows.add_volume(**self.values)["id"])
            self.assertEqual(expected, backends.volume_ref(row).qos_specs)


class QosTest(unittest.TestCase):
    """QoS specs of connections."""

    def setUp(self):
        super().setUp()
        self.backend = made.use(self)
        qos = qos_specs.create("gold", "front-end", {"total_iops_sec_per_gb": "10", "own": "x"})
        self.qos = qos["id"]
        self.kind = type_store.create({"name": "fast", "qos_specs_id": self.qos})["id"]

    def qos_specs(self):
        volume = db_rows.add_volume(volume_type_id=self.kind, size_gib=20)["id"]
        attachment = db_rows.add_attachment(volume)["id"]
        answer = attach.attach(self.backend, attachment, volume, CONNECTOR)
        stored = db_rows.get_attachment(attachment)["connection_info"]
        self.assertEqual(answer["connection_info"], stored)
        return stored["data"].get("qos_specs", "nothing")

    def test_with_qos_adds_front_end_specs(self):
        for consumer in ("front-end", "both"):
            qos_specs.update(self.qos, consumer, {})
            self.assertEqual({"total_iops_sec": 200, "own": "x"}, self.qos_specs())

    def test_with_qos_skips_back_end_specs(self):
        qos_specs.update(self.qos, "back-end", {})
        self.assertEqual("nothing", self.qos_specs())

    def test_with_qos_without_specs_or_type_adds_none(self):
        qos_specs.disassociate_all(self.qos)
        self.assertEqual("nothing", self.qos_specs())
        self.kind = None
        self.assertEqual("nothing", self.qos_specs())

    def test_with_qos_with_empty_specs_adds_empty_set(self):
        qos_specs.delete_keys(self.qos, ["total_iops_sec_per_gb", "own"])
        self.assertEqual({}, self.qos_specs())


class ScaleQosTest(unittest.TestCase):
    def test_scale_qos_without_per_gib_keys_changes_nothing(self):
        specs = {"total_iops_sec": "500", "read_bytes_sec_max": "9", "own": "x", "empty": None}
        self.assertEqual(specs, backends.scale_qos(specs, 20))

    def test_scale_qos_per_gib_grows_with_size(self):
        for who in ("read", "write", "total"):
            for what in ("iops", "bytes"):
                found = backends.scale_qos({f"{who}_{what}_sec_per_gb": "10"}, 20)
                self.assertEqual({f"{who}_{what}_sec": 200}, found)

    def test_scale_qos_per_gib_replaces_fixed_limit(self):
        specs = {"total_iops_sec": "7", "total_iops_sec_per_gb": "10", "own": "x"}
        self.assertEqual({"total_iops_sec": 200, "own": "x"}, backends.scale_qos(specs, 20))

    def test_scale_qos_applies_minimum_and_maximum(self):
        specs = {
            "total_iops_sec_per_gb": "10",
            "total_iops_sec_per_gb_min": "100",
            "total_iops_sec_max": "1000",
        }
        for size, expected in ((1, 100), (10, 100), (20, 200), (100, 1000), (500, 1000)):
            self.assertEqual({"total_iops_sec": expected}, backends.scale_qos(specs, size), size)

    def test_scale_qos_passes_invalid_numbers_on(self):
        specs = {"total_iops_sec_per_gb": "many", "read_iops_sec_per_gb": None}
        self.assertEqual(specs, backends.scale_qos(specs, 20))

    def test_scale_qos_does_not_change_input(self):
        specs = {"total_iops_sec_per_gb": "10"}
        backends.scale_qos(specs, 20)
        self.assertEqual({"total_iops_sec_per_gb": "10"}, specs)
