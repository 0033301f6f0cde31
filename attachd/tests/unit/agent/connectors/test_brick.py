# SPDX-License-Identifier: Apache-2.0
"""The connector type kernel, as far as a machine without initiators can run it."""

import contextlib
from pathlib import Path
import select
import subprocess
import sys
import unittest
import uuid

import fixtures
from oslo_concurrency import processutils
from oslo_utils import importutils

from attachd import exception
from attachd.agent.connectors import brick, ceph_header
from attachd.agent.connectors.base import IDENTITY, Device, Options
from attachd.linux import block_device, commands, device_nodes

brick_exception = importutils.import_module("os_brick.exception")

SECRET = "a-secret-of-chap"
INFO = {
    "driver_volume_type": "iscsi",
    "target_portal": "127.0.0.1:1",
    "target_iqn": "iqn.2026-01.x:v",
    "target_lun": 1,
    "auth_method": "CHAP",
    "auth_username": "u",
    "auth_password": SECRET,
    "access_mode": "rw",
}
NVME = {
    "driver_volume_type": "nvmeof",
    "target_nqn": "nqn.2026-01.x:v",
    "vol_uuid": "7c4d0b36-9f8e-4a16-8d52-1f0e6a3b5c90",
    "portals": [["127.0.0.1", "4420", "tcp"]],
    # Else os-brick reads it, and makes the file if there is none.
    "host_nqn": "nqn.2026-01.x:host",
    "access_mode": "rw",
}
OPTIONS = Options()

_CALLER = """
import sys
from pathlib import Path
from os_brick.initiator import connector
from attachd.agent.connectors.base import Options
from attachd.agent.connectors.brick import BrickConnector

class Standing:
    def connect_volume(self, info):
        print("in", flush=True)
        sys.stdin.readline()
        return {"path": "/dev/null"}
    def get_volume_paths(self, info):
        return []

connector.InitiatorConnector.factory = lambda *_, **__: Standing()
shared = {"None": None, "True": True, "False": False}[sys.argv[2]]
info = {"driver_volume_type": "iscsi", "shared_targets": shared, "service_uuid": sys.argv[3]}
print("comes", flush=True)
sys.stdin.readline()
BrickConnector(Path(sys.argv[1])).connect(info, Options())
print("out", flush=True)
"""


class Standing:
    """A fake connector, which fails as configured."""

    def __init__(self, error=None, path=b"/dev/null"):
        self.calls, self.error, self.path = [], error, path

    def connect_volume(self, info):
        self.calls.append(("connect", info))
        if self.error:
            raise self.error
        return {"type": "block", "path": self.path}

    def disconnect_volume(self, info, known, *, force, ignore_errors):
        self.calls.append(("disconnect", known, force, ignore_errors))
        if self.error:
            raise self.error

    def extend_volume(self, info):
        return 2**30

    def get_volume_paths(self, info):
        return [self.path]


class Case(fixtures.TestWithFixtures):
    def setUp(self):
        super().setUp()
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.connector = brick.BrickConnector(self.folder)

    def stand(self, *arguments, **options):
        standing = Standing(*arguments, **options)
        factory = "os_brick.initiator.connector.InitiatorConnector.factory"
        self.useFixture(fixtures.MonkeyPatch(factory, lambda *_, **__: standing))
        devices = "os_brick.initiator.connectors.nvmeof.NVMeOFConnProps.get_devices"
        self.useFixture(fixtures.MonkeyPatch(devices, lambda *_: [standing.path.decode()]))
        return standing


