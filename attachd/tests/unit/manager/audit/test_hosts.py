# SPDX-License-Identifier: Apache-2.0
"""Devices in reports of agents, compared with the rows."""

import datetime
from unittest import mock
import uuid

from attachd.db import models
from attachd.db.agents import agent_store
from attachd.db.volumes import volume_queries
from attachd.manager.audit import hosts
from attachd.manager.audit.rules import Kind
from attachd.tests.fixtures import backends, conf_fixture, db_rows


class HostsTest(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(hosts, "_POLL_INTERVAL", 0.0))
        # Agents report in time on a slow machine too; a test that needs a silent one changes this.
        conf_fixture.override(self, "report_interval", 3600, "agent")
        self.volume = db_rows.add_volume()["id"]
        self.row = db_rows.add_attachment(self.volume, "attached", agent="h1")
        agent_store.create("h1", "key")
        self.report()

    def device(self, path="/dev/loop7", attachment_id=None, volume_id=None):
        return {
            "attachment_id": attachment_id or self.row["id"],
            "volume_id": volume_id or self.volume,
            "path": path,
            "size_bytes": 2**30,
        }

    def report(self, *devices):
        agent_store.record_report("h1", {"devices": list(devices)})

    def compare(self, *later):
        """Compare while the host continues to report these devices."""
        real = agent_store.list_all

        def all_():
            found = real()
            self.report(*later)
            return found

        with mock.patch.object(agent_store, "list_all", all_):
            return hosts.compare(self.backend)

    def found(self, *later):
        verdict = self.compare(*later)
        self.assertEqual([], verdict.not_compared)
        return [(difference.kind, difference.volume_id) for difference in verdict.differences]

    def test_compare_device_per_attachment_finds_no_difference(self):
        self.report(self.device())
        self.assertEqual([], self.found(self.device()))

    def test_compare_device_missing_in_two_reports_finds_missing_device(self):
        self.assertEqual([(Kind.MISSING_DEVICE, self.volume)], self.found())
        gone = self.device(path=None)
        self.report(gone)
        self.assertEqual([(Kind.MISSING_DEVICE, self.volume)], self.found(gone))

    def test_compare_finds_differences_on_all_pages(self):
        volumes = [self.volume, *(db_rows.add_volume()["id"] for _ in range(2))]
        for volume in volumes[1:]:
            db_rows.add_attachment(volume, "attached", agent="h1")
        with mock.patch.object(volume_queries, "PAGE", 1):
            found = self.found()
        self.assertEqual([(Kind.MISSING_DEVICE, volume) for volume in sorted(volumes)], found)

    def test_compare_device_in_next_report_finds_no_difference(self):
        self.assertEqual([], self.found(self.device()))

    def test_next_reports_are_read_of_suspicious_hosts_alone(self):
        agent_store.create("h2", "key")
        with (
            mock.patch.object(agent_store, "list_seen_at", wraps=agent_store.list_seen_at) as seen,
            mock.patch.object(agent_store, "list_named", wraps=agent_store.list_named) as named,
        ):
            self.assertEqual(1, len(self.found()))
        self.assertEqual({("h1",)}, {tuple(call.args[0]) for call in seen.call_args_list})
        named.assert_called_once_with({"h1"})

    def test_compare_attachment_changed_meanwhile_finds_no_difference(self):
        real = agent_store.list_seen_at

        def seen_at(host_names):
            self.report()
            db_rows.change_attachment(self.row["id"], updated_at=models.now())
            return real(host_names)

        with mock.patch.object(agent_store, "list_seen_at", seen_at):
            self.assertEqual([], hosts.compare(self.backend).differences)

    def test_compare_connected_or_withdrawing_attachment_finds_no_difference(self):
        for state in ("connected", "withdrawing"):
            db_rows.change_attachment(self.row["id"], state=state)
            self.assertEqual([], self.found())

    def test_compare_device_without_attachment_finds_orphan_device(self):
        stray = self.device(attachment_id=f"{uuid.uuid4()}")
        self.report(self.device(), stray)
        (difference,) = self.compare(self.device(), stray).differences
        self.assertEqual(Kind.ORPHAN_DEVICE, difference.kind)
        self.assertIn("/dev/loop7", difference.found)

    def test_compare_device_of_other_backend_finds_no_difference(self):
        elsewhere = self.device(attachment_id="a", volume_id=f"{uuid.uuid4()}")
        self.report(self.device(), elsewhere)
        self.assertEqual([], self.found(self.device(), elsewhere))

    def test_compare_host_without_next_report_is_not_compared(self):
        conf_fixture.override(self, "report_interval", 1, "agent")
        verdict = hosts.compare(self.backend)
        self.assertEqual([], verdict.differences)
        self.assertRegex(verdict.not_compared[0], "^Host h1: its agent has not reported since")

    def test_compare_host_with_agent_down_is_not_compared(self):
        with mock.patch.object(models, "now", return_value=datetime.datetime(2020, 1, 1)):  # noqa: DTZ001
            self.report()
        conf_fixture.override(self, "report_interval", 1, "agent")
        verdict = hosts.compare(self.backend)
        self.assertEqual([], verdict.differences)
        self.assertIn("2020-01-01", verdict.not_compared[0])

    def test_compare_unregistered_host_is_not_compared(self):
        agent_store._delete("h1")
        conf_fixture.override(self, "report_interval", 1, "agent")
        (result,) = hosts.compare(self.backend).not_compared
        self.assertIn("h1", result)

    def test_compare_attachment_without_agent_finds_no_difference(self):
        db_rows.change_attachment(self.row["id"], agent=None)
        self.assertEqual([], self.found())


