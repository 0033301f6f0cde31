# SPDX-License-Identifier: Apache-2.0
"""The driver rbd with hosts that keep images open, with faults, and killed at each step."""

import os
from pathlib import Path
import re
import signal
import threading

import fixtures
from oslo_utils import timeutils

from attachd import exception
from attachd.agent.host import make_connector
from attachd.ceph import bindings
from attachd.drivers import base
from attachd.tests.fixtures import ceph, initiators, printed_connections, requirements
from attachd.tests.fixtures.user_space_devices import (
    OPTIONS,
    assert_confined,
    list_orphans,
    read_at,
    write_at,
)
from attachd.tests.functional.rbd_case import GIB, RbdCase, new_id
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

BLOCK = b"\5" * 4096


class HostsTest(RbdCase):
    """Two hosts with QEMU; what is needed for more is in the part "storage"."""

    def test_data_written_by_one_host_is_read_by_the_next(self):
        a, b = (self.useFixture(initiators.RbdHost(self, name)) for name in ("a", "b"))
        volume = self.volume()
        first, info = self.granted(volume)
        a.write(info, 500 * 2**20, BLOCK)
        self.driver.revoke(volume, first, [])
        self.assertRaises(initiators.Refused, a.read, info, 0, 512)
        second, info = self.granted(volume)
        self.assertEqual(BLOCK, b.read(info, 500 * 2**20, len(BLOCK)))
        (export,) = self.driver.list_volume_exports(volume)
        self.assertEqual({second.attachment_id}, export.holders)