class ConnectorTest(Case):
    """The connector properties that os-brick returns."""

    def test_connector_properties_come_from_os_brick(self):
        result = self.connector.get_connector_properties("me", Options(nic="lo"))
        self.assertEqual(("me", "127.0.0.1"), (result["host"], result["ip"]))
        self.assertIs(False, result["multipath"])

    def test_connector_properties_with_other_initiator_raise(self):
        result = {"initiator": "iqn.2026-01.x:machine"}
        name = "os_brick.initiator.connector.get_connector_properties"
        self.useFixture(fixtures.MonkeyPatch(name, lambda *_, **__: result))
        for right in (None, "iqn.2026-01.x:machine"):
            self.assertEqual(
                result,
                brick.BrickConnector(self.folder, right).get_connector_properties("me", OPTIONS),
            )
        with self.assertRaisesRegex(exception.HostError, "x:machine, not as iqn.2026-01.x:me"):
            brick.BrickConnector(self.folder, "iqn.2026-01.x:me").get_connector_properties(
                "me", OPTIONS
            )

    def test_enforced_multipath_without_multipathd_raises(self):
        error = processutils.ProcessExecutionError(cmd="multipathd show status", stderr="no\nway")
        name = "os_brick.initiator.connector.get_connector_properties"

        def fail(*_, **__):
            raise error

        self.useFixture(fixtures.MonkeyPatch(name, fail))
        with self.assertRaisesRegex(exception.HostError, "multipathd: no way"):
            self.connector.get_connector_properties(
                "me", Options(multipath=True, enforce_multipath=True)
            )


class LacksTest(Case):
    """Missing tools, by protocol."""

    def test_missing_requirements_name_commands_and_packages(self):
        self.useFixture(fixtures.MonkeyPatch("shutil.which", lambda *_, **__: None))
        self.useFixture(fixtures.MonkeyPatch("attachd.agent.connectors.brick._SYS", self.folder))
        for protocol, names in {
            "iscsi": ["iscsiadm (package open-iscsi)", brick._KERNEL_SCSI],
            "NVMeoF": ["nvme (package nvme-cli)"],
            "fibre_channel": ["a Fibre Channel adapter"],
            "unheard-of": ["blockdev (package util-linux)"],
            None: ["blockdev (package util-linux)"],
        }.items():
            for name in names:
                self.assertIn(name, self.connector.missing_requirements(protocol))
        self.assertEqual([], self.connector.missing_requirements("local"))

    def test_missing_kernel_module_is_reported(self):
        loaded = "attachd.agent.connectors.brick._LOADED_MODULES"
        self.useFixture(fixtures.MonkeyPatch(loaded, self.folder))
        self.useFixture(fixtures.MonkeyPatch("attachd.linux.commands.list_missing", lambda _: []))
        execute = self.useFixture(fixtures.MockPatch("attachd.linux.commands.execute")).mock
        for protocol, module in brick._MODULES.items():
            execute.return_value = commands.CommandResult(1, "", "")
            missing = [f"the module {module} of the kernel (another kernel)"]
            self.assertEqual(missing, self.connector.missing_requirements(protocol))
            execute.return_value = commands.CommandResult(0, "", "")
            self.assertEqual([], self.connector.missing_requirements(protocol))
        execute.side_effect = AssertionError  # what is loaded needs no command
        for protocol, module in brick._MODULES.items():
            (self.folder / module).mkdir()
            self.assertEqual([], self.connector.missing_requirements(protocol))

    def test_missing_os_brick_is_reported(self):
        self.useFixture(fixtures.MonkeyPatch("importlib.util.find_spec", lambda _: None))
        self.assertIn(
            "os-brick (pip install '.[host]' in the sources of attachd)",
            self.connector.missing_requirements(),
        )

        def fail(name):
            raise ImportError(name)

        self.useFixture(fixtures.MonkeyPatch("oslo_utils.importutils.import_module", fail))
        with self.assertRaisesRegex(exception.HostError, "pip install"):
            self.connector.get_connector_properties("me", OPTIONS)


