# SPDX-License-Identifier: Apache-2.0
"""What a host calls with the key of its attachment, past librbd: operations, methods of classes.

A right to call methods that read must not be one to call those that write: these change objects
without the right to write, such as the configuration of all images in a pool.
"""

import functools
import struct

from attachd.ceph import bindings, object_names
from attachd.tests.functional.test_rbd_headers import OFFSET, HeaderCase
from attachd.tests.selection import full_only


def text(value):
    """Return a string as Ceph encodes it."""
    return struct.pack("<I", len(value)) + value


METADATA = struct.pack("<I", 1) + text(b"conf_rbd_cache") + text(b"false")
LOCK = b"hello"


@full_only("storage")
class ClassMethodsTest(HeaderCase):
    """Both kinds of attachments; the object map is a reader's to read."""

    def methods(self, volume, mode):
        """Return objects, and what is called with them: class, method and arguments."""
        image_id, name = self.id_of(volume), self.name(volume)
        object_map = f"rbd_object_map.{image_id}"
        other = object_names.header_name(self.id_of(self.target))
        found = [
            ("rbd_info", "rbd", "metadata_set", METADATA),
            ("rbd_info", "rbd", "metadata_remove", text(b"x")),
            ("rbd_info", "hello", "record_hello", LOCK),
            ("rbd_mirroring", "rbd", "mirror_uuid_set", text(b"x")),
            ("rbd_mirroring", "hello", "record_hello", LOCK),
            (f"rbd_id.{name}", "rbd", "set_id", text(b"x")),
            (f"rbd_id.{name}", "hello", "record_hello", LOCK),
            ("rbd_children", "rbd", "add_child", b""),
            ("rbd_directory", "rbd", "dir_add_image", text(b"x") + text(b"y")),
            (other, "rbd", "metadata_list", text(b"") + struct.pack("<Q", 64)),
            (other, "rbd", "metadata_set", METADATA),
            (other, "rbd", "set_size", struct.pack("<Q", 0)),
        ]
        if mode == "ro":
            found += [
                (object_map, "rbd", "object_map_resize", struct.pack("<QB", 1, 0)),
                (object_map, "rbd", "object_map_update", struct.pack("<QQB", 0, 1, 0)),
                (object_map, "hello", "record_hello", LOCK),
            ]
        return found

    def test_host_calls_no_method_that_writes_beyond_its_rights(self):
        errors = bindings.load().rados
        allowed = []
        for mode in ("ro", "rw"):
            export, info = self.granted(self.victim, mode=mode)
            pool = self.connect(info)
            for name, kind, method, data in self.methods(self.victim, mode):
                try:
                    pool.execute(name, kind, method, data)
                except (errors.PermissionDeniedError, errors.PermissionError):
                    continue
                except errors.Error as error:
                    allowed.append((mode, name, method, type(error).__name__))
                else:
                    allowed.append((mode, name, method, "done"))
            self.driver.revoke(self.victim, export, [])
        self.assertEqual([], allowed)


@full_only("storage")
class OperationsTest(HeaderCase):
    """A host that only reads sends each kind of change to the data of its image."""

    def changes(self, pool, name):
        """Return calls that change an object, by name."""
        with_write, execute = bindings.load().rados.WriteOpCtx, pool.execute

        def by_operation(prepare):
            with with_write() as operation:
                prepare(operation)
                pool.operate_write_op(operation, name)

        return {
            "write": lambda: pool.write(name, b"x"),
            "write at an offset": lambda: pool.write(name, b"x", 2**22 - 1),
            "write_full": lambda: pool.write_full(name, b"x"),
            "writesame": lambda: pool.writesame(name, b"x", 512, 0),
            "append": lambda: pool.append(name, b"x"),
            "truncate": lambda: pool.trunc(name, 0),
            "remove": lambda: pool.remove_object(name),
            "setxattr": lambda: pool.set_xattr(name, "x", b"x"),
            "rmxattr": lambda: pool.rm_xattr(name, "x"),
            "new": lambda: by_operation(lambda operation: operation.new(0)),
            "zero": lambda: by_operation(lambda operation: operation.zero(0, 512)),
            "omap": lambda: by_operation(lambda item: pool.set_omap(item, ("x",), (b"x",))),
            "lock": lambda: pool.lock_exclusive(name, "x", "cookie"),
            "shared lock": lambda: pool.lock_shared(name, "x", "cookie", "tag"),
            "method": lambda: execute(name, "hello", "record_hello", b"x"),
            "reference": lambda: execute(name, "refcount", "get", text(b"x") + b"\0"),
            "watch": lambda: pool.watch(name, lambda *_: None),
            "snapshot": pool.create_self_managed_snap,
        }

    def test_no_operation_of_a_reader_changes_data(self):
        self.write_block(self.victim, LOCK)
        (name, *_) = self.cluster.objects(object_names.data_prefix(self.id_of(self.victim)))
        with self.cluster.pool() as trusted:
            before = trusted.read(name, 2**22)
            _, info = self.granted(self.victim, mode="ro")
            pool, errors = self.connect(info), bindings.load().rados
            self.assertEqual(before, pool.read(name, 2**22))
            done = []
            for change, call in self.changes(pool, name).items():
                try:
                    call()
                except (errors.PermissionDeniedError, errors.PermissionError):
                    continue
                except errors.Error as error:
                    done.append((change, type(error).__name__))
                else:
                    done.append((change, "done"))
            self.assertEqual([], done)
            self.assertEqual(before, trusted.read(name, 2**22))

    def test_host_neither_creates_nor_deletes_snapshots_of_the_pool(self):
        rbd, errors = bindings.load().rbd, bindings.load().rados
        with self.cluster.pool() as trusted:
            with rbd.Image(trusted, self.name(self.target)) as image:
                image.create_snap("kept")
                self.addCleanup(self.remove_snapshot)
                (snapshot,) = image.list_snaps()
                image.write(b"later".ljust(4096, b"."), OFFSET)
            for mode in ("ro", "rw"):
                export, info = self.granted(self.victim, mode=mode)
                pool = self.connect(info)
                for change in (
                    pool.create_self_managed_snap,
                    functools.partial(pool.remove_self_managed_snap, snapshot["id"]),
                    functools.partial(pool.create_snap, "x"),
                ):
                    refusals = (errors.PermissionDeniedError, errors.PermissionError)
                    self.assertRaises(refusals, change)
                self.driver.revoke(self.victim, export, [])
            with rbd.Image(trusted, self.name(self.target), snapshot="kept") as image:
                self.assertEqual(b"secret", image.read(OFFSET, 6))

    def remove_snapshot(self):
        with (
            self.cluster.pool() as pool,
            bindings.load().rbd.Image(pool, self.name(self.target)) as image,
        ):
            image.remove_snap("kept")
