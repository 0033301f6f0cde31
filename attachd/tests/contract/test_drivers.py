# SPDX-License-Identifier: Apache-2.0
"""The contract of drivers, tested with each driver that has an entry point.

Each runs on each of its backends, see backends.py.  doc/source/contributor/writing-a-driver.rst
describes how authors run it on their own drivers.
"""

from concurrent import futures
import json
import secrets
import uuid

import testscenarios

from attachd import exception
from attachd.drivers import abilities, base
from attachd.tests.contract import backends
from attachd.tests.contract.driving import GIB, MIB, ZEROS, DriverCase

load_tests = testscenarios.load_tests_apply_scenarios


class VolumesTest(DriverCase):
    """create, delete, extend, report, list."""

    def test_storage_has_one_identity_for_all_managers_and_starts(self):
        before = self.driver.storage_ids
        for pool, storage_id in before.items():
            self.assertTrue(0 < len(pool) < 256 and 0 < len(storage_id) < 256, before)
        self.assertEqual(before, self.new_driver().storage_ids)
        self.granted(self.volume(), self.export())
        self.backend.restart(self.driver)
        self.driver.setup()
        self.assertEqual(before, self.driver.storage_ids)

    def test_create_repeated_changes_nothing(self):
        volume = self.volume()
        self.assertEqual(volume.provider, self.driver.create(base.VolumeRef(volume.id, 1)))

    def test_delete_repeated_succeeds(self):
        volume = self.volume()
        self.driver.delete(volume)
        self.driver.delete(volume)

    def test_delete_of_unknown_volume_succeeds(self):
        self.driver.delete(base.VolumeRef(f"{uuid.uuid4()}", 1))

    def test_volume_is_there_until_it_is_deleted(self):
        volume = self.volume()
        self.assertTrue(self.driver.has_volume(volume))
        self.granted(other := self.volume(), self.export())
        self.assertTrue(self.driver.has_volume(other))
        # An audit knows no pool of what it finds.
        sizes = dict(self.driver.list_volumes())
        for volume_id, size in sizes.items():
            self.assertEqual(size, self.driver.find_size(base.VolumeRef(volume_id, 0)))
        if not self.backend.knows_missing:
            return
        self.assertFalse(self.driver.has_volume(base.VolumeRef(f"{uuid.uuid4()}", 1)))
        self.driver.delete(volume)
        self.assertFalse(self.driver.has_volume(volume))

    def test_delete_of_exported_volume_is_refused(self):
        volume, export = self.volume(), self.export()
        before = self.granted(volume, export)
        self.assert_refused(self.driver.delete, volume, final=True)
        self.assertEqual(before, self.driver.grant(volume, export))

    def test_new_volume_has_its_size_and_zeros(self):
        host, volume = self.host(), self.volume(size_gib=2)
        info = self.granted(volume, self.export())
        self.assertEqual(2 * GIB, host.size(info))
        for offset in (0, GIB, 2 * GIB - len(ZEROS)):
            self.assertEqual(ZEROS, host.read(info, offset, len(ZEROS)))

    def test_extend_keeps_data_and_export(self):
        self.require_ability(abilities.OnlineExtend)
        host, volume, export = self.host(), self.volume(), self.export()
        info = self.granted(volume, export)
        host.write(info, MIB, b"kept" * 1024)
        self.driver.extend(volume, 3, [export])
        self.assertEqual(3 * GIB, host.size(info))
        self.assertEqual(b"kept" * 1024, host.read(info, MIB, 4096))
        self.assertEqual(ZEROS, host.read(info, 3 * GIB - len(ZEROS), len(ZEROS)))

    def test_extend_to_same_or_smaller_size_changes_nothing(self):
        volume = self.volume()
        for size_gib in (2, 2, 1):
            self.driver.extend(volume, size_gib, [])
            self.assertEqual(2 * GIB, self.driver.list_volumes()[volume.id])

    def test_extend_of_attached_volume_to_same_or_smaller_size_changes_nothing(self):
        self.require_ability(abilities.OnlineExtend)
        host, volume, export = self.host(), self.volume(), self.export()
        info = self.granted(volume, export)
        for size_gib in (2, 2, 1):
            self.driver.extend(volume, size_gib, [export])
            self.assertEqual(2 * GIB, host.size(info))

    def test_extended_detached_volume_has_new_size_when_attached(self):
        host, volume = self.host(), self.volume()
        self.driver.extend(volume, 2, [])
        self.assertEqual(2 * GIB, host.size(self.granted(volume, self.export())))

    def test_extend_of_unknown_volume_is_refused(self):
        if not self.backend.knows_missing:
            self.skipTest("this backend does not report it")
        missing = base.VolumeRef(f"{uuid.uuid4()}", 1)
        self.assert_refused(self.driver.extend, missing, 2, [], final=True)

    def test_extended_detached_volume_keeps_data(self):
        host, volume, export = self.host(), self.volume(), self.export()
        host.write(self.granted(volume, export), MIB, b"kept" * 1024)
        self.revoked(volume, export)
        self.driver.extend(volume, 2, [])
        info = self.granted(volume, self.export())
        self.assertEqual(b"kept" * 1024, host.read(info, MIB, 4096))
        self.assertEqual(ZEROS, host.read(info, 2 * GIB - len(ZEROS), len(ZEROS)))

    def test_list_volumes_returns_sizes(self):
        volumes = {self.volume(size).id: size * GIB for size in (1, 3)}
        before = self.backend.seen(self.driver)
        self.assertEqual(volumes, dict(self.driver.list_volumes()))
        self.assertEqual(before, self.backend.seen(self.driver))
        gone = base.VolumeRef(min(volumes), 1)
        self.driver.delete(gone)
        self.assertNotIn(gone.id, self.driver.list_volumes())

    def test_stats_count_allocated_capacity(self):
        before = self.driver.get_stats()
        self.assertNotEqual("", before.protocol)
        self.assertGreaterEqual(before.total_gib, before.free_gib)
        self.assertEqual(dict(before.capabilities), json.loads(json.dumps(before.capabilities)))
        self.volume(size_gib=3)
        self.assertEqual(before.allocated_gib + 3, self.driver.get_stats().allocated_gib)

    def test_each_pool_counts_its_volumes(self):
        stats = self.driver.get_stats()
        self.require("pools", stats.pools)
        json.dumps([dict(pool.capabilities) for pool in stats.pools])
        self.assertEqual(len(stats.pools), len(set(self.pools())))
        for name in self.pools():
            before = self.allocated()
            ref = base.VolumeRef(f"{uuid.uuid4()}", 2, pool=name)
            self.addCleanup(self.driver.delete, ref)
            self.driver.create(ref)
            self.assertEqual({**before, name: before[name] + 2}, self.allocated())
        self.assertEqual(sum(self.allocated().values()), self.driver.get_stats().allocated_gib)

    def allocated(self) -> dict[str, float]:
        return {pool.name: pool.allocated_gib for pool in self.driver.get_stats().pools}


