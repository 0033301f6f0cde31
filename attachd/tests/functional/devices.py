# SPDX-License-Identifier: Apache-2.0
"""A tgtd, a volume and a host that makes block devices of it; for tests of connectors."""

from pathlib import Path
import secrets
import uuid

import fixtures
from oslo_config import cfg
import testtools

from attachd.agent.connectors.base import Options
from attachd.agent.host import make_connector
from attachd.drivers import base
from attachd.drivers.tgt.driver import TgtDriver
from attachd.tests import machine, wait
from attachd.tests.functional import tgtd

MIB = 2**20
GIB = 2**30
OPTIONS = Options()


def processes_of(folder):
    """List the command lines that name something in a folder."""
    lines = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = each.read_bytes()
        except OSError:
            continue
        if f"{folder}/".encode() in line:
            lines.append(line.decode(errors="replace"))
    return lines


def left_on_host(folder):
    """List processes, mounts, loop devices and files that a host did not take away."""
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    backings = []
    for each in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            backings.append(each.read_text(encoding="utf-8"))
        except OSError:
            continue
    files = [f"{each}" for each in (folder / "devices").glob("*")]
    found = [each for each in mounts + backings if f"{folder}/" in each]
    return processes_of(folder) + found + files


def pages(device, offset, length):
    """Read from a device or file."""
    with Path(device).open("rb", buffering=0) as file:
        file.seek(offset)
        return file.read(length)


def put(device, offset, data):
    """Write to a device, and leave it to the kernel when it gets to the disk."""
    with Path(device).open("r+b", buffering=0) as file:
        file.seek(offset)
        file.write(data)


class DeviceCase(testtools.TestCase):
    """A volume of 1 GiB, and hosts without a kernel initiator."""

    def setUp(self):
        super().setUp()
        machine.need_root(self)
        machine.share_mounts(self)
        machine.need_device(self, "/dev/fuse")
        machine.need_device(self, "/dev/loop-control")
        machine.need_tool(self, "qemu-storage-daemon")
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.tgtd = self.useFixture(tgtd.Tgtd(self))
        self.driver = self.new_driver()
        self.volume = base.VolumeRef(f"{uuid.uuid4()}", 1)
        self.driver.create(self.volume)
        self.connector = self.new_connector(self.folder)

    def new_driver(self):
        return self.driver_of(TgtDriver, self.tgtd.options)

    @staticmethod
    def driver_of(kind, options):
        """Set up a driver with its options."""
        conf = cfg.ConfigOpts()
        conf([], project="attachd", default_config_files=[])
        conf.register_opts(kind.OPTIONS, group="own")
        for name, value in options.items():
            conf.set_override(name, value, group="own")
        driver = kind("own", conf)
        driver.setup()
        return driver

    def new_connector(self, folder, initiator=None):
        """Return the connector of a host, which is cleaned up after the test."""
        return make_connector("user-space", folder, initiator)

    def export(self, connector=None, mode="rw"):
        """Let a host in; return the export and what the host is told of it."""
        connector = connector or self.connector
        properties = connector.get_connector_properties("host", OPTIONS)
        export = base.Export(f"{uuid.uuid4()}", properties, mode, secrets.token_hex(16))
        told = self.driver.grant(self.volume, export)
        info = {
            **told["data"],
            "driver_volume_type": told["driver_volume_type"],
            "attachment_id": export.attachment_id,
        }
        self.addCleanup(self.clean_up, connector, export, dict(info))
        return export, info

    def clean_up(self, connector, export, info):
        """Take away what a test left."""
        connector.disconnect(info, OPTIONS, None, force=True)
        self.driver.revoke(self.volume, export, [])

    def on_backend(self, offset, length):
        """Read from the volume's own file."""
        return pages(Path(self.tgtd.options["tgt_volumes_dir"]) / self.volume.id, offset, length)

    def assert_nothing_is_left(self):
        """Look at the host at once, and at the backend when it has heard of it."""
        self.assertEqual([], left_on_host(self.folder))
        wait.wait_until(lambda: not self.tgtd.sessions(), self.tgtd.sessions)
