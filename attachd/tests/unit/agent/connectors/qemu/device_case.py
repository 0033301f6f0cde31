# SPDX-License-Identifier: Apache-2.0
"""A test case with a plain file as a volume, and the directory of its device."""

import os
from pathlib import Path

import fixtures

from attachd.agent.connectors.qemu import storage_daemon
from attachd.tests.fixtures import requirements, user_space_devices

SIZE = 2**20


class DeviceCase(fixtures.TestWithFixtures):
    """The file and the directory; storage daemons can be started.

    :ivar folder: the directory
    :ivar lock: its file descriptor
    :ivar volume: the file, of SIZE zeros
    """

    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        requirements.share_mounts(self)
        requirements.require_device(self, "/dev/fuse")
        requirements.require_tool(self, storage_daemon.TOOL)
        self.folder = Path(self.useFixture(fixtures.TempDir()).path).resolve() / "device"
        self.folder.mkdir()
        self.lock = os.open(self.folder, os.O_RDONLY)
        self.addCleanup(os.close, self.lock)
        self.volume = self.folder.parent / "volume"
        self.volume.write_bytes(bytes(SIZE))
        user_space_devices.permit_file(self, self.volume)