class ConnectTest(Case):
    """Arguments and results of os-brick."""

    def test_connect_and_disconnect_pass_text_to_os_brick(self):
        standing = self.stand()
        device = self.connector.connect(INFO, OPTIONS)
        result = {"type": "block", "path": "/dev/null"}
        self.assertEqual(Device("/dev/null", {**result, "identity": ""}), device)
        self.assertEqual([("connect", INFO)], standing.calls)
        self.assertEqual(2**30, self.connector.extend(INFO, OPTIONS, device))
        self.connector.disconnect(INFO, OPTIONS, device)
        self.connector.disconnect(INFO, OPTIONS, None, force=True)
        self.assertEqual(
            [("disconnect", result, False, False), ("disconnect", {}, True, True)],
            standing.calls[1:],
        )

    def test_device_is_present_if_os_brick_lists_its_path(self):
        self.stand(path=f"{self.folder / 'link'}".encode())
        (self.folder / "disk").touch()
        (self.folder / "link").symlink_to(self.folder / "disk")
        (self.folder / "other").touch()
        present = {
            name: self.connector.is_present(INFO, Device(f"{self.folder / name}", {}))
            for name in ("disk", "link", "other", "nothing")
        }
        self.assertEqual({"disk": True, "link": True, "other": False, "nothing": False}, present)

    def scsi_disk(self, state="running"):
        """Let the device of the connection be a SCSI disk, and return its device."""
        (self.folder / "disk").touch()
        self.useFixture(
            fixtures.MonkeyPatch("attachd.linux.block_device._BLOCK", self.folder / "b")
        )
        (self.folder / "b" / "disk" / "device" / "scsi_device").mkdir(parents=True)
        self.state = self.folder / "b" / "disk" / "device" / "state"
        self.state.write_text(f"{state}\n")
        return Device(f"{self.folder / 'disk'}", {})

    def test_stop_writers_takes_scsi_disk_offline_without_a_flush(self):
        standing = self.stand(path=f"{self.folder / 'disk'}".encode())
        device = self.scsi_disk()
        self.assertTrue(self.connector.is_present(INFO, device))
        self.connector.stop_writers(INFO, OPTIONS, device)
        self.assertEqual("offline\n", self.state.read_text())
        self.assertFalse(self.connector.is_present(INFO, device))
        self.assertNotIn("disconnect", [call[0] for call in standing.calls])

    def test_stop_writers_needs_no_os_brick_for_known_disk(self):
        standing = self.stand()
        known = self.scsi_disk()
        (self.state.parent / "wwid").write_text("naa.6\n")
        device = Device(known.path, {IDENTITY: "naa.6"})
        self.connector.stop_writers(INFO, OPTIONS, device)
        self.assertEqual(("offline\n", []), (self.state.read_text(), standing.calls))

    def test_stop_writers_leaves_other_disk_at_same_path_alone(self):
        self.stand(path=f"{self.folder / 'gone'}".encode())
        known = self.scsi_disk()
        (self.state.parent / "wwid").write_text("naa.7\n")
        device = Device(known.path, {IDENTITY: "naa.6"})
        self.connector.stop_writers(INFO, OPTIONS, device)
        self.assertEqual("running\n", self.state.read_text())

    def test_connect_removes_disk_whose_writers_were_stopped_first(self):
        standing = self.stand(path=f"{self.folder / 'disk'}".encode())
        self.scsi_disk("offline")
        self.connector.connect(INFO, OPTIONS)
        self.assertEqual(
            [("disconnect", {}, True, True), "connect"],
            [call if call[0] == "disconnect" else call[0] for call in standing.calls],
        )

    def test_stop_writers_removes_disk_that_cannot_be_taken_offline(self):
        standing = self.stand(path=f"{self.folder / 'disk'}".encode())
        device = Device(f"{self.folder / 'disk'}", {})
        self.connector.stop_writers(INFO, OPTIONS, device)
        self.assertEqual([("disconnect", {}, True, True)], standing.calls)

    def test_nvme_device_whose_writers_were_stopped_is_connected_again(self):
        standing = self.stand(path=f"{self.folder / 'disk'}".encode())
        device = self.scsi_disk()
        ro, sequence = (self.folder / "b" / "disk" / name for name in ("ro", "diskseq"))
        ro.write_text("1\n")
        sequence.write_text("7\n")
        stat = self.useFixture(fixtures.MockPatchObject(device_nodes, "stat_device")).mock
        node = device_nodes.DeviceNode(device.path, None, None)
        stat.return_value = node
        self.useFixture(fixtures.MockPatchObject(block_device, "make_read_only"))
        read_only = self.useFixture(fixtures.MockPatchObject(block_device, "is_read_only")).mock
        self.assertTrue(self.connector.is_present(NVME, device))  # It is read-only.
        self.connector.stop_writers(NVME, OPTIONS, device)
        again = brick.BrickConnector(self.folder)
        self.assertFalse(again.is_present(NVME, device))
        read_only.return_value = False
        self.assertTrue(again.is_present(NVME, device))
        read_only.return_value = True
        run = self.useFixture(fixtures.MockPatchObject(commands, "run")).mock
        run.side_effect = lambda *_: setattr(read_only, "return_value", False)
        again.connect(NVME, OPTIONS)
        self.assertEqual(["disconnect", "connect"], [call[0] for call in standing.calls])
        run.assert_called_once_with("blockdev", "--setrw", device.path)
        read_only.return_value = True
        self.assertTrue(again.is_present(NVME, device))

    def test_stop_writers_leaves_disk_alone_that_was_replaced(self):
        self.stand(path=f"{self.folder / 'disk'}".encode())
        device = self.scsi_disk()
        run = self.useFixture(fixtures.MockPatchObject(commands, "run")).mock
        find = self.useFixture(fixtures.MockPatchObject(self.connector, "find_device_paths")).mock
        find.side_effect = [[device.path], []]
        self.connector.stop_writers(NVME, OPTIONS, device)
        run.assert_not_called()

    def test_stop_writers_unmaps_rbd_device_by_force_if_there_is_one(self):
        self.useFixture(fixtures.MonkeyPatch("attachd.agent.connectors.brick._RBD", self.folder))
        run = self.useFixture(fixtures.MockPatchObject(commands, "run")).mock
        info = {"driver_volume_type": "rbd", "name": "pool/image"}
        self.connector.stop_writers(info, OPTIONS, None)
        run.assert_not_called()
        path = self.folder / "pool" / "image"
        path.parent.mkdir()
        path.touch()
        self.connector.stop_writers(info, OPTIONS, None)
        run.assert_called_once_with("rbd", "device", "unmap", "--options", "force", f"{path}")

    def test_image_of_reader_is_mapped_read_only(self):
        execute = self.useFixture(
            fixtures.MockPatch("os_brick.privileged.rootwrap.execute", return_value=("", ""))
        ).mock
        self.useFixture(fixtures.MockPatchObject(ceph_header, "check"))
        info = {
            "driver_volume_type": "rbd",
            "name": "pool/image",
            "auth_username": "u",
            "cluster_name": "ceph",
            "hosts": ["127.0.0.1"],
            "ports": ["1"],
            "keyring": "[client.u]\nkey = x\n",
        }
        for mode in ("ro", "rw"):
            execute.reset_mock()
            # There is no device that could be set read-only.
            with contextlib.suppress(exception.HostError):
                self.connector.connect({**info, "access_mode": mode}, OPTIONS)
            (mapped,) = [call.args for call in execute.mock_calls if "map" in call.args]
            self.assertEqual(("rbd", "map"), mapped[:2])
            self.assertEqual(mode == "ro", "--read-only" in mapped)

    def test_stop_writers_leaves_local_device_alone(self):
        self.connector.stop_writers({"driver_volume_type": "local"}, OPTIONS, None)

    def test_rbd_device_is_present_by_image_name(self):
        self.useFixture(fixtures.MonkeyPatch("attachd.agent.connectors.brick._RBD", self.folder))
        info = {"driver_volume_type": "rbd", "name": "pool/image"}
        device = Device(f"{self.folder / 'pool' / 'image'}", {})
        self.assertFalse(self.connector.is_present(info, device))
        (self.folder / "pool").mkdir()
        for text in ("image", "other"):
            (self.folder / "pool" / text).touch()
        self.assertTrue(self.connector.is_present(info, device))
        self.assertEqual([device.path], self.connector.find_device_paths(info))
        self.assertFalse(self.connector.is_present({**info, "name": "pool/other"}, device))

    def test_find_device_paths_returns_existing_paths(self):
        self.stand(path=f"{self.folder / 'disk'}".encode())
        self.assertEqual([], self.connector.find_device_paths(INFO))
        (self.folder / "disk").touch()
        self.assertEqual([f"{self.folder / 'disk'}"], self.connector.find_device_paths(INFO))
        self.assertEqual([], self.connector.find_device_paths({"driver_volume_type": "local"}))

    def test_connect_read_only_sets_device_read_only(self):
        self.stand()
        made = []
        self.useFixture(
            fixtures.MonkeyPatch("attachd.linux.block_device.make_read_only", made.append)
        )
        self.connector.connect(INFO | {"access_mode": "ro"}, OPTIONS)
        self.connector.connect(INFO, OPTIONS)
        self.assertEqual(["/dev/null"], made)

    def test_connect_read_only_failure_disconnects_device(self):
        standing = self.stand()

        def fail(path):
            raise exception.HostError(reason="stays writable")

        self.useFixture(fixtures.MonkeyPatch("attachd.linux.block_device.make_read_only", fail))
        with self.assertRaisesRegex(exception.HostError, "stays writable"):
            self.connector.connect(INFO | {"access_mode": "ro"}, OPTIONS)
        self.assertEqual(["connect", "disconnect"], [call[0] for call in standing.calls])

    def test_errors_have_remedy_and_no_secrets(self):
        line = f"iscsiadm -m node --op update -n node.session.auth.password -v {SECRET}"
        chained = brick_exception.ExceptionChainer()
        chained.add_exception(ValueError, ValueError(f"with {SECRET}"), None)
        for error in (
            processutils.ProcessExecutionError(cmd=line, stderr=f"bad {SECRET}", exit_code=6),
            brick_exception.VolumeDeviceNotFound(device=SECRET),
            brick_exception.TargetPortalNotFound(target_portal=f"x {SECRET}"),
            ValueError(SECRET),
            OSError(f"no {SECRET}"),
            NotImplementedError(),
            chained,
        ):
            self.stand(error)
            for call in (
                lambda: self.connector.connect(INFO, OPTIONS),
                lambda: self.connector.disconnect(INFO, OPTIONS, None),
            ):
                with self.assertRaisesRegex(exception.HostError, "repeat the command") as caught:
                    call()
                self.assertNotIn(SECRET, f"{caught.exception!r}")
                self.assertIsNone(caught.exception.__cause__)

    def test_connect_without_iscsiadm_logs_no_secret(self):
        log = self.useFixture(fixtures.FakeLogger(level=0))
        self.useFixture(fixtures.MonkeyPatch("os_brick.utils._time_sleep", lambda _: None))
        with self.assertRaises(exception.HostError) as caught:
            self.connector.connect(INFO, OPTIONS)
        self.assertNotIn(SECRET, f"{caught.exception}{log.output}")

    def test_connect_with_unknown_protocol_raises(self):
        with self.assertRaisesRegex(exception.HostError, "os-brick cannot be used for nosuch"):
            self.connector.connect({"driver_volume_type": "nosuch"}, OPTIONS)

    def test_locks_lie_in_state_path(self):
        self.stand()
        self.connector.connect(INFO | {"shared_targets": None, "service_uuid": "s"}, OPTIONS)
        self.assertEqual(["os-brick-s"], [path.name for path in (self.folder / "locks").iterdir()])

    def test_local_file_is_used_as_device(self):
        path = self.folder / "volume"
        path.write_bytes(bytes(10))
        info = {"driver_volume_type": "local", "device_path": f"{path}", "access_mode": "rw"}
        device = self.connector.connect(info, OPTIONS)
        self.assertTrue(self.connector.is_present(info, device))
        self.assertEqual(10, self.connector.extend(info, OPTIONS, device))
        self.connector.disconnect(info, OPTIONS, device)
        self.assertTrue(block_device.exists(device.path))