class ExportsTest(DriverCase):
    """grant, revoke, boot_id, exports."""

    def test_grant_repeated_returns_same_answer(self):
        volume, export = self.volume(), self.export()
        info = self.granted(volume, export)
        self.assertEqual(info, self.driver.grant(volume, export))
        self.assertEqual(info, self.new_driver().grant(volume, export))

    def test_connection_info_is_json(self):
        info = self.granted(self.volume(), self.export())
        self.assertEqual({"driver_volume_type", "data"}, set(info))
        self.assertEqual(info, json.loads(json.dumps(info)))

    def test_unknown_keys_of_connector_are_ignored(self):
        connector = {"os_type": "linux", "wwnns": None, "do": {"not": ["mind"]}, "mountpoint": 7}
        self.granted(self.volume(), self.export(**connector))

    def test_unusable_connector_is_refused_finally(self):
        volume = self.volume()
        for connector in self.backend.unusable_connectors:
            export = base.Export(f"{uuid.uuid4()}", connector, "rw", secrets.token_hex(16))
            # check_connector() refuses it before any change, and grant() refuses it as well.
            self.assertRaises(exception.InvalidInput, self.driver.check_connector, connector)
            self.assert_refused(self.driver.grant, volume, export, final=True)
            self.driver.revoke(volume, export, [])
        self.assertEqual([], self.exported())

    def test_grant_of_unknown_volume_is_refused_finally(self):
        if not self.backend.knows_missing:
            self.skipTest("this backend does not report it")
        missing = base.VolumeRef(f"{uuid.uuid4()}", 1)
        self.assert_refused(self.driver.grant, missing, self.export(), final=True)
        self.assertEqual([], self.exported())

    def test_revoke_repeated_succeeds(self):
        volume, export = self.volume(), self.export()
        self.granted(volume, export)
        self.driver.revoke(volume, export, [])
        self.driver.revoke(volume, export, [])
        self.assertEqual([], self.exported())

    def test_revoke_without_grant_succeeds(self):
        volume, export = self.volume(), self.export()
        self.driver.revoke(volume, export, [])
        never = base.Export(f"{uuid.uuid4()}", {})
        self.driver.revoke(volume, never, [])
        self.driver.revoke(base.VolumeRef(f"{uuid.uuid4()}", 1), never, [])

    def test_revoke_without_grant_keeps_other_exports(self):
        volume, other = self.volume(), self.export("b")
        info = self.granted(volume, other)
        self.revoked(volume, self.export("a"))
        self.revoked(volume, base.Export(f"{uuid.uuid4()}", {}))
        self.assertEqual(info, self.driver.grant(volume, other))

    def test_revoke_by_other_process_ends_access(self):
        volume, export = self.volume(), self.export()
        driver = self.driver
        self.driver = self.new_driver()
        self.granted(volume, export)
        if self.backend.knows_missing:
            driver.revoke(volume, export, [])
            self.assertEqual([], self.exported())

    def test_list_exports_has_granted_exports(self):
        self.require_ability(abilities.Audit)
        volume = self.volume()
        self.granted(volume, self.export())
        self.assertEqual(
            [volume.id],
            [export.volume_id for export in self.exported() if export.holders],
        )

    def test_close_keeps_exports(self):
        volume, export = self.volume(), self.export()
        driver = self.driver
        if self.backend.knows_missing:
            self.driver = self.new_driver()
        info = self.granted(volume, export)
        if self.driver is not driver:
            self.driver.close()
            self.driver = driver
        self.assertEqual(self.expected(volume, export), self.listed(volume))
        self.assertEqual(info, self.driver.grant(volume, export))
        if host := self.backend.host("a"):
            host.read(info, 0, 512)

    def test_boot_id_is_stable_over_processes(self):
        before = self.driver.boot_id()
        self.granted(self.volume(), self.export())
        self.assertEqual([before] * 2, [self.driver.boot_id(), self.new_driver().boot_id()])

    def test_a_restart_that_forgets_begins_another_epoch(self):
        before = self.driver.boot_id()
        self.backend.restart(self.driver)
        self.assertEqual(self.backend.forgets, before != self.driver.boot_id())

    def test_a_grant_after_a_restart_heals(self):
        volume = self.volume()
        exports = [self.export("a"), self.export("b", mode="ro"), self.export("b")]
        before = [self.granted(volume, export) for export in exports]
        self.backend.restart(self.driver)
        after = [self.driver.grant(volume, export) for export in exports]
        self.assertEqual(before, after)
        self.assertEqual(self.expected(volume, *exports), self.listed(volume))

    def test_a_revoke_after_a_restart_is_a_success(self):
        volume, export = self.volume(), self.export()
        self.granted(volume, export)
        self.backend.restart(self.driver)
        self.driver.revoke(volume, export, [])

    def test_different_volumes_at_the_same_time_do_not_mind_each_other(self):
        with futures.ThreadPoolExecutor(8) as pool:
            cycles = [pool.submit(self._cycle, f"host{number % 3}") for number in range(16)]
        for cycle in cycles:
            cycle.result()
        self.assertEqual([], self.exported())
        self.assertEqual([], self.backend.orphans())

    def test_a_whole_life_leaves_nothing(self):
        self._cycle("a")
        self.assertEqual([], self.exported())
        self.assertEqual([], self.backend.orphans())

    def test_secrets_are_not_logged(self):
        volume, export = self.volume(), self.export()
        self.granted(volume, export)
        self.driver.revoke(volume, export, [])
        self.assertNotIn(export.secret, self.logged.output)

    def _cycle(self, host: str) -> None:
        volume = base.VolumeRef(f"{uuid.uuid4()}", 1)
        self.driver.create(volume)
        exports = [self.export(host), self.export(f"{host}x", mode="ro"), self.export(host)]
        for export in exports:
            self.driver.grant(volume, export)
        if abilities.get_abilities(self.driver)["online_extend"]:
            self.driver.extend(volume, 2, exports)
        while exports:
            gone = exports.pop(0)
            self.driver.revoke(volume, gone, exports)
        self.driver.extend(volume, 3, exports)
        self.driver.delete(volume)


