# SPDX-License-Identifier: Apache-2.0
"""Volumes of the driver nfs on a real server, and hosts that speak NFS in user space.

The manager has the server's directory as its mount: the kernel of a test machine may have no NFS.
"""

import fcntl
import hashlib
from pathlib import Path
import secrets
import uuid

import fixtures
import testtools

from attachd import exception
from attachd.agent.host import make_connector
from attachd.drivers import base
from attachd.drivers.nfs.driver import NfsDriver
from attachd.linux import sandbox
from attachd.tests.fixtures import (
    deployments,
    http_client,
    initiators,
    lifetime,
    nfs_server,
    printed_connections,
    processes,
    requirements,
    systemd_units,
)
from attachd.tests.fixtures.user_space_devices import (
    GIB,
    MIB,
    OPTIONS,
    UserSpaceDeviceCase,
    assert_confined,
    list_orphans,
    read_at,
    write_at,
)
from attachd.tests.functional import multiattach_case
from attachd.tests.functional.test_backend_data import settings
from attachd.tests.selection import full_only

_mount_points: list[Path] = []


def bind_mounted(lasting, folder):
    """Return the options of a backend on a directory that is mounted in place of a share."""
    mount_point = _mount(lasting, folder / "share", folder / "mnt")
    _mount_points.append(mount_point)
    return {"nfs_share": "127.0.0.1:/volumes", "nfs_mount_point": f"{mount_point}"}


def _mount(scope, share, mount_point):
    for path in (share, mount_point):
        path.mkdir(exist_ok=True)
    processes.check_output(["mount", "--bind", f"{share}", f"{mount_point}"])
    scope.addCleanup(processes.check_output, ["umount", "--lazy", f"{mount_point}"])
    return mount_point


@full_only("storage")
class ServedTest(multiattach_case.MultiattachCase):
    """The driver behind a served API."""

    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        self.api = multiattach_case.serve_backend(self, "nfs", bind_mounted)
        self.a, self.b = (
            initiators.MountHost(name, _mount_points[-1]) for name in ("host-a", "host-b")
        )

    def test_hosts_share_volume_until_each_is_detached(self):
        volume = self.create_multiattach_volume()
        first, info_a = self.attach(volume, self.a)
        second, info_b = self.attach(volume, self.b)
        self.assertEqual("nfs", info_a["driver_volume_type"])
        self.a.write(info_a, MIB, b"from a")
        self.assertEqual(b"from a", self.b.read(info_b, MIB, 6))
        self.detach(first)
        self.assertRaises(initiators.Refused, self.a.read, info_a, MIB, 6)
        self.b.write(info_b, MIB, b"from b")
        self.detach(second)
        self.assertRaises(initiators.Refused, self.b.read, info_b, MIB, 6)

    def test_read_only_attachment_is_refused_with_reason(self):
        volume = self.create_multiattach_volume()
        wanted = {
            "volume_uuid": volume,
            "instance_uuid": f"{uuid.uuid4()}",
            "connector": self.a.connector,
            "mode": "ro",
        }
        answer = self.api.request("POST", "/attachments", {"attachment": wanted})
        self.assertEqual(400, answer.status, answer.message)
        self.assertIn("NFS share", answer.message)


@full_only("storage")
class PoolsTest(testtools.TestCase):
    """A backend that gets a second share."""

    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        self.folder = lifetime.temp_dir(self)
        self.points = {
            name: _mount(self, self.folder / name, self.folder / f"mnt-{name}")
            for name in ("first", "second")
        }

    def start(self, **more):
        options = {"nfs_share": "127.0.0.1:/first", "nfs_mount_point": self.points["first"]}
        own = self.folder / "own.conf"
        own.write_text(settings("nfs", {**options, **more}))
        served = deployments.AllInOne(self, self.folder / "state", f"--config-file={own}")
        served.show_in_failures(self)
        return served, http_client.Client(f"{served.url}/v3")

    def connected(self, api, volume, pool):
        """Attach a volume; return its host and the connection info."""
        host = initiators.MountHost("host", self.points[pool])
        wanted = {"volume_uuid": volume, "connector": host.connector}
        made = api.request_json("POST", "/attachments", {"attachment": wanted})["attachment"]
        info = made["connection_info"]
        self.assertEqual(f"127.0.0.1:/{pool}", info["export"])
        return host, {"driver_volume_type": "nfs", "data": info}

    def test_volumes_stay_reachable_and_new_ones_get_a_pool(self):
        served, api = self.start()
        old = api.create_volume()
        self.assertEqual("all-in-one@nfs#nfs", api.volume(old)["os-vol-host-attr:host"])
        (self.points["first"] / "volumes" / old).write_bytes(b"old")
        served.end()

        points = f"second:{self.points['second']}"
        _served, api = self.start(
            nfs_pools="second:127.0.0.1:/second", nfs_pool_mount_points=points
        )
        self.assertEqual(
            {"all-in-one@nfs#nfs", "all-in-one@nfs#second"},
            {it["name"] for it in api.request_json("GET", "/scheduler-stats/get_pools")["pools"]},
        )
        host, info = self.connected(api, old, "first")
        self.assertEqual(b"old", host.read(info, 0, 3))

        wanted = {"name": "second", "extra_specs": {"pool_name": "second"}}
        api.request_json("POST", "/types", {"volume_type": wanted})
        new = api.create_volume(volume_type="second")
        self.assertEqual([new], [f.name for f in (self.points["second"] / "volumes").glob("*-*")])
        host, info = self.connected(api, new, "second")
        host.write(info, 0, b"new")
        self.assertEqual(b"new", read_at(self.folder / "second" / "volumes" / new, 0, 3))
        (self.points["second"] / "volumes" / "manageable" / "disk").write_bytes(b"disk")
        reference = {"source-name": "second/disk"}
        body = {"volume": {"host": "all-in-one@nfs", "ref": reference}}
        volume = api.request_json("POST", "/manageable_volumes", body)["volume"]["id"]
        api.wait_for(volume, "available")
        self.assertEqual("all-in-one@nfs#second", api.volume(volume)["os-vol-host-attr:host"])
        self.connected(api, volume, "second")