class NvmeTest(Case):
    """Devices that os-brick itself finds below /sys."""

    def setUp(self):
        super().setUp()
        self.sys, self.dev = self.folder / "ctl", self.folder / "dev"
        self.dev.mkdir()
        nvmeof = "os_brick.initiator.connectors.nvmeof"
        for name, path in (("NVME_CTRL_SYSFS_PATH", self.sys), ("DEV_SEARCH_PATH", self.dev)):
            self.useFixture(fixtures.MonkeyPatch(f"{nvmeof}.{name}", f"{path}/"))

    def controller(self, number, volume_uuid, **attributes):
        """Make a controller with a device, as the kernel shows them with multipath."""
        folder = self.sys / f"nvme{number}"
        known = {
            "subsysnqn": NVME["target_nqn"],
            "transport": "tcp",
            "address": "traddr=127.0.0.1,trsvcid=4420",
            "hostnqn": NVME["host_nqn"],
            "state": "live",
            f"nvme{number}c{number}n1/uuid": volume_uuid,
        }
        (folder / f"nvme{number}c{number}n1").mkdir(parents=True)
        for name, value in {**known, **attributes}.items():
            (folder / name).write_text(f"{value}\n")
        device = self.dev / f"nvme{number}n1"
        device.touch()
        return f"{device}"

    def test_device_is_found_by_subsystem_host_and_uuid(self):
        self.assertEqual([], self.connector.find_device_paths(NVME))
        other = f"{uuid.uuid4()}"
        self.controller(1, NVME["vol_uuid"], subsysnqn="nqn.2026-01.x:other")
        self.controller(2, NVME["vol_uuid"], hostnqn="nqn.2026-01.x:other-host")
        self.assertEqual([], self.connector.find_device_paths(NVME))
        path = self.controller(3, NVME["vol_uuid"])
        self.assertEqual([path], self.connector.find_device_paths(NVME))
        self.assertTrue(self.connector.is_present(NVME, Device(path, {})))
        self.assertEqual([], self.connector.find_device_paths({**NVME, "vol_uuid": other}))

    def test_connection_without_subsystem_is_an_error_of_the_host(self):
        info = {"driver_volume_type": "nvmeof"}
        with self.assertRaisesRegex(exception.HostError, "paths of the volume"):
            self.connector.find_device_paths(info)


