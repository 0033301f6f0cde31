# SPDX-License-Identifier: Apache-2.0
"""Tests of data on disk: HTTP to a served API, then I/O as its response describes."""

from pathlib import Path
import secrets
import subprocess

import openstack
from openstack import exceptions
import testtools

from attachd.drivers import loop
from attachd.tests import wait
from attachd.tests.contract import backends
from attachd.tests.fixtures import (
    deployments,
    http_client,
    initiators,
    lifetime,
    processes,
    requirements,
    tgtd,
)
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

MIB = 2**20
GIB = 2**30

SETTINGS = """\
[DEFAULT]
enabled_backends = {name}
[manager]
report_interval = 1
service_down_time = 600
[{name}]
driver = {name}
"""


def settings(name, options):
    """Return the configuration of one backend, named after its driver."""
    lines = [f"{option} = {value}\n" for option, value in options.items()]
    return SETTINGS.format(name=name) + "".join(lines)


class Case(testtools.TestCase):
    """A served API, and hosts that use its connection info."""

    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)

    def serve(self, configuration):
        """Start all-in-one and return its URL."""
        served = deployments.AllInOne.configured(self, configuration)
        served.show_in_failures(self)
        return served.url

    def connect(self, configuration):
        self.api = http_client.Client(f"{self.serve(configuration)}/v3")
        sdk = openstack.connect(
            auth_type="none",
            endpoint=self.api.url,
            load_envvars=False,
            load_yaml_config=False,
            app_name="attachd-tests",
        )
        self.addCleanup(sdk.close)
        self.sdk = sdk.block_storage

    def attach(self, volume, host):
        """Let a host in as Nova does; return the attachment and the connection info."""
        attachment = self.sdk.create_attachment(volume)
        result = self.sdk.update_attachment(attachment, connector=host.connector).connection_info
        return attachment, {"driver_volume_type": result["driver_volume_type"], "data": result}


class IscsiCase(Case):
    """tgtd, a volume and two hosts: one logs in for each command, one has a block device."""

    def setUp(self):
        super().setUp()
        self.tgtd = self.useFixture(tgtd.Tgtd(self))
        self.a = self.useFixture(initiators.IscsiHost(self, "host-a"))
        self.b = self.useFixture(initiators.DeviceHost(self, "host-b"))
        self.connect(settings("tgt", self.tgtd.options))
        self.volume = self.api.create_volume()

    def assert_nothing_is_exported(self):
        self.assertEqual([], self.tgtd.sessions() + self.tgtd.accounts() + self.tgtd.targets())


class LifeTest(IscsiCase):
    """Attach, write, detach, attach elsewhere, read."""

    def test_data_written_by_one_host_is_read_by_the_next(self):
        data = secrets.token_bytes(2 * MIB)
        first, info_a = self.attach(self.volume, self.a)
        self.sdk.complete_attachment(first)
        self.assertEqual("in-use", self.api.volume(self.volume)["status"])
        self.a.write(info_a, 500 * MIB, data)
        self.sdk.delete_attachment(first)
        self.assert_nothing_is_exported()
        self.assertEqual("available", self.api.volume(self.volume)["status"])

        second, info_b = self.attach(self.volume, self.b)
        self.sdk.complete_attachment(second)
        device = {"data": {"device_path": self.b.attach(info_b)}}
        local = initiators.LocalHost("host-b")
        self.assertEqual(data, local.read(device, 500 * MIB, len(data)))
        self.assertRaises(initiators.Refused, self.a.read, info_a, 0, 512)

        local.write(device, 0, data)
        self.b.detach()
        self.sdk.delete_attachment(second)
        self.assert_nothing_is_exported()
        self.assertRaises(initiators.Refused, self.b.attach, info_b)

        third, info_a = self.attach(self.volume, self.a)
        self.assertEqual(data, self.a.read(info_a, 0, len(data)))
        self.sdk.delete_attachment(third)
        self.sdk.delete_volume(self.volume)
        self.api.wait_for(self.volume, "gone")
        self.assertEqual([], self.tgtd.orphans())

    def test_detach_closes_the_session_of_a_logged_in_host(self):
        attachment, info = self.attach(self.volume, self.a)
        session = self.a.log_in(info)
        self.addCleanup(session.kill)
        self.assertEqual([self.a.connector["initiator"]], self.tgtd.sessions())
        self.sdk.delete_attachment(attachment)
        self.assert_nothing_is_exported()