@full_only("storage")
class RightsTest(testtools.TestCase):
    """The drop-in for a manager that mounts shares."""

    def mount(self, *capabilities):
        """Mount what no server exports, with these capabilities; return the error."""
        folder = lifetime.temp_dir(self)
        added = "".join(f",+{name.removeprefix('CAP_').lower()}" for name in capabilities)
        line = ["mount", "-t", "nfs", "-o", f"vers=4.2,retry=0,port={processes.free_port()}"]
        setpriv = requirements.require_tool(self, "setpriv")
        rights = ("--no-new-privs", f"--bounding-set=-all{added}", "--inh-caps=-all")
        return processes.run([setpriv, *rights, *line, "127.0.0.1:/volumes", f"{folder}"]).stderr

    def test_drop_in_suffices_to_mount(self):
        requirements.require_root(self)
        requirements.require_tool(self, "mount.nfs")
        unit = processes.ROOT / "etc" / "systemd" / "attachd-manager.service"
        drop_in = systemd_units.read_unit(unit.with_name(f"{unit.name}.d") / "nfs.conf")
        (capabilities,) = drop_in["CapabilityBoundingSet"]
        denied = "(?i)not permitted|denied|superuser"
        self.assertRegex(self.mount(), denied)
        # It asks the kernel, which has no server, or no NFS.
        self.assertRegex(self.mount(*capabilities.split()), "^mount.nfs: ")
        self.assertNotRegex(self.mount(*capabilities.split()), denied)


@full_only("storage")
class NfsTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        requirements.require_device(self, "/dev/fuse")
        requirements.require_device(self, "/dev/loop-control")
        requirements.require_tool(self, "qemu-storage-daemon")
        self.server = self.useFixture(nfs_server.NfsServer(self))
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)
        mount_point = _mount(self, self.server.folder, self.folder / "mnt")
        options = {"nfs_share": self.server.share, "nfs_mount_point": f"{mount_point}"}
        self.driver = UserSpaceDeviceCase.driver_of(NfsDriver, options)
        self.addCleanup(self.driver.close)
        self.volume = base.VolumeRef(f"{uuid.uuid4()}", 1)
        self.driver.create(self.volume)
        # All that it starts has to reach the server.
        self.enterContext(self.server.entered())

    def connected(self, name):
        """Attach the volume to a host; return what ends it as well."""
        connector = make_connector("user-space", self.folder / name)
        properties = connector.get_connector_properties(name, OPTIONS)
        export = base.Export(f"{uuid.uuid4()}", properties)
        data = self.driver.grant(self.volume, export)["data"]
        info = {**data, "driver_volume_type": "nfs", "attachment_id": export.attachment_id}
        self.addCleanup(connector.disconnect, info, OPTIONS, None, force=True)
        return connector, export, info, connector.connect(info, OPTIONS)

    def test_data_of_one_host_is_read_by_the_next(self):
        data = secrets.token_bytes(5 * MIB)
        connector, export, info, device = self.connected("first")
        assert_confined(self, self.folder / "first", capabilities=1 << sandbox.NET_BIND_SERVICE)
        self.assertEqual(device, connector.connect(info, OPTIONS))
        write_at(device.path, 7 * MIB + 512, data)
        connector.disconnect(info, OPTIONS, device)
        self.assertEqual([], list_orphans(self.folder / "first"))
        volume_file = self.server.folder / "volumes" / self.volume.id
        self.assertEqual(data, read_at(volume_file, 7 * MIB + 512, len(data)))
        self.driver.revoke(self.volume, export, [])
        error = self.assertRaises(exception.HostError, connector.connect, info, OPTIONS)
        self.assertIn(info["name"], f"{error}")

        connector, _export, info, device = self.connected("second")
        self.assertEqual(data, read_at(device.path, 7 * MIB + 512, len(data)))
        connector.disconnect(info, OPTIONS, device)

    def test_printed_connections_reach_the_data(self):
        export = base.Export(f"{uuid.uuid4()}", {"host": "a"})
        data = self.driver.grant(self.volume, export)["data"]
        info = {**data, "driver_volume_type": "nfs", "attachment_id": export.attachment_id}
        write_at(self.server.folder / "volumes" / self.volume.id, MIB, b"\7" * 4096)
        read_ok = "read 4096/4096"
        url = printed_connections.printed(info, "url")
        self.assertIn(read_ok, printed_connections.read("-f", "raw", url))
        image = printed_connections.printed(info, "qemu")
        self.assertIn(read_ok, printed_connections.read(f"json:{image}"))
        self.driver.revoke(self.volume, export, [])
        self.assertNotIn(read_ok, printed_connections.read("-f", "raw", url))

    def test_connected_device_does_not_grow_and_the_next_one_has(self):
        connector, export, info, device = self.connected("host")
        write_at(device.path, GIB - 512, b"kept" * 128)
        self.driver.extend(self.volume, 2, [export])
        error = self.assertRaises(exception.HostError, connector.extend, info, OPTIONS, device)
        self.assertIn("Detach the volume", f"{error}")
        connector.disconnect(info, OPTIONS, device)
        device = connector.connect(info, OPTIONS)
        self.assertEqual(b"kept" * 128, read_at(device.path, GIB - 512, 512))
        write_at(device.path, 2 * GIB - 512, b"new!" * 128)
        connector.disconnect(info, OPTIONS, device)
        self.assertEqual({self.volume.id: 2 * GIB}, self.driver.list_volumes())

    def test_two_hosts_write_to_one_volume_and_one_leaves(self):
        first, second = self.connected("first"), self.connected("second")
        for number, (connector, export, info, device) in enumerate((first, second)):
            write_at(device.path, number * MIB, bytes([number + 1]) * 4096)
            connector.disconnect(info, OPTIONS, device)
            self.driver.revoke(self.volume, export, [])
        volume_file = self.server.folder / "volumes" / self.volume.id
        for number in range(2):
            self.assertEqual(bytes([number + 1]) * 4096, read_at(volume_file, number * MIB, 4096))
        self.driver.delete(self.volume)
        self.assertEqual({}, self.driver.list_volumes())