class TurnsTest(Case):
    """Two processes of one host."""

    def callers(self, *turns):
        """Start processes that connect at the same time, after their slow imports."""
        started = [self.start(*turn) for turn in turns]
        for item in started:
            self.assertEqual("comes\n", item.stdout.readline())
        return started

    def start(self, shared, service="service-1"):
        line = [sys.executable, "-c", _CALLER, f"{self.folder}", f"{shared}", service]
        process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.kill)
        return process

    @staticmethod
    def go_on(process):
        process.stdin.write("\n")
        process.stdin.flush()

    def test_shared_target_guard_serializes_processes(self):
        first, second, free, elsewhere = self.callers([None], [None], [False], [None, "service-2"])
        self.go_on(first)
        self.assertEqual("in\n", first.stdout.readline())
        self.go_on(second)
        for item in (free, elsewhere):
            self.go_on(item)
            self.assertEqual("in\n", item.stdout.readline())
        # Time enough to acquire the lock, if it were free.
        self.assertEqual([], select.select([second.stdout], [], [], 0.5)[0])
        self.go_on(first)
        self.assertEqual("out\n", first.stdout.readline())
        self.assertEqual("in\n", second.stdout.readline())

    def test_shared_target_guard_is_released_by_kill(self):
        first, second = self.callers([None], [None])
        self.go_on(first)
        self.assertEqual("in\n", first.stdout.readline())
        self.go_on(second)
        first.kill()
        self.assertEqual("in\n", second.stdout.readline())


