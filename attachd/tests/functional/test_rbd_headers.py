# SPDX-License-Identifier: Apache-2.0
"""Headers of images that hosts have changed, with the keys of their attachments."""

import errno
import http.server
import json
from pathlib import Path
import re
import resource
import shlex
import struct
import threading
from typing import ClassVar
from unittest import mock

import fixtures

from attachd import exception
from attachd.ceph import bindings, image_header, object_names
from attachd.drivers import base
from attachd.drivers.rbd import objects
from attachd.tests.fixtures import ceph, initiators, processes, requirements
from attachd.tests.functional import multiattach_case
from attachd.tests.functional.rbd_case import GIB, RbdCase, new_id
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

OFFSET = 8 * 2**20
"""Where data is written: beyond the file that is imported."""
SECRET = b"a file of the manager".ljust(4096, b".")
BLOCK = b"\5" * 4096
_MIGRATING = 512


def number(value):
    return struct.pack("<Q", value)


def change_header(pool, image_id, keys):
    """Write keys of a header."""
    with bindings.load().rados.WriteOpCtx() as change:
        pool.set_omap(change, tuple(keys), tuple(keys.values()))
        pool.operate_write_op(change, object_names.header_name(image_id))


class HostileHost:
    """What a host can do with the key of an attachment, and files of the manager's machine."""

    def connect(self, info):
        """Return the pool, opened with the key of an attachment, as any host can do."""
        pool = self.log_in(info).open_ioctx(info["data"]["name"].partition("/")[0])
        self.addCleanup(pool.close)
        return pool

    def log_in(self, info):
        """Return a connection with the key of an attachment."""
        data, rados = info["data"], bindings.load().rados
        key = data["keyring"].partition("key = ")[2].strip()
        connection = rados.Rados(
            name=f"client.{data['auth_username']}",
            conffile=f"{self.cluster.conf}",
            conf={"key": key, "keyring": ""},
        )
        connection.connect()
        self.addCleanup(connection.shutdown)
        return connection

    def import_keys(self, stream=None):
        """Return the keys of an image that is to be imported, from a file of the manager."""
        if stream is None:
            file = Path(self.useFixture(fixtures.TempDir()).path, "secret")
            file.write_bytes(SECRET * 256)
            stream = {"type": "file", "file_path": f"{file}"}
        name, lib = f"import-{new_id()}", bindings.load()
        with self.cluster.pool() as pool:
            spec = json.dumps({"type": "raw", "stream": stream})
            lib.rbd.RBD().migration_prepare_import(spec, pool, name)
            header = object_names.header_name(objects.read_id(pool, name))
            with lib.rados.ReadOpCtx() as reading:
                found, _ = pool.get_omap_vals(reading, "", "", 100)
                pool.operate_read_op(reading, header)
                keys = dict(found)
            lib.rbd.RBD().migration_abort(pool, name)
        self.assertTrue(_MIGRATING & struct.unpack("<Q", keys["features"])[0])
        return {key: keys[key] for key in ("features", "migration")}


class HeaderCase(HostileHost, RbdCase):
    """A volume with data, and a host that has the key of an attachment."""

    def setUp(self):
        super().setUp()
        self.victim = self.volume()
        self.target = self.volume()
        self.write_block(self.target, b"secret of another project")

    def write_block(self, volume, data):
        export, info = self.granted(volume)
        host = self.useFixture(initiators.RbdHost(self, "a"))
        host.write(info, OFFSET, data.ljust(4096, b"."))
        self.driver.revoke(volume, export, [])

    def name(self, volume):
        return f"{self.backend.options()['rbd_prefix']}{volume.id}"

    def id_of(self, volume):
        return volume.provider["image"]["id"]

    def change(self, pool, volume, keys):
        """Write keys of a header."""
        change_header(pool, self.id_of(volume), keys)

    def read_as_manager(self, volume, offset=OFFSET):
        """Return what librbd finds in an image."""
        with self.cluster.open_image(self.name(volume)) as image:
            return image.read(offset, 4096)

    def assert_refused(self, call, *arguments, key):
        with self.assertRaisesRegex(exception.BackendError, "changed by a host") as caught:
            call(*arguments)
        self.assertIn(key, f"{caught.exception}")
        self.assertIn("Detach the volume", f"{caught.exception}")

    def copy_of(self, volume):
        copy = base.VolumeRef(new_id(), 1)
        self.addCleanup(self.driver.delete, copy)
        return copy, volume


