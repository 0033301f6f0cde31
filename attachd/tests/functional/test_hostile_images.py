# SPDX-License-Identifier: Apache-2.0
"""Tests of images whose header a host with their key has written, attached by another host."""

import json
from pathlib import Path

import fixtures

from attachd import exception
from attachd.agent.connectors import ceph_header
from attachd.agent.connectors.base import Options
from attachd.agent.host import make_connector
from attachd.ceph import bindings
from attachd.tests.fixtures import requirements
from attachd.tests.fixtures.user_space_devices import list_orphans
from attachd.tests.functional.rbd_case import RbdCase

OPTIONS = Options()
SECRET = b"only root of this host can read this"
_KEYS = ("migration", "features")


class ImportHeaderTest(RbdCase):
    """A header that lets librbd read the data out of another place."""

    def setUp(self):
        super().setUp()
        requirements.require_user_space_devices(self)
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.file = self.folder / "secret"
        self.file.write_bytes(SECRET.ljust(4096, b"."))
        self.file.chmod(0o600)
        self.connector = make_connector("user-space", self.folder, None)
        self.tested = self.volume()
        _, granted = self.granted(self.tested)
        self.info = {
            **granted["data"], "driver_volume_type": "rbd", "attachment_id": "hostile"
        }  # fmt: skip
        self.addCleanup(self.connector.disconnect, self.info, OPTIONS, None, force=True)

    def write_header(self, stream):
        """Write an import header, as the key of the attachment permits."""
        pool, _, name = self.info["name"].partition("/")
        modules = bindings.load()
        spec = {"type": "raw", "stream": stream}
        with self.cluster.pool(pool) as ioctx:
            rbd = modules.rbd.RBD()
            sample = f"{name}.sample"
            rbd.migration_prepare_import(json.dumps(spec), ioctx, sample)
            try:
                values = self.read_omap(ioctx, sample)
            finally:
                rbd.migration_abort(ioctx, sample)
        host = modules.rados.Rados(
            conffile=f"{self.cluster.conf}",
            name=f"client.{self.info['auth_username']}",
            conf={"key": self.info["keyring"].split("key = ")[1].strip()},
        )
        host.connect()
        self.addCleanup(host.shutdown)
        with self.cluster.pool(pool) as ioctx:
            self.addCleanup(self.restore_header, pool, name, self.read_omap(ioctx, name))
        with host.open_ioctx(pool) as ioctx:
            self.write_omap(ioctx, name, values)

    def restore_header(self, pool, name, values):
        self.connector.disconnect(self.info, OPTIONS, None, force=True)
        with self.cluster.pool(pool) as ioctx:
            with bindings.load().rados.WriteOpCtx() as operation:
                ioctx.remove_omap_keys(operation, _KEYS)
                ioctx.operate_write_op(operation, self.header(name))
            self.write_omap(ioctx, name, values)

    def write_omap(self, ioctx, name, values):
        with bindings.load().rados.WriteOpCtx() as operation:
            ioctx.set_omap(operation, tuple(values), tuple(values.values()))
            ioctx.operate_write_op(operation, self.header(name))

    def read_omap(self, ioctx, name):
        with bindings.load().rados.ReadOpCtx() as operation:
            found, _ = ioctx.get_omap_vals_by_keys(operation, _KEYS)
            ioctx.operate_read_op(operation, self.header(name))
            return dict(found)

    def header(self, name):
        pool, _, _ = self.info["name"].partition("/")
        with self.cluster.pool(pool) as ioctx:
            return f"rbd_header.{ioctx.read(f'rbd_id.{name}')[4:].decode()}"

    def test_image_with_import_header_is_not_opened(self):
        self.write_header({"type": "file", "file_path": f"{self.file}"})
        with self.assertRaisesRegex(exception.HostError, "changed by a host: features, migration"):
            self.connector.connect(self.info, OPTIONS)
        self.assertEqual([], list_orphans(self.folder))

    def test_header_that_changes_after_the_check_shows_no_file_of_the_host(self):
        self.write_header({"type": "file", "file_path": f"{self.file}"})
        self.useFixture(fixtures.MonkeyPatch(f"{ceph_header.__name__}.check", lambda _: None))
        # QEMU's librbd looks for the file in the sandbox.
        with self.assertRaisesRegex(exception.HostError, "No such file"):
            self.connector.connect(self.info, OPTIONS)
        self.assertEqual([], list_orphans(self.folder))

    def test_connection_without_stored_header_is_refused(self):
        del self.info["image"]
        with self.assertRaisesRegex(exception.HostError, "does not say what the header"):
            self.connector.connect(self.info, OPTIONS)

    def test_wrong_key_is_an_error_that_names_the_image(self):
        self.info["keyring"] = "[client.x]\n\tkey = AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==\n"
        self.useFixture(fixtures.MonkeyPatch(f"{ceph_header.__name__}._TIMEOUT", 2))
        with self.assertRaisesRegex(exception.HostError, f"{self.tested.id} could not be read"):
            self.connector.connect(self.info, OPTIONS)