class FactoryTest(Case):
    """The names of os-brick that this depends on."""

    def test_os_brick_has_connectors_for_all_protocols(self):
        for protocol in brick._REQUIREMENTS:
            found = self.connector._connector({"driver_volume_type": protocol}, OPTIONS)
            for verb in ("connect_volume", "disconnect_volume", "extend_volume"):
                self.assertTrue(callable(getattr(found, verb)), f"{protocol} {verb}")


class RedactTest(unittest.TestCase):
    """What is replaced, and what is not."""

    def test_redact_replaces_secrets_of_connection(self):
        info = {
            "auth_password": "Hf8s-first",
            "discovery_auth_password": "Hf8s-first-longer",
            "keyring": "[client.x]\nkey = AQsecond==\n",
            "encryption": {"secret_uuid": "third-one"},
            "target_iqn": "iqn.x:v",
        }
        text = "no Hf8s-first, Hf8s-first-longer, AQsecond== third-one at iqn.x:v"
        self.assertEqual("no ***, ***, *** *** at iqn.x:v", brick.redact(text, info))

    def test_redact_masks_iscsiadm_command_line(self):
        text = "iscsiadm --op update -n node.session.auth.password -v unknown-one"
        self.assertNotIn("unknown-one", brick.redact(text, {}))

    def test_redact_keeps_other_text(self):
        self.assertEqual("a b", brick.redact("a b", {"auth_password": "a", "secret": None}))