class BytesTest(DriverCase):
    """Volumes as hosts see them."""

    def test_bytes_written_through_one_export_are_read_through_the_next(self):
        volume, first, second = self.volume(), self.export("a"), self.export("b")
        data = secrets.token_bytes(64 * 1024)
        self.host("a").write(self.granted(volume, first), 5 * MIB, data)
        self.revoked(volume, first)
        info = self.granted(volume, second)
        self.assertEqual(data, self.host("b").read(info, 5 * MIB, len(data)))

    def test_a_revoked_host_gets_nothing(self):
        host, volume, export = self.host(), self.volume(), self.export()
        info = self.granted(volume, export)
        host.read(info, 0, 512)
        self.driver.revoke(volume, export, [])
        self.assertRaises(backends.Refused, host.read, info, 0, 512)

    def test_a_revoke_leaves_the_others_their_access(self):
        volume = self.volume()
        exports = {name: self.export(name) for name in ("a", "b", "c")}
        infos = {name: self.granted(volume, export) for name, export in exports.items()}
        hosts = {name: self.host(name) for name in exports}
        # The oldest, then the newest.
        for gone in ("a", "c"):
            self.revoked(volume, exports.pop(gone))
            self.assertRaises(backends.Refused, hosts[gone].read, infos[gone], 0, 512)
            for name in exports:
                hosts[name].write(infos[name], 0, name.encode() * 512)
                self.assertEqual(name.encode() * 512, hosts[name].read(infos[name], 0, 512))

    def test_a_host_keeps_its_access_as_long_as_it_has_one_attachment(self):
        host, volume = self.host(), self.volume()
        first, second = self.export(), self.export()
        info = self.granted(volume, second), self.granted(volume, first)
        self.revoked(volume, first)
        host.write(info[0], 0, b"here" * 128)
        self.assertEqual(b"here" * 128, host.read(info[0], 0, 512))

    def test_a_host_that_may_only_read_cannot_write(self):
        self.require_promise("read_only_enforced")
        volume = self.volume()
        writer = self.granted(volume, self.export("a"))
        reader = self.granted(volume, self.export("b", mode="ro"))
        self.host("a").write(writer, 0, b"read" * 1024)
        self.assertEqual(b"read" * 1024, self.host("b").read(reader, 0, 4096))
        # A host that ignores the access mode.
        liar = reader | {"data": reader["data"] | {"access_mode": "rw"}}
        self.assertRaises(backends.Refused, self.host("b").write, liar, 0, b"writ" * 1024)
        self.assertEqual(b"read" * 1024, self.host("b").read(reader, 0, 4096))
        self.host("a").write(writer, 0, b"more" * 1024)
