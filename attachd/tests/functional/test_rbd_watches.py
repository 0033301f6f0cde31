# SPDX-License-Identifier: Apache-2.0
"""Clients that have images open, as OSDs tell it, and those that answer with too much."""

from pathlib import Path
import subprocess
import sys
from unittest import mock

from attachd.ceph import object_names
from attachd.drivers import command
from attachd.drivers.rbd import watch_worker
from attachd.tests.fixtures import initiators
from attachd.tests.functional.rbd_case import RbdCase
from attachd.tests.selection import full_only

ANSWER_BYTES = 60 * 2**20
PROGRAM = """
import ctypes, sys, time
conf, user, key, pool, name, size = sys.argv[1:]
lib = ctypes.CDLL("librados.so.2")
cluster, ioctx, handle = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
assert not lib.rados_create(ctypes.byref(cluster), user.encode())
assert not lib.rados_conf_read_file(cluster, conf.encode())
assert not lib.rados_conf_set(cluster, b"key", key.encode())
assert not lib.rados_connect(cluster)
assert not lib.rados_ioctx_create(cluster, pool.encode(), ctypes.byref(ioctx))
answer = ctypes.create_string_buffer(int(size))
number, pointer = ctypes.c_uint64, ctypes.c_void_p
notified = ctypes.CFUNCTYPE(None, pointer, number, number, number, pointer, ctypes.c_size_t)
failed = ctypes.CFUNCTYPE(None, pointer, number, ctypes.c_int)
lib.rados_notify_ack.argtypes = [
    pointer, ctypes.c_char_p, number, number, pointer, ctypes.c_int]
lib.rados_watch2.argtypes = [
    pointer, ctypes.c_char_p, pointer, notified, failed, pointer]

def answered(_argument, notification, cookie, *_others):
    lib.rados_notify_ack(
        ioctx, name.encode(), notification, cookie, ctypes.addressof(answer), int(size))

callbacks = notified(answered), failed(lambda *_: None)
assert not lib.rados_watch2(ioctx, name.encode(), ctypes.byref(handle), *callbacks, None)
print("watching", flush=True)
time.sleep(600)
"""


@full_only("storage")
class WatchesTest(RbdCase):
    """The driver's own process on a real cluster."""

    def setUp(self):
        super().setUp()
        self.host = self.useFixture(initiators.RbdHost(self, "b"))
        self.target = self.volume()
        self.export, self.info = self.granted(self.target)
        self.images = self.driver._pools.find(self.target)
        self.commands = []
        run = command.run

        def recorded(line, *arguments, **options):
            self.commands.append(line)
            return run(line, *arguments, **options)

        patched = mock.patch.object(command, "run", recorded)
        patched.start()
        self.addCleanup(patched.stop)

    def watches(self):
        return self.images.watches(self.target.id)

    def test_command_runs_only_for_an_image_that_a_client_has_open(self):
        self.assertEqual((), self.watches())
        self.assertEqual([], self.commands)
        opened = initiators.OpenImage(self.host, self.info)
        self.assertEqual(1, len(self.watches()))
        self.assertEqual(1, len(self.commands))
        opened.close()
        self.assertEqual((), self.watches())
        self.assertEqual(1, len(self.commands))

    def test_client_that_answers_with_much_is_found_and_ended(self):
        host = self.start_host(ANSWER_BYTES)
        self.assertEqual(1, len(self.watches()))
        asked = self.driver._watch_requests._worker
        limits = Path(f"/proc/{asked._process.pid}/limits").read_text(encoding="utf-8")
        self.assertRegex(limits, rf"Max data size +{watch_worker.MAX_DATA_BYTES} ")
        self.driver.revoke(self.target, self.export, [])
        self.assertEqual((), self.watches())
        self.assertIsNone(host.poll())

    def start_host(self, size):
        """Start a host that watches the image, and answers with so many bytes."""
        data = self.info["data"]
        pool, _, name = data["name"].partition("/")
        key = data["keyring"].partition("key = ")[2].strip()
        header = object_names.header_name(self.images.find(self.target.id).id)
        host = subprocess.Popen(
            [
                *(sys.executable, "-c", PROGRAM, f"{self.cluster.conf}"),
                *(data["auth_username"], key, pool, header, f"{size}"),
            ],
            stdout=subprocess.PIPE,
        )
        self.addCleanup(host.communicate)
        self.addCleanup(host.kill)
        self.assertEqual(b"watching\n", host.stdout.readline(), name)
        return host
