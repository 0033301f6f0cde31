# SPDX-License-Identifier: Apache-2.0
"""Tests of data through the tgt driver, with a real tgtd and real initiators."""

import secrets
from unittest import mock
import uuid

from oslo_config import cfg
import testtools

from attachd import exception
from attachd.conf.manager import MIN_CHAP_SECRET
from attachd.drivers import base
from attachd.drivers.tgt.driver import TgtDriver
from attachd.tests.fixtures import initiators, processes, requirements, tgtd
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

MIB = 2**20
GIB = 2**30


class RealDataCase(testtools.TestCase):
    """A tgtd, a driver, two hosts."""

    host_class = initiators.IscsiHost

    def setUp(self):
        super().setUp()
        self.tgtd = self.useFixture(tgtd.Tgtd(self))
        self.driver = self.new_driver()
        self.a = self.useFixture(self.host_class(self, "host-a"))
        self.b = self.useFixture(self.host_class(self, "host-b"))
        self.volume = base.VolumeRef(f"{uuid.uuid4()}", 1)
        self.driver.create(self.volume)

    def new_driver(self):
        conf = cfg.ConfigOpts()
        conf([], project="attachd", default_config_files=[])
        conf.register_opts(TgtDriver.OPTIONS, group="tgt")
        for name, value in self.tgtd.options.items():
            conf.set_override(name, value, group="tgt")
        driver = TgtDriver("tgt", conf)
        driver.setup()
        return driver

    def export(self, host, mode="rw", secret=None):
        secret = secret or secrets.token_hex(16)
        return base.Export(f"{uuid.uuid4()}", host.connector, mode, secret)


