# SPDX-License-Identifier: Apache-2.0
"""Methods of object classes that a host calls with the key of its attachment.

A right to call methods that read must not be one to call those that write: these change objects
without the right to write, such as the configuration of all images in a pool.
"""

import struct

from attachd.ceph import bindings, object_names
from attachd.tests.functional.test_rbd_headers import HeaderCase
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