class ImportTest(HeaderCase):
    """A header that has librbd read a file, wherever the image is opened."""

    def test_file_of_manager_is_read_by_nothing_and_volume_can_be_used_again(self):
        volume = self.victim
        self.write_block(volume, BLOCK)
        export, info = self.granted(volume)
        self.change(self.connect(info), volume, self.import_keys())
        self.assertEqual(SECRET, self.read_as_manager(volume, 0))

        copy, source = self.copy_of(volume)
        self.assert_refused(self.driver.clone, copy, source, key="migration")
        self.assertEqual({}, self.cluster.images(self.name(copy)))
        self.assert_refused(self.driver.extend, volume, 2, [export], key="features")
        other = base.Export(new_id(), {"host": "b"})
        self.assert_refused(self.driver.grant, volume, other, key="migration")
        self.driver.revoke(volume, export, [])

        self.driver.clone(copy, source)
        for found in (copy, volume):
            self.assertEqual(BLOCK, self.read_as_manager(found))
            self.assertEqual(bytes(4096), self.read_as_manager(found, 0))


@full_only("storage")
class ChangedHeaderTest(HeaderCase):
    """Other keys, of writers and readers."""

    def setUp(self):
        super().setUp()
        prefix = object_names.encode(object_names.data_prefix(self.id_of(self.target)))
        self.changes = {
            "object_prefix": {"object_prefix": prefix},
            "order": {"order": b"\x0c"},
            "data_pool_id": {"data_pool_id": number(1), "features": number(61 | 128)},
            "parent": {"parent": b"\1\1\0\0\0\0"},
            "features": {"features": number(2**63)},
            "metadata_conf_rbd_plugins": {"metadata_conf_rbd_plugins": b"\0\0\0\0"},
            "size": {"size": number(2**40)},
            "snapshot_limit": {"snapshot_limit": number(0)},
            "flags": {"flags": b"x"},
        }

    def test_every_changed_key_is_refused_and_written_anew_after_detach(self):
        for mode in ("rw", "ro"):
            for key, changes in self.changes.items():
                volume = self.volume()
                self.write_block(volume, BLOCK)
                export, info = self.granted(volume, mode)
                self.change(self.connect(info), volume, changes)
                copy, source = self.copy_of(volume)
                self.assert_refused(self.driver.clone, copy, source, key=key)
                self.assert_refused(self.driver.extend, volume, 2, [export], key=key)
                self.driver.revoke(volume, export, [])
                self.driver.extend(volume, 2, [])
                self.assertEqual(2 * GIB, self.driver.list_volumes()[volume.id], key)
                self.assertEqual(BLOCK, self.read_as_manager(volume), key)

    def test_deletion_follows_no_header_and_spares_other_volumes(self):
        before = self.data_of(self.target)
        self.assertTrue(before)
        for key, changes in self.changes.items():
            volume = self.volume()
            self.write_block(volume, BLOCK)
            export, info = self.granted(volume)
            self.change(self.connect(info), volume, changes)
            self.driver.revoke(volume, export, [])
            self.driver.delete(volume)
            self.assertEqual({}, self.data_of(volume), key)
            self.assertEqual(before, self.data_of(self.target), key)
            self.assertNotIn(volume.id, self.driver.list_volumes())

    def data_of(self, volume):
        with self.cluster.pool() as pool:
            names = [*objects.list_objects(pool, object_names.data_prefix(self.id_of(volume)))]
            return {name: pool.read(name, 4096) for name in names}

    def test_header_that_cannot_be_read_hinders_neither_detach_nor_use_nor_deletion(self):
        def without(pool, header):
            pool.remove_object(header)

        def emptied(pool, header):
            pool.write_full(header, b"")
            with bindings.load().rados.WriteOpCtx() as change:
                pool.clear_omap(change)
                pool.operate_write_op(change, header)

        def flooded(pool, header):
            names = tuple(f"{name:05}" for name in range(3000))
            with bindings.load().rados.WriteOpCtx() as change:
                pool.set_omap(change, names, (b"",) * len(names))
                pool.operate_write_op(change, header)

        def with_wrong_lock(pool, header):
            pool.set_xattr(header, "lock.rbd_lock", b"\xff" * 64)
            pool.remove_object(object_names.header_name(self.id_of(self.victim)))

        for damage in (without, emptied, flooded, with_wrong_lock):
            volume = self.volume()
            self.write_block(volume, BLOCK)
            export, info = self.granted(volume)
            header = object_names.header_name(self.id_of(volume))
            pool = self.connect(info)
            if damage is with_wrong_lock:
                self.assertRaises(bindings.load().rados.Error, damage, pool, header)
            else:
                damage(pool, header)
            self.assertEqual(1, len(list(self.driver.list_volume_exports(volume))))
            self.driver.revoke(volume, export, [])
            self.assertEqual([], list(self.driver.list_volume_exports(volume)))
            again, info = self.granted(volume)
            host = self.useFixture(initiators.RbdHost(self, "b"))
            self.assertEqual(BLOCK, host.read(info, OFFSET, len(BLOCK)))
            self.driver.revoke(volume, again, [])
            if damage is not with_wrong_lock:
                self.driver.revoke_all_except(volume, [])
            self.driver.delete(volume)
        self.assertEqual({self.victim.id, self.target.id}, {*self.driver.list_volumes()})

    def test_keys_of_a_mebibyte_fill_no_memory_of_manager(self):
        volume = self.victim
        export, info = self.granted(volume, "ro")
        pool = self.connect(info)
        for number_ in range(40):
            names = [f"{number_:02}{name}".ljust(2**20, "x") for name in range(10)]
            self.change(pool, volume, dict.fromkeys(names, b""))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.assert_refused(self.driver.extend, volume, 2, [export], key="too long")
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 100 * 2**10)
        self.driver.revoke(volume, export, [])
        self.driver.extend(volume, 2, [])

    def test_snapshot_of_reader_hinders_neither_deletion_nor_unmanage(self):
        for finish in (self.driver.delete, self.driver.unmanage):
            volume = self.volume()
            export, info = self.granted(volume, "ro")
            pool = self.connect(info)
            arguments = object_names.encode("kept") + number(2**40)
            header = object_names.header_name(self.id_of(volume))
            pool.execute(header, "rbd", "snapshot_add", arguments)
            self.driver.revoke(volume, export, [])
            finish(volume)
            self.assertNotIn(volume.id, self.driver.list_volumes())
        (item,) = (it for it in self.driver.list_manageable() if volume.id in f"{it}")
        self.assertEqual("", item.refusal)
        self.driver.manage(volume, item.reference)

    def test_number_of_snapshots_that_a_reader_has_raised_does_not_hinder_copies(self):
        volume = self.victim
        self.write_block(volume, BLOCK)
        _, info = self.granted(volume, "ro")
        host, read, left = self.connect(info), image_header.read, 4
        self.change(host, volume, {"snap_seq": number(2**63)})

        def read_and_let_host_write(*arguments):
            nonlocal left
            keys, left = read(*arguments), left - 1
            if left > 0:
                self.change(host, volume, {"snap_seq": number(2**63 + left)})
            return keys

        copy, source = self.copy_of(volume)
        with mock.patch.object(image_header, "read", read_and_let_host_write):
            self.driver.clone(copy, source)
        self.assertLessEqual(left, 0)
        self.assertEqual(BLOCK, self.read_as_manager(copy))

    def test_audit_finds_data_beyond_the_end_of_an_image_and_of_no_image(self):
        volume = self.volume()
        export, info = self.granted(volume)
        prefix = f"{object_names.data_prefix(self.id_of(volume))}."
        self.connect(info).write_full(f"{prefix}{2**40:016x}", b"beyond")
        (orphan,) = self.orphans(prefix)
        self.assertIn("beyond the end", orphan.name)
        self.driver.revoke(volume, export, [])
        self.driver.delete(volume)
        (orphan,) = self.orphans(prefix)
        self.assertIn("of no image", orphan.name)
        with self.cluster.pool() as pool:
            pool.remove_object(f"{prefix}{2**40:016x}")
        self.assertEqual([], self.orphans(prefix))

    def test_audit_names_the_locator_of_an_object_and_no_image_of_its_name(self):
        """The cluster checks the locator of an object in place of its name."""
        volume = self.volume()
        _, info = self.granted(volume)
        own = object_names.data_prefix(self.id_of(volume))
        other = f"{object_names.data_prefix(self.id_of(self.victim))}.{2**40:016x}"
        host = self.connect(info)
        host.set_locator_key(f"{own}.hidden")
        host.write_full(other, b"hidden")
        (orphan,) = self.orphans(other)
        self.assertIn(f"the locator {own}.hidden in", orphan.name)
        remove = shlex.split(re.search(r"(rados --object.* rm) NAME", orphan.remedy)[1])
        reach = ("--conf", f"{self.cluster.conf}", "--name", "client.attachd", "--pool", ceph.POOL)
        processes.check_output([*remove[:1], *reach, *remove[1:], other])
        self.assertEqual([], self.orphans(other))

    def orphans(self, prefix):
        return [item for item in self.driver.list_orphans() if prefix in item.name]

    def test_address_of_another_host_in_lock_is_not_blocklisted(self):
        volume, other = self.victim, self.target
        _, info = self.granted(other)
        opened = initiators.OpenImage(self.useFixture(initiators.RbdHost(self, "b")), info)
        self.addCleanup(opened.close)
        opened.write(0, BLOCK)
        export, own = self.granted(volume)
        with self.cluster.pool() as pool:
            lock = pool.get_xattr(object_names.header_name(self.id_of(other)), "lock.rbd_lock")
        lock = lock.replace(*(self.client_id(other), number(2**40)))
        header = object_names.header_name(self.id_of(volume))
        self.connect(own).set_xattr(header, "lock.rbd_lock", lock)
        before = self.cluster.blocklist()
        self.driver.revoke(volume, export, [])
        opened.write(4096, BLOCK)
        added = set(self.cluster.blocklist()) - set(before)
        images = self.driver._pools.find(other)
        self.assertTrue(added.isdisjoint({it.address for it in images.watches(other.id)}))

    def client_id(self, volume):
        (watch,) = self.driver._pools.find(volume).watches(volume.id)
        return number(watch.client_id)

    def test_header_that_changes_after_the_check_leads_nowhere(self):
        """The race between the check and the open: here the check is left out."""
        volume = self.victim
        export, info = self.granted(volume)
        self.change(self.connect(info), volume, self.import_keys())
        images = self.driver._pools.find(volume)
        with self.assertRaisesRegex(exception.BackendError, "could not be extended"):
            images.extend(self.name(volume), 2)
        self.driver.revoke(volume, export, [])

    def test_header_that_names_a_server_of_the_network_connects_to_none(self):
        requirements.require_port_limits()
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Source)
        self.addCleanup(server.server_close)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        url = f"http://127.0.0.1:{server.server_port}/image"
        keys = self.import_keys({"type": "http", "url": url})
        self.assertNotEqual([], _Source.requests)
        _Source.requests.clear()
        volume = self.victim
        export, info = self.granted(volume)
        self.change(self.connect(info), volume, keys)
        with self.assertRaisesRegex(exception.BackendError, "could not be extended"):
            self.driver._pools.find(volume).extend(self.name(volume), 2)
        self.assertEqual([], _Source.requests)
        self.driver.revoke(volume, export, [])