class OthersTest(backends.BackendCase):
    """Devices that Compute or others have made."""

    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(hosts, "_POLL_INTERVAL", 0.0))
        conf_fixture.override(self, "report_interval", 3600, "agent")
        self.enterContext(mock.patch.object(type(self.driver), "KERNEL_DEVICES", True))
        self.volume = db_rows.add_volume(multiattach=True)["id"]
        self.row = self.add("h1")
        agent_store.create("h1", "key")
        self.report()

    def add(self, host, state="attached", **values):
        connector = {"host": host, "initiator": f"iqn.2026-01.org.example:{host}"}
        fields = {"host": host, "connector": connector, **values}
        return db_rows.add_attachment(self.volume, state, **fields)

    def device(self, **values):
        fields = {"volume_id": self.volume, "attachment_id": None, "target": "t"}
        return {**fields, "path": "/dev/sdb", "size_bytes": 2**30, **values}

    def report(self, *devices, **values):
        observed = {"devices": [*devices], "asked": []}
        said = {"devices": [], "connector_type": "kernel", "observed": observed, **values}
        agent_store.record_report("h1", said)

    def compare(self, *later, **values):
        """Compare while the host reports these devices, now and later."""
        self.report(*later, **values)
        real = agent_store.list_all

        def all_():
            found = real()
            self.report(*later, **values)
            return found

        with mock.patch.object(agent_store, "list_all", all_):
            return hosts.compare(self.backend)

    def kinds(self, *later, **values):
        result = self.compare(*later, **values)
        self.assertEqual([], result.not_compared)
        return [difference.kind for difference in result.differences]

    def test_device_of_each_attachment_is_no_difference(self):
        self.assertEqual([], self.kinds(self.device()))
        self.assertEqual([], self.kinds(self.device(attachment_id=self.row["id"])))

    def test_attachment_without_device_is_unused(self):
        for later in ([], [self.device(path=None, size_bytes=None)]):
            (difference,) = self.compare(*later).differences
            self.assertEqual(
                (Kind.UNUSED_ATTACHMENT, self.volume), (difference.kind, difference.volume_id)
            )
            self.assertIn(
                f"Host h1 has no device of attachment {self.row['id']}", difference.found
            )

    def test_absence_that_is_not_known_is_no_difference(self):
        own = [{"attachment_id": "a", "volume_id": "elsewhere", "path": "/dev/sdb"}]
        self.assertEqual([], self.kinds(connector_type="user-space"))
        self.assertEqual([Kind.UNUSED_ATTACHMENT], self.kinds(devices=own))
        db_rows.change_attachment(self.row["id"], state="connected")
        self.assertEqual([], self.kinds())
        db_rows.change_attachment(self.row["id"], state="attached")
        with mock.patch.object(type(self.driver), "KERNEL_DEVICES", False):
            self.assertEqual([], self.kinds())

    def test_reservation_that_is_completed_needs_no_device(self):
        db_rows.change_attachment(self.row["id"], connector=None, host=None)
        self.assertEqual([], self.kinds())

    def test_device_without_attachment_of_the_host_is_a_stray(self):
        for state in ("reserved", "connect_failed", None):
            if state:
                db_rows.change_attachment(self.row["id"], state=state)
            else:
                db_rows.remove_attachment(self.row["id"])
            self.add("h2")
            (difference,) = self.compare(self.device()).differences
            self.assertEqual(Kind.STRAY_DEVICE, difference.kind)
            self.assertIn("Host h1 has /dev/sdb of the volume", difference.found)

    def test_device_of_an_attachment_in_progress_is_no_stray(self):
        for state in ("connecting", "connected", "disconnecting", "disconnect_failed"):
            db_rows.change_attachment(self.row["id"], state=state)
            self.assertEqual([], self.kinds(self.device()), state)

    def test_device_of_an_unknown_volume_is_no_difference(self):
        self.assertEqual([], self.kinds(self.device(), self.device(volume_id=f"{uuid.uuid4()}")))

    def test_stray_in_one_report_only_is_no_difference(self):
        db_rows.remove_attachment(self.row["id"])
        self.report(self.device())
        real = agent_store.list_all

        def all_():
            found = real()
            self.report()
            return found

        with mock.patch.object(agent_store, "list_all", all_):
            self.assertEqual([], hosts.compare(self.backend).differences)

    def test_host_whose_agent_does_not_report_others_is_not_compared(self):
        result = self.compare(observed=None)
        self.assertEqual([], result.differences)
        self.assertRegex(result.not_compared[0], "^Host h1: its agent does not report devices")
        db_rows.change_attachment(self.row["id"], state="reserved")
        self.assertEqual([], self.compare(observed=None).not_compared)

    def test_claims_of_another_host_do_not_change_the_comparison(self):
        agent_store.create("h2", "key")
        observed = {"devices": [self.device()], "asked": []}
        agent_store.record_report("h2", {"connector_type": "kernel", "observed": observed})
        conf_fixture.override(self, "report_interval", 1, "agent")
        found = self.compare(self.device())
        self.assertEqual([], [item for item in found.differences if "h1" in item.found])
