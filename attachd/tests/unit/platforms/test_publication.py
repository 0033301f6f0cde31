# SPDX-License-Identifier: Apache-2.0
import datetime
import unittest
from unittest import mock

from attachd.platforms import calls
from attachd.platforms.calls import Call, CallError
from attachd.platforms.publication import Fence, Publication, Publisher
from attachd.tests.unit.platforms.fake_storage import FakeStorage, make_attachment, refusal


class PublicationCase(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.storage = FakeStorage()
        self.volume = self.storage.add()

    def publish(self, node="one", mode="rw", *, many=False, one_writer=False, limit=30.0):
        wanted = Publication(self.volume, node, mode, many, one_writer)
        with calls.serving(Call.start(limit)):
            return Publisher(self.storage, Fence.PROVED).publish(wanted)

    def failed(self, *arguments, **options):
        """Return code and message of a publication that fails."""
        with self.assertRaises(CallError) as caught:
            self.publish(*arguments, **options)
        return caught.exception.code.name, f"{caught.exception}"

    def add(self, node="one", **values):
        """Add an attachment of the volume."""
        made = make_attachment(self.volume.id, node, **values)
        self.storage.attached.append(made)
        return made

    def share(self):
        """Let the volume have several holders."""
        self.storage.change(self.volume.id, is_multiattach=True)
        self.volume = self.storage.volumes[self.volume.id]

    def names(self):
        """Return the names of the requests that change something."""
        return [name for name, _ in self.storage.requested]


class PublishTest(PublicationCase):
    def test_volume_is_attached_once(self):
        self.assertEqual(self.publish(), self.publish())
        self.assertEqual(["attach"], self.names())

    def test_other_mode_already_exists(self):
        self.publish()
        code, text = self.failed(mode="ro")
        self.assertEqual("ALREADY_EXISTS", code)
        self.assertIn("in mode rw, and ro is requested", text)

    def test_other_holder_is_named(self):
        other = self.add("two")
        self.assertEqual("FAILED_PRECONDITION", self.failed()[0])
        self.assertIn("published to node two.", self.failed()[1])
        self.storage.attached = [make_attachment(self.volume.id, None, status="reserved")]
        self.assertIn(f"attachment {self.storage.attached[0].id}", self.failed()[1])
        self.assertNotEqual(other.id, self.storage.attached[0].id)

    def test_attachment_in_progress_is_waited_for(self):
        pending = self.add(status="attaching")
        code, text = self.failed(limit=0.5)
        self.assertEqual("ABORTED", code)
        self.assertIn("is being attached at node one", text)
        self.storage.attached = [make_attachment(self.volume.id, id=pending.id)]
        self.assertEqual(pending.id, self.publish())
        self.assertEqual([], self.names())

    def test_attachment_that_is_being_detached_is_aborted(self):
        for status in ("detaching", "error_detaching"):
            self.storage.attached = [make_attachment(self.volume.id, status=status)]
            self.assertEqual("ABORTED", self.failed()[0])

    def test_failed_attachment_and_lost_reservation_are_replaced(self):
        old = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
        for values in ({"status": "error_attaching"}, {"status": "reserved", "created_at": old}):
            self.storage.attached = [make_attachment(self.volume.id, **values)]
            self.assertEqual(self.publish(), self.storage.attached[0].id)
        self.assertEqual(["detach", "attach"] * 2, self.names())

    def test_attachment_of_another_controller_is_used(self):
        def overtake():
            if not self.storage.attached:
                self.add()
            self.storage.failures = [refusal(400, "volume_not_available")]

        self.storage.on_attach = overtake
        self.assertEqual(self.publish(), self.storage.attached[0].id)

    def test_holder_that_was_faster_is_named(self):
        def overtake():
            self.add("two")
            self.storage.failures = [refusal(409, "not_multiattach")]

        self.storage.on_attach = overtake
        self.assertEqual("FAILED_PRECONDITION", self.failed()[0])

    def test_volume_in_other_status_is_aborted(self):
        for status, code in (("extending", "ABORTED"), ("error", "FAILED_PRECONDITION")):
            self.storage.failures = [refusal(400, "volume_not_available")]
            self.storage.change(self.volume.id, status=status)
            self.assertEqual(code, self.failed()[0])

    def test_refusals_of_api_keep_their_codes(self):
        for failure, code in (
            (refusal(404, "agent_not_found"), "NOT_FOUND"),
            (refusal(409, "agent_unavailable"), "UNAVAILABLE"),
            (refusal(400, "attachment_limit_exceeded"), "RESOURCE_EXHAUSTED"),
        ):
            self.storage.failures = [failure]
            self.assertEqual(code, self.failed()[0])


class SharedTest(PublicationCase):
    def setUp(self):
        super().setUp()
        self.share()

    def test_several_nodes_have_volume_if_capability_permits(self):
        self.publish("one", many=True)
        self.publish("two", many=True)
        self.assertEqual("FAILED_PRECONDITION", self.failed("three")[0])

    def test_one_writer_is_enforced(self):
        self.publish("one", many=True, one_writer=True)
        self.publish("two", "ro", many=True, one_writer=True)
        code, text = self.failed("three", many=True, one_writer=True)
        self.assertEqual("FAILED_PRECONDITION", code)
        self.assertIn("published to node one.", text)

    def test_call_at_same_time_for_another_node_takes_attachment_back(self):
        self.storage.on_attach = lambda: self.add("two")
        self.assertEqual("FAILED_PRECONDITION", self.failed()[0])
        self.assertEqual(["two"], [item.node for item in self.storage.attached])

    def test_attachment_that_killed_controller_left_elsewhere_is_no_success(self):
        self.publish()
        self.add("two")
        for node in ("one", "two"):
            self.assertEqual("FAILED_PRECONDITION", self.failed(node)[0])
        self.assertEqual(["attach"], self.names())

    def test_call_at_same_time_for_same_node_takes_attachment_back(self):
        self.storage.on_attach = lambda: self.add("one")
        self.assertEqual("ABORTED", self.failed(many=True)[0])
        (left,) = self.storage.attached
        self.assertEqual(left.id, self.publish(many=True))


class UnpublishTest(PublicationCase):
    def unpublish(self, node="one", fence=Fence.PROVED):
        Publisher(self.storage, fence).unpublish(self.volume.id, node)

    def not_unpublished(self, **options):
        """Return code and message of a call that fails."""
        with self.assertRaises(CallError) as caught:
            self.unpublish(**options)
        return caught.exception.code.name, f"{caught.exception}"

    def silent(self):
        """Let the next request find a silent agent."""
        self.storage.failures = [refusal(409, "agent_unavailable", "Node one is silent.")]

    def test_volume_is_detached_at_node(self):
        self.add("one")
        other, of_compute = self.add("two"), self.add(None, host="one")
        for _ in range(2):
            self.unpublish()
        self.assertEqual([other, of_compute], self.storage.attached)

    def test_volume_is_detached_everywhere_without_node(self):
        self.add("one")
        self.add("two")
        of_compute = self.add(None, host="one")
        self.unpublish("")
        self.assertEqual([of_compute], self.storage.attached)

    def test_attachment_that_was_deleted_meanwhile_is_success(self):
        self.add()
        self.storage.failures = [refusal(404, "attachment_not_found")]
        self.unpublish()

    def test_busy_device_fails_precondition(self):
        self.add()
        self.storage.failures = [refusal(409, "device_busy")]
        self.assertEqual("FAILED_PRECONDITION", self.not_unpublished()[0])
        self.assertNotIn("fence", self.names())

    def test_silent_node_is_fenced_with_proof(self):
        self.add()
        self.silent()
        self.unpublish()
        self.assertEqual(["detach", "fence"], self.names())

    def test_fence_without_proof_needs_option(self):
        self.storage.fencing_kind = "asserted"
        self.add()
        self.silent()
        code, text = self.not_unpublished()
        self.assertEqual("UNAVAILABLE", code)
        self.assertIn("is asserted, and proved is required", text)
        self.silent()
        self.unpublish(fence=Fence.ASSERTED)
        self.assertEqual(["detach", "detach", "fence"], self.names())

    def test_node_is_never_fenced_if_option_says_so(self):
        self.add()
        self.silent()
        self.assertEqual(
            ("UNAVAILABLE", "Node one is silent."), self.not_unpublished(fence=Fence.NEVER)
        )

    def test_fence_without_the_required_result_is_no_success(self):
        attachment = self.add()
        results = {"pending": "ABORTED", "failed": "UNAVAILABLE", "asserted": "UNAVAILABLE"}
        for result, code in results.items():
            self.storage.results = {attachment.id: result}
            self.silent()
            self.assertEqual(code, self.not_unpublished()[0])

    def test_fence_that_does_not_name_the_attachment_is_aborted(self):
        self.add()
        self.silent()
        self.enterContext(mock.patch.object(self.storage, "fence", return_value=[]))
        self.assertEqual("ABORTED", self.not_unpublished()[0])