@full_only("deployments")
class DeployedLifeTest(LifeTest):
    """The same with the API under uWSGI, a manager with two workers, RabbitMQ and MariaDB."""

    def serve(self, configuration):
        """Start it and return its URL."""
        deployment = deployments.Deployment(self, "mariadb", backend="tgt")
        with (deployment.folder / "attachd.conf").open("a", encoding="utf-8") as file:
            file.write(configuration)
        for served in (deployment.start_manager(), deployment.start_uwsgi()):
            served.show_in_failures(self)
        deployment.wait_until_served()
        return deployment.url


@full_only("hosts")
class ConnectionFormatsTest(IscsiCase):
    """The outputs of attachment-show, used by QEMU's tools."""

    def show(self, attachment, form):
        environment = {"OS_AUTH_TYPE": "none", "OS_ENDPOINT": self.api.url}
        done = subprocess.run(
            [processes.script("attachd"), "attachment-show", attachment.id, "--format", form],
            capture_output=True,
            check=True,
            cwd=self.folder,
            env=processes.environment(**environment),
            text=True,
            timeout=wait.TIMEOUT,
        )
        return done.stdout.strip()

    def qemu_io(self, image, *more):
        command = ["qemu-io", "-c", "read -P 7 1M 4096", *more, image]
        done = subprocess.run(
            command, capture_output=True, check=False, text=True, timeout=wait.TIMEOUT
        )
        return done.returncode, done.stdout + done.stderr

    def test_url_and_blockdev_reach_the_data_with_the_secret_alone(self):
        # QEMU's tools log in by this name if a URL is all that they get.
        self.a.connector["initiator"] = "iqn.2008-11.org.linux-kvm"
        attachment, info = self.attach(self.volume, self.a)
        password = info["data"]["auth_password"]
        self.a.write(info, MIB, b"\7" * 4096)
        url, qemu = (self.show(attachment, form) for form in ("url", "qemu"))
        libvirt = self.show(attachment, "libvirt")
        for text in (url, qemu, libvirt):
            self.assertNotIn(password, text)
        code, said = self.qemu_io(url.replace("SECRET", password), "-f", "raw")
        self.assertEqual(0, code, said)
        self.assertIn("read 4096/4096", said)
        self.assertNotEqual(0, self.qemu_io(url, "-f", "raw")[0])
        image = "json:" + qemu.replace("INITIATOR", self.a.connector["initiator"])
        secret = ("--object", f"secret,id=secret,data={password}")
        code, said = self.qemu_io(image, *secret)
        self.assertEqual(0, code, said)
        self.assertIn("read 4096/4096", said)


class WhileAttachedTest(IscsiCase):
    """What can happen between attach and detach."""

    def test_login_with_wrong_secret_is_refused(self):
        _attachment, info = self.attach(self.volume, self.a)
        self.a.read(info, 0, 512)
        info["data"]["auth_password"] = secrets.token_hex(16)
        error = self.assertRaises(initiators.Refused, self.a.read, info, 0, 512)
        self.assertIn("uthentication", f"{error}")

    def test_extend_of_attached_volume_shows_new_size_to_the_host(self):
        attachment, info = self.attach(self.volume, self.a)
        self.sdk.complete_attachment(attachment)
        session = self.a.log_in(info)
        self.a.command(session, "write -P 7 0 4096")
        self.sdk.extend_volume(self.volume, 2)
        self.api.wait_for_size(self.volume, 2)
        self.assertEqual("in-use", self.api.volume(self.volume)["status"])
        self.assertEqual(2 * GIB, self.a.size(info))
        self.assertIn("wrote 4096", self.a.command(session, "write -P 8 4096 4096"))
        self.a.write(info, GIB + MIB, b"beyond" * 1024)
        self.assertEqual(b"\7" * 4096 + b"\10" * 4096, self.a.read(info, 0, 8192))

    def test_exports_after_tgtd_kill_are_restored_for_hosts(self):
        second = self.api.create_volume()
        _attachment, info_a = self.attach(self.volume, self.a)
        _attachment, info_b = self.attach(second, self.b)
        session = self.a.log_in(info_a)
        self.a.command(session, "write -P 7 0 4096")
        device = {"data": {"device_path": self.b.attach(info_b)}}
        local = initiators.LocalHost("host-b")
        local.write(device, 0, b"before" * 1024)

        self.tgtd.restart()
        self.assertEqual([], self.tgtd.targets())
        expected = {info["data"]["target_iqn"] for info in (info_a, info_b)}
        wait_until(lambda: self.healed() == expected, self.healed)
        self.assertIn("read 4096", self.a.command(session, "read -P 7 0 4096"))
        self.assertEqual(b"\7" * 4096, self.a.read(info_a, 0, 4096))
        self.assertEqual(b"before" * 1024, local.read(device, 0, 6144))
        local.write(device, 4 * MIB, b"after." * 1024)
        info_a["data"]["auth_password"] = secrets.token_hex(16)
        self.assertRaises(initiators.Refused, self.a.read, info_a, 0, 512)

    def healed(self):
        """Return the targets that let a host in, which is the last thing that a grant does."""
        return {target.name for target in self.tgtd.targets() if target.initiators}


