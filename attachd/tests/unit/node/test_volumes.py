# SPDX-License-Identifier: Apache-2.0
"""Records and refusals without a mount; functional/test_node_volumes.py has real devices."""

from pathlib import Path
import unittest
from unittest import mock

from attachd import exception
from attachd.agent.connectors.base import Device, Options
from attachd.agent.host import Host, Identity
from attachd.agent.journal import Entry, Owner, Step
from attachd.agent.staging import Publication, Staging
from attachd.node import volumes
from attachd.node.volumes import NodeVolumes, Problem, Refused, Target
from attachd.tests.fixtures import fake_host, lifetime

_VOLUME, _ATTACHMENT = "v", "a"


class NodeVolumesTest(unittest.TestCase):
    """A device that containers get as it is; it is a file."""

    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)
        connector = fake_host.FileConnector(lifetime.temp_dir(self))
        device = connector.connect({"target": "t1"}, Options())
        with mock.patch("attachd.agent.host.make_connector", return_value=connector):
            self.host = Host(Identity("node-1"), self.folder / "host")
        self.volumes = NodeVolumes(self.host)
        self.target = Target(_VOLUME, _ATTACHMENT, device.path, "rw")
        self.entry_id = self.host.journal.write(
            Entry(
                _VOLUME,
                Owner.AGENT,
                Step.ATTACHED,
                attachment_id=_ATTACHMENT,
                connection_info={"target": "t1"},
                device=device,
            )
        ).id
        self.staging = Staging(f"{self.folder}/staging", None)
        self.publication = Publication(f"{self.folder}/target")

    @property
    def entry(self):
        return self.host.journal.get(self.entry_id)

    def assert_refused(self, problem, call, *arguments):
        with self.assertRaises(Refused) as raised:
            call(*arguments)
        self.assertEqual(problem, raised.exception.problem)

    def test_staging_is_recorded_and_forgotten(self):
        for _ in range(2):
            self.volumes.stage(self.target, self.staging)
        self.assertEqual((self.staging, Step.ATTACHED), (self.entry.staging, self.entry.step))
        self.assertEqual(self.entry, self.volumes.find(_VOLUME, self.staging.path))
        self.assertIsNone(self.volumes.find(_VOLUME, "/elsewhere"))
        for _ in range(2):
            self.volumes.unstage(_VOLUME, self.staging.path)
        self.assertIsNone(self.entry.staging)

    def test_uses_are_recorded_and_keep_volume_staged(self):
        path = self.staging.path
        self.assert_refused(Problem.NOT_STAGED, self.volumes.add_use, _VOLUME, path, "a")
        self.volumes.stage(self.target, self.staging)
        for use in ("a", "b", "a"):
            self.volumes.add_use(_VOLUME, path, use)
        self.volumes.stage(self.target, self.staging)
        self.assert_refused(Problem.CONFLICTS, self.volumes.unstage, _VOLUME, path)
        for use, remaining in (("c", ("a", "b")), ("a", ("b",)), ("b", ()), ("b", ())):
            self.assertEqual(remaining, self.volumes.end_use(_VOLUME, path, use))
        self.volumes.unstage(_VOLUME, path)
        self.assertEqual((), self.volumes.end_use(_VOLUME, path, "a"))

    def test_staged_volumes_are_listed_by_directory(self):
        self.assertEqual([], self.volumes.list_staged(f"{self.folder}"))
        self.volumes.stage(self.target, self.staging)
        self.assertEqual([self.entry], self.volumes.list_staged(f"{self.folder}"))
        self.assertEqual([], self.volumes.list_staged(f"{self.folder.parent}"))

    def test_directory_without_mount_has_no_users(self):
        self.assertFalse(volumes.has_users(f"{self.folder}"))

    def test_link_in_place_of_staging_directory_is_not_followed(self):
        Path(self.staging.path).symlink_to("/proc")
        with self.assertRaisesRegex(exception.HostError, "symbolic link"):
            self.volumes.unstage(_VOLUME, self.staging.path)
        self.assertTrue(Path("/proc/self").exists())

    def test_device_of_other_attachment_is_not_staged(self):
        self.enterContext(mock.patch.object(volumes, "LOCK_TIMEOUT", 0))
        for target in (
            Target(_VOLUME, "b", self.target.device, "rw"),
            Target(_VOLUME, _ATTACHMENT, "/dev/other", "rw"),
        ):
            with self.assertRaisesRegex(exception.LocalConflict, "The agent"):
                self.volumes.stage(target, self.staging)
        Path(self.target.device).unlink()
        with self.assertRaises(exception.LocalConflict):
            self.volumes.stage(self.target, self.staging)

    def test_volume_that_is_attached_read_only_is_not_published_for_writing(self):
        self.volumes.stage(Target(_VOLUME, _ATTACHMENT, self.target.device, "ro"), self.staging)
        self.assertTrue(self.entry.staging.read_only)
        publish = self.volumes.publish
        with mock.patch.object(NodeVolumes, "_is_staged", return_value=True):
            self.assert_refused(
                Problem.CONFLICTS, publish, _VOLUME, self.staging, self.publication
            )

    def test_type_or_option_that_is_not_permitted_is_refused(self):
        for staging in (Staging("/s", "btrfs"), Staging("/s", "ext4", options="bind")):
            with self.assertRaises(exception.HostError):
                self.volumes.stage(self.target, staging)
            self.assertIsNone(self.entry.staging)

    def test_failed_publication_leaves_nothing(self):
        self.volumes.stage(self.target, self.staging)
        with self.assertRaisesRegex(exception.HostError, "plain file"):
            self.volumes.publish(_VOLUME, self.staging, self.publication)
        self.assertEqual(self.staging, self.entry.staging)
        self.assertFalse(Path(self.publication.path).exists())

    def test_publication_at_impossible_path_is_refused(self):
        self.volumes.stage(self.target, self.staging)
        for path in ("relative", f"{self.folder}/x/../target", f"{self.folder}/missing/target"):
            with self.assertRaisesRegex(exception.HostError, "absolute|no directory"):
                self.volumes.publish(_VOLUME, self.staging, Publication(path))
        self.assertEqual(self.staging, self.entry.staging)

    def test_publication_of_volume_that_is_not_staged_is_refused(self):
        publish = self.volumes.publish
        self.assert_refused(Problem.NOT_STAGED, publish, _VOLUME, self.staging, self.publication)
        self.host.journal.write(self.entry, staging=Staging(self.staging.path, "ext4"))
        self.assert_refused(Problem.NOT_STAGED, publish, _VOLUME, self.staging, self.publication)

    def test_device_that_is_used_as_it_is_has_no_file_system_to_grow(self):
        self.volumes.stage(self.target, self.staging)
        self.volumes.grow(_VOLUME, self.staging.path)
        self.assertIsNone(self.entry.filesystem)

    def test_record_of_missing_device_is_not_staged(self):
        self.host.journal.write(self.entry, staging=self.staging, device=Device("/dev/none", {}))
        self.assert_refused(
            Problem.NOT_STAGED, self.volumes.publish, _VOLUME, self.staging, self.publication
        )
