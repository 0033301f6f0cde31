# SPDX-License-Identifier: Apache-2.0
import unittest

from attachd.csi import volume_view
from attachd.tests.fixtures.csi_requests import GIB, clone, zone
from attachd.tests.unit.platforms.fake_storage import make_attachment, make_volume


def _attachment(node, status="attached", condition=None):
    return make_attachment("v", node, status=status, condition=condition)


class ViewTest(unittest.TestCase):
    def test_volume_has_size_context_and_source(self):
        volume = make_volume(
            size_gib=2, metadata={"csi.parameter.fsType": "xfs", "csi.source": "s"}
        )
        shown = volume_view.show(volume)
        self.assertEqual((volume.id, 2 * GIB), (shown.volume_id, shown.capacity_bytes))
        expected = {"attachd.fs_type": "xfs", "attachd.copy": "true"}
        self.assertEqual(expected, dict(shown.volume_context))
        self.assertEqual(clone("s"), shown.content_source)
        self.assertEqual([], list(shown.accessible_topology))

    def test_volume_of_no_source_is_no_copy(self):
        shown = volume_view.show(make_volume(metadata={"csi.parameter.fsType": "xfs"}))
        self.assertEqual({"attachd.fs_type": "xfs"}, dict(shown.volume_context))
        self.assertFalse(shown.HasField("content_source"))

    def test_topology_is_zone(self):
        shown = volume_view.show_with_topology(make_volume(zone="mars"))
        self.assertEqual([zone("mars")], list(shown.accessible_topology))
        shown = volume_view.show_with_topology(make_volume(zone=None))
        self.assertEqual([], list(shown.accessible_topology))

    def test_nodes_are_those_that_may_have_volume(self):
        attachments = [
            _attachment("b"),
            _attachment("a", "detaching"),
            _attachment("b", "attaching"),
            _attachment("c", "reserved"),
            _attachment(None),
        ]
        self.assertEqual(["a", "b"], volume_view.list_nodes(attachments))

    def test_condition_names_status_and_nodes(self):
        bad = {"state": "failed", "message": "It does not answer."}
        fine = {"state": "ok", "message": None}
        for volume, attachments, abnormal, text in (
            (make_volume(), [_attachment("a", condition=fine)], False, "available"),
            (make_volume(), [_attachment("a", condition=bad)], True, "Node a: It does not"),
            (make_volume(status="error_extending"), [], True, "error_extending"),
        ):
            shown = volume_view.show_condition(volume, attachments)
            self.assertEqual(abnormal, shown.abnormal)
            self.assertIn(text, shown.message)
