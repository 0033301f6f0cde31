# SPDX-License-Identifier: Apache-2.0
"""Selection of the attachment that a detach removes."""

import unittest
import uuid

from openstack import exceptions

from attachd import exception
from attachd.agent.connectors.base import Options
from attachd.agent.journal import Entry, Owner, Step
from attachd.tests.fixtures import db_rows
from attachd.tests.unit.client.fake_deployment import FakeDeployment


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.deployment = FakeDeployment(self)
        self.journal = self.deployment.host.journal
        self.volume = self.deployment.volume(multiattach=True)

    def detach(self, **how):
        self.deployment.client.detach(self.volume, **how)

    def foreign(self, host="here"):
        """Have another program attach the volume; return the id of the attachment."""
        service = self.deployment.service()
        made = service.reserve(self.volume, "rw", str(uuid.uuid4()))
        service.connect(made, {"host": host})
        service.complete(made)
        return made

    def ids(self):
        return {attachment["id"] for attachment in self.deployment.attachments(self.volume)}


class ForeignTest(Case):
    """Detaching of attachments of other programs to this host."""

    def test_detach_finds_foreign_attachment_by_device(self):
        made = self.foreign()
        path = f"/dev/{made}"
        self.deployment.host.connector.devices.add(path)
        self.detach(device_info={"path": path, "type": "block"}, options=Options(multipath=True))
        self.assertEqual((set(), []), (self.ids(), self.deployment.entries()))
        self.assertEqual(set(), self.deployment.host.connector.devices)

    def test_detach_foreign_attachment_without_device_disconnects(self):
        self.detach(attachment_id=self.foreign())
        self.assertIn("connector disconnect", self.deployment.log.lines)
        self.assertEqual((set(), []), (self.ids(), self.deployment.entries()))

    def test_detach_foreign_attachment_with_device_in_use_raises_busy(self):
        made = self.foreign()
        path = f"/dev/{made}"
        self.deployment.host.connector.devices.add(path)
        self.deployment.mounts.users.add(path)
        self.assertRaises(exception.DeviceBusy, self.detach, device_info={"path": path})
        self.assertEqual(({made}, []), (self.ids(), self.deployment.entries()))

    def test_detach_foreign_attachment_after_failure_can_be_repeated(self):
        self.foreign()
        self.deployment.log.fail("DELETE")
        self.assertRaises(exception.DetachFailed, self.detach)
        self.deployment.log.heal()
        self.detach()
        self.assertEqual((set(), []), (self.ids(), self.deployment.entries()))

    def test_detach_attachment_of_other_host_raises_conflict(self):
        made = self.foreign("there")
        for how in ({}, {"attachment_id": made}, {"device_info": {"path": "/dev/x"}}):
            with self.assertRaisesRegex(exception.LocalConflict, f"{made} is of host there"):
                self.detach(**how)
        self.assertEqual({made}, self.ids())
        self.assertNotIn("connector disconnect", self.deployment.log.lines)

    def test_detach_attachment_without_host_needs_device(self):
        made = db_rows.add_attachment(self.volume)["id"]
        with self.assertRaisesRegex(
            exception.LocalConflict, "a host that the service does not name"
        ):
            self.detach(attachment_id=made)
        self.detach(attachment_id=made, device_info={"path": "/dev/x"})
        self.assertEqual(set(), self.ids())

    def test_detach_without_attachment_raises_conflict(self):
        with self.assertRaisesRegex(exception.LocalConflict, "no attachment"):
            self.detach()
        with self.assertRaisesRegex(exceptions.NotFoundException, "nonsense"):
            self.detach(attachment_id="nonsense")


class SeveralTest(Case):
    def setUp(self):
        super().setUp()
        self.ours = self.deployment.client.attach(self.volume)
        self.other = self.foreign()

    def test_detach_with_several_attachments_lists_them(self):
        with self.assertRaises(exception.LocalConflict) as caught:
            self.detach()
        said = f"{caught.exception}"
        for part in (self.ours.attachment_id, self.ours.path, "not mounted, rw", self.other):
            self.assertIn(part, said)

    def test_detach_by_attachment_id_selects_foreign_one(self):
        self.detach(attachment_id=self.other)
        self.assertEqual({self.ours.attachment_id}, self.ids())
        self.detach()
        self.assertEqual((set(), []), (self.ids(), self.deployment.entries()))

    def test_detach_by_attachment_id_selects_own_one(self):
        self.detach(attachment_id=self.ours.attachment_id)
        self.assertEqual({self.other}, self.ids())
        self.assertEqual([], self.deployment.entries())

    def test_detach_ignores_attachment_of_other_host(self):
        self.detach(attachment_id=self.other)
        elsewhere = self.foreign("there")
        self.detach()
        self.assertEqual({elsewhere}, self.ids())


class OwnerTest(Case):
    def test_detach_attachment_of_agent_raises_conflict(self):
        made = self.foreign()
        self.journal.write(Entry(self.volume, Owner.AGENT, step=Step.ATTACHED, attachment_id=made))
        for how in ({}, {"attachment_id": made}):
            with self.assertRaisesRegex(exception.LocalConflict, "agent"):
                self.detach(**how)
        self.assertEqual({made}, self.ids())

    def test_detach_volume_of_other_cloud_raises_conflict(self):
        other = str(uuid.uuid4())
        self.journal.write(
            Entry(other, step=Step.ATTACHED, attachment_id="a", cloud="http://elsewhere/v3")
        )
        with self.assertRaisesRegex(exception.LocalConflict, "http://elsewhere/v3"):
            self.deployment.client.detach(other)
        self.assertEqual(1, len(self.deployment.entries()))

    def test_detach_unknown_volume_raises_not_found(self):
        with self.assertRaises(exceptions.NotFoundException):
            self.deployment.client.detach("nonsense")