@full_only("storage")
class OpenImageTest(RbdCase):
    """Hosts with an open image: storage daemons of QEMU, and a reader."""

    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        requirements.share_mounts(self)

    def daemon(self, info, **changes):
        """Open an image with a storage daemon; returns the file that it exports."""
        host = self.useFixture(initiators.RbdHost(self, "a"))
        return host.export({**info, "data": {**info["data"], **changes}})

    def test_revoked_writer_fails_while_another_goes_on(self):
        volume = self.volume()
        (revoked, info), (staying, other) = self.granted(volume), self.granted(volume)
        files = [self.daemon(info), self.daemon(other)]
        for file in files:
            os.pwrite(file, BLOCK, 0)
        done, written, failed = threading.Event(), [], []

        def write():
            while not done.is_set():
                try:
                    written.append(os.pwrite(files[1], BLOCK, 2**20))
                except OSError as error:
                    failed.append(error)

        before = set(self.cluster.blocklist())
        writer = threading.Thread(target=write)
        writer.start()
        try:
            self.driver.revoke(volume, revoked, [staying])
            count = len(written)
            self.assertRaises(OSError, os.pwrite, files[0], BLOCK, 0)
            wait_until(lambda: len(written) > count + 10)
        finally:
            done.set()
            writer.join()
        self.assertEqual([], failed)
        (address,) = set(self.cluster.blocklist()) - before
        self.assertGreater(self.days_blocked(address), 300)
        (export,) = self.driver.list_volume_exports(volume)
        ids = frozenset({staying.attachment_id})
        self.assertEqual((ids, ids), (export.holders, export.sessions))

    def days_blocked(self, address):
        """Return how long an entry of the blocklist is valid."""
        entries = self.cluster.command("osd blocklist ls")
        (until,) = (entry["until"] for entry in entries if entry["addr"] == address)
        return (timeutils.parse_isotime(until) - timeutils.utcnow(with_timezone=True)).days

    def test_printed_connections_reach_the_data_with_the_key_alone(self):
        host, volume = self.useFixture(initiators.RbdHost(self, "a")), self.volume()
        export, info = self.granted(volume)
        host.write(info, 2**20, b"\7" * 4096)
        key = re.search(r"key = (\S+)", info["data"]["keyring"])[1]
        shown = {**info["data"], "driver_volume_type": "rbd"}
        shown["attachment_id"] = export.attachment_id
        url, image = (printed_connections.printed(shown, form) for form in ("url", "qemu"))
        self.assertNotIn(key, url + image)
        read_ok = "read 4096/4096"
        with_key = url.replace("SECRET", key)
        self.assertIn(read_ok, printed_connections.read("-f", "raw", with_key))
        self.assertNotIn(read_ok, printed_connections.read("-f", "raw", url))
        secret = ("--object", f"secret,id=secret,data={key},format=base64")
        self.assertIn(read_ok, printed_connections.read(*secret, f"json:{image}"))

    def test_discarded_objects_are_removed(self):
        host, volume = self.useFixture(initiators.RbdHost(self, "a")), self.volume()
        _export, info = self.granted(volume)
        host.write(info, 0, BLOCK * 3072)
        self.assertEqual(3, len(self.read_objects(info)))
        host.discard(info, 4 * 2**20, 8 * 2**20)
        self.assertEqual(1, len(self.read_objects(info)))
        _reader, shown = self.granted(volume, "ro")
        liar = {**shown, "data": {**shown["data"], "access_mode": "rw"}}
        self.assertRaises(initiators.Refused, host.discard, liar, 0, 4 * 2**20)
        self.assertEqual(1, len(self.read_objects(info)))

    def test_write_of_reader_is_refused_by_cluster(self):
        volume = self.volume()
        _, info = self.granted(volume, "ro")
        file = self.daemon(info, access_mode="rw")
        self.assertEqual(bytes(512), os.pread(file, 512, 0))
        self.assertRaises(OSError, os.pwrite, file, BLOCK, 0)
        self.assertEqual(bytes(512), os.pread(file, 512, 0))

    def test_key_of_one_image_does_not_open_another(self):
        (_, info), other = self.granted(self.volume()), self.volume()
        name = f"{info['data']['name'][: -len(other.id)]}{other.id}"
        self.assertRaises(initiators.Refused, self.daemon, info, name=name)

    def test_delete_of_image_that_is_open_elsewhere_is_refused(self):
        volume = self.volume()
        rbd, pool = bindings.load().rbd, self.cluster.admin().open_ioctx(ceph.POOL)
        self.addCleanup(pool.close)
        with rbd.Image(
            pool, next(iter(self.cluster.images(self.backend.options()["rbd_prefix"])))
        ):
            with self.assertRaisesRegex(exception.BackendError, "in use") as caught:
                self.driver.delete(volume)
            self.assertTrue(caught.exception.final)

    def test_client_of_user_deleted_by_hand_is_found_and_ended(self):
        volume = self.volume()
        export, info = self.granted(volume)
        file = self.daemon(info)
        self.cluster.command("auth rm", entity=f"client.{info['data']['auth_username']}")
        (found,) = self.driver.list_volume_exports(volume)
        expected = (frozenset(), frozenset({export.attachment_id}))
        self.assertEqual(expected, (found.holders, found.sessions))
        self.driver.revoke_all_except(volume, [])
        self.assertRaises(OSError, os.pwrite, file, BLOCK, 0)
        self.assertEqual([], list(self.driver.list_volume_exports(volume)))

    def test_client_that_reads_without_watch_is_ended(self):
        volume = self.volume()
        os.pwrite(self.daemon(self.granted(volume)[1]), BLOCK, 0)
        export, info = self.granted(volume, "ro")
        data = info["data"]
        key = data["keyring"].partition("key = ")[2].strip()
        lib = bindings.load()
        connection = lib.rados.Rados(
            name=f"client.{data['auth_username']}",
            conffile=f"{self.cluster.conf}",
            conf={"key": key, "keyring": "", "rados_osd_op_timeout": "60"},
        )
        connection.connect()
        self.addCleanup(connection.shutdown)
        pool, _, name = data["name"].partition("/")
        image = lib.rbd.Image(connection.open_ioctx(pool), name, read_only=True)
        # Before the connection ends, which it uses.
        self.addCleanup(image.close)
        self.assertEqual(BLOCK[:512], image.read(0, 512))
        self.driver.revoke(volume, export, [])

        def is_ended() -> bool:
            try:
                image.read(0, 512)
            except lib.rbd.Error:
                return True
            return False

        # Without a watch, nothing shows when the OSDs have learned of it.
        wait_until(is_ended)

    def test_volume_is_copied_and_extended_while_it_is_written(self):
        volume, copy = self.volume(), base.VolumeRef(new_id(), 2)
        export, info = self.granted(volume)
        file = self.daemon(info)
        os.pwrite(file, BLOCK, 0)
        self.addCleanup(self.driver.delete, copy)
        self.driver.clone(copy, volume)
        self.driver.extend(volume, 3, [export])
        os.pwrite(file, BLOCK, 8192)
        sizes = {volume.id: 3 * GIB, copy.id: 2 * GIB}
        self.assertEqual(sizes, dict(self.driver.list_volumes()))