@full_only("hosts")
class LoopDeviceTest(Case):
    """The file driver, and two hosts that are this machine."""

    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        requirements.share_mounts(self)
        requirements.require_device(self, "/dev/loop-control")
        self.a, self.b = initiators.LocalHost("host-a"), initiators.LocalHost("host-b")
        self.addCleanup(self.free_devices)
        options = {"file_loop_devices": "always", "file_devices_dir": f"{self.folder / 'names'}"}
        self.connect(settings("file", options))
        self.volume = self.api.create_volume()

    def devices(self):
        """List the files of loop devices that are ours."""
        ours = f"{self.folder}/"
        return [
            Path(loop_backing)
            for loop_backing in backends.loop_backings()
            if loop_backing.startswith(ours)
        ]

    def free_devices(self):
        for backing in self.devices():
            loop.detach(backing)

    def test_data_written_by_one_host_is_read_by_the_next(self):
        data = secrets.token_bytes(2 * MIB)
        first, info_a = self.attach(self.volume, self.a)
        self.sdk.complete_attachment(first)
        self.assertTrue(Path(info_a["data"]["device_path"]).is_block_device())
        self.a.write(info_a, 500 * MIB, data)
        self.sdk.delete_attachment(first)
        self.assertEqual([], self.devices())
        self.assertRaises(initiators.Refused, self.a.read, info_a, 0, 512)

        second, info_b = self.attach(self.volume, self.b)
        self.sdk.complete_attachment(second)
        self.assertEqual(data, self.b.read(info_b, 500 * MIB, len(data)))
        self.sdk.extend_volume(self.volume, 2)
        self.api.wait_for_size(self.volume, 2)
        self.assertEqual(2 * GIB, self.b.size(info_b))
        self.b.write(info_b, GIB + MIB, data)
        self.sdk.delete_attachment(second)
        self.sdk.delete_volume(self.volume)
        self.api.wait_for(self.volume, "gone")
        self.assertEqual([], self.devices())
        left = [path for path in self.folder.rglob("*") if path.name == self.volume]
        self.assertEqual([], left)

    def test_detach_with_busy_loop_device_is_refused(self):
        attachment, info = self.attach(self.volume, self.a)
        with Path(info["data"]["device_path"]).open("rb"):
            error = self.assertRaises(
                exceptions.ConflictException, self.sdk.delete_attachment, attachment
            )
            self.assertIn("still mounted or open", f"{error}")
            self.assertEqual("error", self.api.volume(self.volume)["status"])
        self.sdk.delete_attachment(attachment)
        self.assertEqual("available", self.api.volume(self.volume)["status"])
        self.assertEqual([], self.devices())


class LostDataTest(Case):
    """The file driver, and a volume whose file was removed."""

    def reset(self, status, parameters="", **headers):
        path = f"/volumes/{self.volume}/action{parameters}"
        return self.api.request("POST", path, {"os-reset_status": status}, headers)

    def test_reset_to_available_without_data_is_refused(self):
        data = self.folder / "data"
        data.mkdir()
        self.connect(settings("file", {"file_folder": data, "file_loop_devices": "never"}))
        self.volume = self.api.create_volume()
        available = {"status": "available"}
        self.assertEqual(202, self.reset({"status": "error"}).status)
        self.assertEqual(202, self.reset(available).status)
        (file,) = data.rglob(f"*{self.volume}*")
        file.unlink()
        self.assertEqual(202, self.reset({"status": "error"}).status)
        refused = self.reset(available)
        self.assertEqual(409, refused.status)
        self.assertIn("Backend file has no data of the volume.", refused.message)
        self.assertEqual("error", self.api.status(self.volume))
        self.assertEqual(202, self.reset({"attach_status": "detached"}).status)
        own = {"OpenStack-API-Version": "volume 3.71, attachd 1.0"}
        self.assertEqual(202, self.reset(available, "?force=true", **own).status)
        self.assertEqual("available", self.api.status(self.volume))