@full_only("storage")
class ManageTest(testtools.TestCase):
    """A file of the server becomes a volume and a file again, by the API."""

    def setUp(self):
        super().setUp()
        requirements.require_user_space_devices(self)
        self.server = self.useFixture(nfs_server.NfsServer(self))
        self.folder = lifetime.temp_dir(self)
        mount_point = _mount(self, self.server.folder, self.folder / "mnt")
        options = {"nfs_share": self.server.share, "nfs_mount_point": f"{mount_point}"}
        served = deployments.AllInOne.configured(self, settings("nfs", options))
        served.show_in_failures(self)
        self.api = http_client.Client(f"{served.url}/v3")

    def read(self, volume, length):
        """Attach a volume to a host that speaks NFS, and read from its beginning."""
        connector = make_connector("user-space", self.folder / "host")
        properties = connector.get_connector_properties("host", OPTIONS)
        wanted = {"volume_uuid": volume, "connector": properties}
        made = self.api.request_json("POST", "/attachments", {"attachment": wanted})["attachment"]
        info = {**made["connection_info"], "attachment_id": made["id"]}
        with self.server.entered():
            device = connector.connect(info, OPTIONS)
            try:
                return read_at(device.path, 0, length)
            finally:
                connector.disconnect(info, OPTIONS, device)

    def detach(self, volume):
        path = f"/attachments?volume_id={volume}"
        for item in self.api.request_json("GET", path)["attachments"]:
            self.api.request_json("DELETE", f"/attachments/{item['id']}")

    def manage(self, name):
        reference = {"source-name": name}
        body = {"volume": {"host": "all-in-one@nfs", "ref": reference}}
        return self.api.request("POST", "/manageable_volumes", body)

    def test_file_is_managed_and_unmanaged_with_its_data(self):
        data = secrets.token_bytes(3 * MIB)
        digest = hashlib.sha256(data).digest()
        name, folder = "disk.raw", self.server.folder / "volumes" / "manageable"
        (folder / name).write_bytes(data)
        with (folder / name).open("rb") as file:
            fcntl.lockf(file, fcntl.LOCK_SH, 1, 100)
            refused = self.manage(name)
        self.assertEqual(400, refused.status, refused.message)
        self.assertIn("a host has a lock on it", refused.message)
        for _ in range(2):
            made = self.manage(name)
            self.assertEqual(202, made.status, made.message)
            volume = made.body["volume"]["id"]
            self.api.wait_for(volume, "available")
            self.assertEqual(digest, hashlib.sha256(self.read(volume, len(data))).digest())
            self.detach(volume)
            self.assertIn("already", self.manage(f"volume-{volume}").message)
            self.api.request("POST", f"/volumes/{volume}/action", {"os-unmanage": {}})
            self.api.wait_for(volume, "gone")
            name = f"volume-{volume}"
            found = hashlib.sha256(read_at(folder / name, 0, len(data))).digest()
            self.assertEqual(digest, found)
        self.assertEqual([name], [file.name for file in folder.iterdir()])