class _Source(http.server.BaseHTTPRequestHandler):
    """A server with an image."""

    requests: ClassVar[list[str]] = []

    def do_HEAD(self):
        self.requests.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", f"{len(SECRET) * 256}")
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()

    def do_GET(self):
        self.do_HEAD()
        self.wfile.write(SECRET * 256)

    def log_message(self, *_):
        pass


@full_only("storage")
class BlocklistTest(HeaderCase):
    """The right of a writer to blocklist clients, which it needs to break a lock."""

    def blocklist(self, connection, address):
        """Have a host blocklist an address; returns whether it may."""
        self.addCleanup(self.cluster.command, "osd blocklist", blocklistop="rm", addr=address)
        request = {"prefix": "osd blocklist", "blocklistop": "add", "addr": address}
        return not connection.mon_command(json.dumps({**request, "expire": 60.0}), b"")[0]

    def test_host_may_blocklist_single_clients_if_it_writes_and_nothing_else(self):
        single, wrong = "192.0.2.1:0/4294967295", (":0/0", ":0/4294967296", ":6800/7", "")
        for mode in ("rw", "ro"):
            _, info = self.granted(self.victim, mode)
            connection = self.log_in(info)
            self.assertEqual(mode == "rw", self.blocklist(connection, single))
            for rest in wrong:
                self.assertFalse(self.blocklist(connection, f"192.0.2.1{rest}"), rest)
            for prefix, arguments in (
                ("osd blocklist", {"blocklistop": "rm", "addr": single}),
                ("osd pool mksnap", {"pool": ceph.POOL, "snap": "x"}),
                ("config-key ls", {}),
                ("auth ls", {}),
            ):
                request = json.dumps({"prefix": prefix, **arguments})
                self.assertEqual(-errno.EACCES, connection.mon_command(request, b"")[0], prefix)

    def test_host_that_dies_is_followed_by_one_that_breaks_its_lock(self):
        dead, next_ = (self.useFixture(initiators.RbdHost(self, name)) for name in ("dead", "b"))
        (_, info), (_, other) = self.granted(self.victim), self.granted(self.victim)
        writer = dead.flood(info, GIB // 4096, 1)
        images = self.driver._pools.find(self.victim)
        owner = wait_until(lambda: images.lock_owner(self.victim.id))
        writer.kill()
        writer.wait()
        next_.write(other, OFFSET, BLOCK)
        self.assertIn(owner.address, self.cluster.blocklist())


def shared_cluster(lasting, _folder):
    """Return the options of a backend with one pool."""
    cluster = ceph.shared(lasting)
    cluster.require_statistics(lasting)
    return cluster.options(ceph.new_prefix())


@full_only("storage")
class ServedTest(HostileHost, multiattach_case.MultiattachCase):
    """A member who has the key of her attachment from the API."""

    def setUp(self):
        super().setUp()
        self.api = multiattach_case.serve_backend(self, "rbd", shared_cluster)
        self.cluster = ceph.shared(self)
        self.host = self.useFixture(initiators.RbdHost(self, "a"))

    def copy(self, volume, expected):
        asked = {"size": 1, "source_volid": volume}
        copy = self.api.request_json("POST", "/volumes", {"volume": asked})["volume"]["id"]
        self.api.wait_for(copy, expected)
        return copy

    def delete(self, volume):
        self.api.request("DELETE", f"/volumes/{volume}")
        self.api.wait_for(volume, "gone")

    def test_copy_of_volume_with_import_header_is_an_error_until_it_is_detached(self):
        volume = self.api.create_volume()
        attachment, info = self.attach(volume, self.host)
        self.host.write(info, OFFSET, BLOCK)
        pool, image_id = self.connect(info), info["data"]["image"]["id"]
        change_header(pool, image_id, self.import_keys())
        self.delete(self.copy(volume, "error"))
        self.detach(attachment)
        copy = self.copy(volume, "available")
        attachment, info = self.attach(copy, self.host)
        self.assertEqual(bytes(4096), self.host.read(info, 0, 4096))
        self.assertEqual(BLOCK, self.host.read(info, OFFSET, 4096))
        self.detach(attachment)
        for made in (volume, copy):
            self.delete(made)
        self.assertEqual([], self.cluster.objects(object_names.data_prefix(image_id)))