@full_only("storage")
class HungWriterTest(RbdCase):
    """A writer that is stopped for so long that the monitor and the OSD have forgotten it."""

    def setUp(self):
        super().setUp()
        self.addCleanup(self.cluster.set_session_timeout)
        self.cluster.set_session_timeout(20)  # less takes clients for hung that are only slow

    def freeze_writer(self, info):
        """Start a writer, stop it, and wait until nothing but its lock is left."""
        writer = self.useFixture(initiators.RbdHost(self, "hung")).flood(info, GIB // 4096, 1)
        wait_until(lambda: self.written(info) or writer.poll() is not None)
        writer.send_signal(signal.SIGSTOP)
        self.assertIsNone(writer.poll())
        self.wait_until_forgotten(f"client.{info['data']['auth_username']}")
        return writer

    def written(self, info):
        """Return the objects of an image that the writer has written to."""
        data = self.read_objects(info)
        return {name: read for name, read in data.items() if BLOCK not in read}

    def check_that_nothing_more_arrives(self, writer, info):
        before = self.written(info)
        writer.send_signal(signal.SIGCONT)
        wait_until(lambda: writer.poll() is not None)
        after = self.written(info)
        self.assertEqual([], [name for name in after if after[name] != before.get(name)])

    def test_writer_that_was_forgotten_is_cut_off(self):
        volume = self.volume()
        export, info = self.granted(volume)
        writer = self.freeze_writer(info)
        self.driver.revoke(volume, export, [])
        self.check_that_nothing_more_arrives(writer, info)

    def test_writer_that_was_forgotten_is_cut_off_beside_another(self):
        volume = self.volume()
        (export, info), (staying, other) = self.granted(volume), self.granted(volume)
        opened = initiators.OpenImage(self.useFixture(initiators.RbdHost(self, "b")), other)
        self.addCleanup(opened.close)
        opened.write(GIB - 4096, BLOCK)
        writer = self.freeze_writer(info)
        self.driver.revoke(volume, export, [staying])
        self.check_that_nothing_more_arrives(writer, info)
        opened.write(GIB - 4096, BLOCK)

    def open(self, name, info):
        host = self.useFixture(initiators.RbdHost(self, name))
        opened = initiators.OpenImage(host, info)
        self.addCleanup(opened.close)
        return opened

    def fence(self, volume, export, *others):
        self.driver.end_remembered_clients(volume, export)
        self.driver.revoke(volume, export, others)

    def check_that_frozen_host_is_cut_off(self, opened, info, fence):
        """Freeze a host that has no lock until it is forgotten, fence it, and let it write."""
        with opened.frozen():
            self.wait_until_forgotten(f"client.{info['data']['auth_username']}")
            fence()
        self.assertRaises(initiators.Refused, opened.write, 0, b"2" * 4096)

    def test_host_that_had_written_nothing_is_cut_off(self):
        volume = self.volume()
        export, info = self.granted(volume)
        opened = self.open("hung", info)
        self.driver.remember_clients()
        self.check_that_frozen_host_is_cut_off(opened, info, lambda: self.fence(volume, export))

    def test_host_whose_lock_went_to_another_is_cut_off_by_another_manager(self):
        volume = self.volume()
        (export, info), (staying, other) = self.granted(volume), self.granted(volume)
        opened, beside = self.open("hung", info), self.open("b", other)
        opened.write(0, BLOCK)
        beside.write(GIB - 4096, BLOCK)
        self.driver.remember_clients()
        self.driver = self.new_driver()
        self.check_that_frozen_host_is_cut_off(
            opened, info, lambda: self.fence(volume, export, staying)
        )
        beside.write(GIB - 4096, BLOCK)


@full_only("storage")
class StatisticsTest(RbdCase):
    """A cluster with a manager daemon."""

    def test_pool_has_free_space_and_reports_what_is_promised(self):
        self.cluster.require_statistics(self)
        before = self.driver.get_stats()
        self.assertGreater(before.free_gib, 0)
        self.assertGreaterEqual(before.total_gib, before.free_gib)
        self.volume()
        self.assertEqual(before.allocated_gib + 1, self.driver.get_stats().allocated_gib)

    def test_quota_of_pool_limits_its_free_space(self):
        self.cluster.require_statistics(self)
        self.addCleanup(self.set_quota, 0)
        self.set_quota(64 * 2**20)
        wait_until(lambda: self.driver.get_stats().free_gib < 0.1)
        self.set_quota(0)
        wait_until(lambda: self.driver.get_stats().free_gib > 0.1)

    def set_quota(self, size):
        name, value = "max_bytes", f"{size}"
        self.cluster.command("osd pool set-quota", pool=ceph.POOL, field=name, val=value)


@full_only("storage")
class FaultsTest(RbdCase):
    """A cluster that hangs, is full, or refuses the manager."""

    def hurried(self):
        """Return a driver that gives up soon."""
        return self.new_driver(rbd_timeout=3)  # what it waits for does not come

    def test_silent_osd_is_unreachable_and_call_can_be_repeated(self):
        driver, volume = self.hurried(), base.VolumeRef(new_id(), 1)
        self.addCleanup(self.driver.delete, volume)
        self.addCleanup(self.cluster.go_on)
        self.cluster.pause("osd")
        self.assertRaises(exception.BackendUnreachable, driver.create, volume)
        self.assertRaises(exception.BackendUnreachable, driver.get_stats)
        self.cluster.go_on()
        self.driver.create(volume)
        self.assertEqual({volume.id: GIB}, dict(driver.list_volumes()))

    def test_silent_monitor_is_unreachable_and_call_can_be_repeated(self):
        driver, volume = self.hurried(), self.volume()
        export = base.Export(new_id(), {})
        self.addCleanup(self.cluster.go_on)
        self.cluster.pause("mon")
        self.assertRaises(exception.BackendUnreachable, driver.grant, volume, export)
        self.assertRaises(exception.BackendUnreachable, self.hurried)
        self.cluster.go_on()
        info = driver.grant(volume, export)
        self.assertEqual(info, self.driver.grant(volume, export))
        driver.revoke(volume, export, [])

    def test_full_cluster_is_named_and_hosts_can_be_revoked(self):
        driver, volume = self.hurried(), self.volume()
        export = base.Export(new_id(), {})
        self.addCleanup(self.set_full_ratio, 0.95)
        self.set_full_ratio(0.00001)
        wait_until(lambda: "full" in self.pool_flags())
        with self.assertRaisesRegex(exception.BackendError, "is full"):
            driver.create(base.VolumeRef(new_id(), 1))
        driver.grant(volume, export)
        driver.revoke(volume, export, [])
        self.set_full_ratio(0.95)
        wait_until(lambda: "full" not in self.pool_flags())

    def set_full_ratio(self, ratio):
        for name in ("nearfull", "backfillfull", "full"):
            self.cluster.command(f"osd set-{name}-ratio", ratio=ratio)

    def pool_flags(self):
        pools = self.cluster.command("osd dump")["pools"]
        (flags,) = (pool["flags_names"] for pool in pools if pool["pool_name"] == ceph.POOL)
        return flags.split(",")

    def test_closed_and_failed_connections_leave_no_threads(self):
        self.driver.list_volumes()
        threads = Path("/proc/self/task")
        before = len(list(threads.iterdir()))
        driver = self.new_driver()
        driver.list_volumes()
        self.assertGreater(len(list(threads.iterdir())), before)
        driver.setup()  # as after a failure
        driver.close()
        with self.assertRaises(exception.BackendError):
            self.new_driver(rbd_user="missing")
        wait_until(lambda: len(list(threads.iterdir())) <= before)

    def test_blocklisted_manager_connects_again(self):
        for every in (False, True):
            volume = self.volume()
            (address,) = self.addresses()
            entry = f"{address.partition('/')[0]}/0" if every else address
            self.cluster.command("osd blocklist", blocklistop="add", addr=entry, expire=3600.0)
            self.addCleanup(self.cluster.command, "osd blocklist", blocklistop="rm", addr=entry)
            with self.assertRaisesRegex(exception.BackendUnreachable, "blocklisted itself"):
                self.driver.extend(volume, 2, [])
            self.assertNotIn(entry, self.cluster.blocklist())
            self.driver.extend(volume, 2, [])

    def addresses(self):
        """Return the addresses of the newest client of the manager's user."""
        sessions = self.driver._cluster.sessions()
        newest = max(item for item in sessions if item.entity == f"client.{ceph.USER}")
        return newest.addresses

    def test_wrong_configuration_is_refused_with_option(self):
        folder = Path(self.backend.options()["rbd_ceph_conf"]).parent
        conf = folder / f"{new_id()}.conf"
        key = "AQDSnARrm+w5BRAA2FjTCV/Iiaa1rLXCLV9/ZQ=="
        conf.write_text(f"{self.cluster.conf.read_text()}\n[client.attachd]\nkey = {key}\n")
        for option, value in (
            ("rbd_pools", "volumes,missing"),
            ("rbd_pools", "volumes,vol umes"),
            ("rbd_pools", ""),
            ("rbd_prefix", ""),
            ("rbd_user", "missing"),
            ("rbd_ceph_conf", f"{folder / 'missing'}"),
        ):
            with self.assertRaisesRegex(exception.BackendError, option) as caught:
                self.new_driver(**{option: value})
            self.assertTrue(caught.exception.final, option)
        with self.assertRaisesRegex(exception.BackendError, "rbd_user"):
            self.new_driver(rbd_ceph_conf=f"{conf}")

    def test_host_with_encrypted_connection_reaches_its_image(self):
        driver = self.new_driver(rbd_ms_mode="secure")
        volume, export = self.volume(), base.Export(new_id(), {})
        self.addCleanup(driver.revoke, volume, export, [])
        info = driver.grant(volume, export)
        self.assertEqual("secure", info["data"]["ms_mode"])
        host = self.useFixture(initiators.RbdHost(self, "a"))
        host.write(info, 0, BLOCK)
        self.assertEqual(BLOCK, host.read(info, 0, 4096))


@full_only("storage")
class UserSpaceConnectorTest(RbdCase):
    """Devices that the user-space connector makes of images."""

    def setUp(self):
        super().setUp()
        requirements.require_user_space_devices(self)
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.connector = make_connector("user-space", self.folder, None)

    def attached(self, volume, driver, mode="rw"):
        """Grant, and make a device; returns export, connection info and device."""
        properties = self.connector.get_connector_properties("host", OPTIONS)
        export = base.Export(new_id(), properties, mode)
        self.addCleanup(self.driver.revoke, volume, export, [])
        granted = driver.grant(volume, export)
        info = {**granted["data"], "driver_volume_type": "rbd"}
        self.addCleanup(self.connector.disconnect, info, OPTIONS, None, force=True)
        return export, info, self.connector.connect(info, OPTIONS)

    def test_data_of_one_attachment_is_read_in_the_next(self):
        self.assertEqual([], list(self.connector.missing_requirements("rbd")))
        volume = self.volume()
        for driver in (self.driver, self.new_driver(rbd_ms_mode="secure")):
            export, info, device = self.attached(volume, driver)
            self.assertTrue(self.connector.is_present(info, device))
            assert_confined(self, self.folder)
            write_at(device.path, 0, BLOCK)
            self.connector.disconnect(info, OPTIONS, device)
            self.assertEqual([], list_orphans(self.folder))
            before = self.cluster.blocklist()
            self.driver.revoke(volume, export, [])
            self.assertLessEqual(set(self.cluster.blocklist()), set(before))
            export, info, device = self.attached(volume, driver, "ro")
            self.assertEqual(BLOCK, read_at(device.path, 0, len(BLOCK)))
            self.connector.disconnect(info, OPTIONS, device)
            self.driver.revoke(volume, export, [])

    def test_device_of_revoked_attachment_fails_and_can_be_removed(self):
        volume = self.volume()
        export, info, device = self.attached(volume, self.driver)
        self.driver.revoke(volume, export, [])
        with Path(device.path).open("r+b", buffering=0) as file:
            file.write(BLOCK)
            self.assertRaises(OSError, os.fsync, file.fileno())
        self.connector.disconnect(info, OPTIONS, device, force=True)
        self.assertEqual([], list_orphans(self.folder))


@full_only("storage")
class KilledTest(RbdCase):
    """A manager that is killed before each change; another one repeats the call, or undoes it."""

    def test_killed_create_and_delete_leave_nothing(self):
        volume = base.VolumeRef(new_id(), 1)
        for method in ("create", "delete"):
            if method == "delete":
                self.driver.create(volume)
            for number in self.each_death(method, volume):
                self.driver.create(volume)
                self.driver.delete(volume)
                self.assertEqual([], self.backend.orphans(), (method, number))
                if method == "delete":
                    self.driver.create(volume)
            self.driver.delete(volume)

    def test_killed_clone_that_is_given_up_leaves_nothing(self):
        source, copy = self.volume(), base.VolumeRef(new_id(), 2)
        before = self.backend.orphans()
        for number in self.each_death("clone", copy, source):
            self.driver.delete(copy)
            self.assertEqual(before, self.backend.orphans(), number)
        self.driver.delete(copy)

    def test_killed_clone_that_is_repeated_leaves_no_snapshot(self):
        source, copy = self.volume(), base.VolumeRef(new_id(), 2)
        before = self.backend.orphans()
        for number in self.each_death("clone", copy, source):
            self.driver.clone(copy, source)
            self.assertEqual({source.id: GIB, copy.id: 2 * GIB}, dict(self.driver.list_volumes()))
            self.driver.delete(copy)
            self.assertEqual(before, self.backend.orphans(), number)
        self.driver.delete(copy)

    def test_killed_grant_and_revoke_leave_no_user_and_spare_other_hosts(self):
        volume = self.volume()
        staying, info = self.granted(volume)
        host = self.useFixture(initiators.RbdHost(self, "b"))
        leaving = base.Export(new_id(), {"host": "a"})
        for number in self.each_death("grant", volume, leaving):
            self.driver.revoke(volume, leaving, [staying])
            self.assert_only(volume, staying, number)
        other = self.useFixture(initiators.RbdHost(self, "a"))
        opened = initiators.OpenImage(other, self.driver.grant(volume, leaving))
        for number in self.each_death("revoke", volume, leaving, [staying]):
            self.driver.revoke(volume, leaving, [staying])
            self.assert_only(volume, staying, number)
            self.assertRaises(initiators.Refused, opened.write, 0, BLOCK)
            # A client that stays is one more to end in each later round.
            opened.close()
            host.write(info, 0, BLOCK)
            opened = initiators.OpenImage(other, self.driver.grant(volume, leaving))
        self.assert_only(volume, staying, "the last one")

    def assert_only(self, volume, export, number):
        """Check that one host has access, and that the blocklist has none of its addresses."""
        expected = set(self.driver.expected_exports(volume, [export]))
        self.assertEqual(expected, set(self.driver.list_volume_exports(volume)), number)
        watches = next(iter(self.driver._pools)).watches(volume.id)
        self.assertEqual([], list(watches), number)