class ByCommandTest(RealDataCase):
    """Hosts that log in for each command: qemu-io."""

    def test_data_moves_between_hosts_and_detached_host_is_logged_out(self):
        first, second = self.export(self.a), self.export(self.b)
        data = secrets.token_bytes(MIB)

        info_a = self.driver.grant(self.volume, first)
        self.a.write(info_a, 100 * MIB, data)
        self.driver.revoke(self.volume, first, [])
        self.assertEqual([], self.tgtd.sessions() + self.tgtd.targets() + self.tgtd.accounts())

        info_b = self.driver.grant(self.volume, second)
        self.assertEqual(data, self.b.read(info_b, 100 * MIB, MIB))
        self.assertRaises(initiators.Refused, self.a.read, info_a, 0, 512)

        self.driver.revoke(self.volume, second, [])
        self.driver.delete(self.volume)
        self.assertEqual([], self.tgtd.orphans())

    def test_login_with_shortest_secret_that_is_configurable(self):
        secret = secrets.token_hex(MIN_CHAP_SECRET // 2)
        info = self.driver.grant(self.volume, self.export(self.a, secret=secret))
        self.a.write(info, 0, b"a" * MIB)
        self.assertEqual(b"a" * MIB, self.a.read(info, 0, MIB))

    def test_login_with_wrong_secret_is_refused(self):
        info = self.driver.grant(self.volume, self.export(self.a))
        self.a.read(info, 0, 512)
        for wrong in (secrets.token_hex(16), ""):
            info["data"]["auth_password"] = wrong
            error = self.assertRaises(initiators.Refused, self.a.read, info, 0, 512)
            self.assertIn("uthentication", f"{error}")

    def test_login_with_secret_of_another_volume_is_refused(self):
        other = base.VolumeRef(f"{uuid.uuid4()}", 1)
        self.driver.create(other)
        attachment = self.driver.grant(self.volume, self.export(self.a))
        foreign = self.driver.grant(other, self.export(self.a))
        for key in ("auth_username", "auth_password"):
            attachment["data"][key] = foreign["data"][key]
        self.assertRaises(initiators.Refused, self.a.read, attachment, 0, 512)

    def test_login_with_secret_of_another_initiator_is_refused(self):
        info = self.driver.grant(self.volume, self.export(self.a))
        error = self.assertRaises(initiators.Refused, self.b.read, info, 0, 512)
        self.assertIn("not found", f"{error}")

    def test_login_without_secret_is_refused_at_each_moment_of_an_attachment(self):
        exports = [self.export(self.a), self.export(self.b)]
        info = self.driver.grant(self.volume, exports[0])
        naked = self._without_secret(info)
        self.assertRaises(initiators.Refused, self._probe, naked)
        self.driver.grant(self.volume, exports[1])
        # The account of b is gone, the initiator of a still allowed.
        self.driver.revoke(self.volume, exports[1], [exports[0]])
        self.assertRaises(initiators.Refused, self._probe, naked)
        # No account but the guard's is left, as in the middle of a revoke.
        user = info["data"]["auth_username"]
        self.tgtd.adm("--op", "delete", "--mode", "account", "--user", user)
        error = self.assertRaises(initiators.Refused, self._probe, naked)
        self.assertIn("uthentication", f"{error}")

    def test_detach_closes_the_session_of_a_host_that_stays_logged_in(self):
        first, second = self.export(self.a), self.export(self.b)
        info_a = self.driver.grant(self.volume, first)
        info_b = self.driver.grant(self.volume, second)
        session_a, session_b = self.a.log_in(info_a), self.b.log_in(info_b)
        self.assertEqual(2, len(self.tgtd.sessions()))

        self.driver.revoke(self.volume, first, [second])

        self.assertEqual([self.b.connector["initiator"]], self.tgtd.sessions())
        self.assertIn("wrote 512", self.b.command(session_b, "write -P 9 0 512"))
        session_a.kill()

    def test_detach_of_the_oldest_of_three_hosts_does_not_crash_tgtd(self):
        hosts = [self.useFixture(initiators.IscsiHost(self, f"host-{n}")) for n in range(3)]
        exports = [self.export(host) for host in hosts]
        infos = [self.driver.grant(self.volume, export) for export in exports]
        for gone in range(2):
            self.driver.revoke(self.volume, exports[gone], exports[gone + 1 :])
            # The listing is what a gap among the accounts makes tgtd crash at.
            self.assertEqual(1, len(self.tgtd.targets()))
            for stays in range(gone + 1, 3):
                hosts[stays].read(infos[stays], 0, 512)

    def test_extend_keeps_sessions_and_shows_the_new_size(self):
        export = self.export(self.a)
        session = self.a.log_in(self.driver.grant(self.volume, export))
        self.driver.extend(self.volume, 2, [export])
        self.assertIn("wrote 512", self.a.command(session, "write -P 9 0 512"))
        self.assertEqual(2 * GIB, self.b.size(self.driver.grant(self.volume, self.export(self.b))))

    def test_extend_under_load_causes_no_io_error(self):
        export = self.export(self.a)
        info = self.driver.grant(self.volume, export)
        # It ends at an error, and hardly otherwise.
        flood = self.a.flood(info, 10**7)
        wait_until(lambda: self.tgtd.sessions() or flood.poll() is not None)
        for size_gib in (2, 3, 4):
            self.driver.extend(self.volume, size_gib, [export])
        # Until a few thousand commands more were answered.
        last = self.a.flood(info, 4000)
        printed, _ = last.communicate(timeout=TIMEOUT)
        self.assertEqual(0, last.returncode, printed)
        self.assertIsNone(flood.poll(), "a command has failed")

    def test_tgtd_restart_restores_exports(self):
        export = self.export(self.a)
        info = self.driver.grant(self.volume, export)
        self.a.write(info, 0, b"before" * 1024)
        before = self.driver.boot_id()
        self.tgtd.restart()
        self.assertRaises(initiators.Refused, self.a.read, info, 0, 512)
        self.assertNotEqual(before, self.driver.boot_id())
        self.assertEqual(info, self.driver.grant(self.volume, export))
        self.assertEqual(b"before" * 1024, self.a.read(info, 0, 6144))

    def test_volume_has_one_world_wide_name_in_all_exports(self):
        self.driver.grant(self.volume, self.export(self.a))
        self.driver.grant(self.volume, self.export(self.b, "ro"))
        units = [target.luns[1] for target in self.tgtd.targets()]
        self.assertEqual([False, True], sorted(unit.read_only for unit in units))
        self.assertEqual({uuid.UUID(self.volume.id).hex}, {unit.scsi_id for unit in units})

    def test_driver_starts_no_process(self):
        """Arguments of a process, such as secrets, are for each user of the machine to read."""
        export = self.export(self.a)
        with mock.patch("subprocess.Popen", side_effect=AssertionError):
            info = self.driver.grant(self.volume, export)
        self.a.read(info, 0, 512)
        with mock.patch("subprocess.Popen", side_effect=AssertionError):
            self.driver.revoke(self.volume, export, [])

    def _probe(self, info):
        """Log in as host a, as os-brick would without auth_method."""
        data = info["data"]
        line = [
            requirements.require_tool(self, "qemu-io"),
            "--cmd",
            "read 0 512",
            "--image-opts",
            (
                f"driver=iscsi,transport=tcp,portal={data['target_portal']},lun=1,"
                f"target={data['target_iqn']},initiator-name={self.a.connector['initiator']}"
            ),
        ]
        done = processes.run(line)
        if done.returncode:
            raise initiators.Refused(done.stderr)

    @staticmethod
    def _without_secret(info):
        data = {key: value for key, value in info["data"].items() if not key.startswith("auth_")}
        return info | {"data": data}


class ByDeviceTest(RealDataCase):
    """Hosts with a block device: QEMU's storage daemon and a loop device."""

    host_class = initiators.DeviceHost

    def test_data_moves_between_devices(self):
        local = initiators.LocalHost("this machine")
        data = secrets.token_bytes(3 * MIB)
        for host, other in ((self.a, self.b), (self.b, self.a)):
            export = self.export(host)
            info = self.driver.grant(self.volume, export)
            device = {"data": {"device_path": host.attach(info)}}
            if host is self.a:
                local.write(device, 700 * MIB, data)
            self.assertEqual(data, local.read(device, 700 * MIB, len(data)))
            self.assertEqual(GIB, local.size(device))
            host.detach()
            self.driver.revoke(self.volume, export, [])
            self.assertEqual([], self.tgtd.sessions() + self.tgtd.targets())
            self.assertRaises(initiators.Refused, host.attach, info)
            self.assertRaises(initiators.Refused, other.attach, info)

    def test_detach_of_device_in_use_cuts_it_off(self):
        local = initiators.LocalHost("this machine")
        first, second = self.export(self.a), self.export(self.b)
        device = {"data": {"device_path": self.a.attach(self.driver.grant(self.volume, first))}}
        local.write(device, 0, b"mine" * 1024)
        self.driver.revoke(self.volume, first, [])
        info = self.driver.grant(self.volume, second)
        self.assertEqual(b"mine" * 1024, self.b.read(info, 0, 4096))


@full_only("outages")
class TroubleTest(RealDataCase):
    """A tgtd that is gone, or does not answer."""

    def test_driver_calls_without_tgtd_fail(self):
        export = self.export(self.a)
        self.driver.grant(self.volume, export)
        self.tgtd.stop()
        for call in (
            self.driver.setup,
            self.driver.boot_id,
            lambda: self.driver.grant(self.volume, export),
            lambda: self.driver.revoke(self.volume, export, []),
            lambda: self.driver.delete(self.volume),
        ):
            error = self.assertRaises(exception.BackendError, call)
            self.assertIn("tgt", f"{error}")
            self.assertFalse(error.final)

    def test_driver_call_to_hanging_tgtd_times_out(self):
        self.tgtd.options["tgt_timeout"] = 10  # long enough for a tgtd that is only slow
        driver = self.new_driver()
        self.tgtd.pause()
        error = self.assertRaises(
            exception.BackendError, driver.grant, self.volume, self.export(self.a)
        )
        self.assertIn("did not answer", f"{error}")
        self.assertFalse(error.final)
        self.tgtd.go_on()
        self.assertEqual([], list(driver.list_exports()))
