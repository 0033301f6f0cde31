# SPDX-License-Identifier: Apache-2.0
"""Tests of the protection of attachments in use, with Nova replaced."""

import unittest
from unittest import mock

import webob

from attachd import exception
from attachd.api import detach_guard, nova
from attachd.conf import CONF
from attachd.objects import Attachment
from attachd.states import AttachmentState
from attachd.tests.fixtures import api_context, conf_fixture, db_rows

SERVER = "11111111-2222-3333-4444-555555555555"


class Case(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.compute = mock.Mock()
        self.compute.volume_use.return_value = nova.VolumeUse(None, "no such server")
        self.find = self.enterContext(
            mock.patch.object(nova, "find_compute", return_value=self.compute)
        )
        self.ctx = api_context.make_context()
        self.volume = db_rows.add_volume()["id"]
        self.request = webob.Request.blank("/")

    def attached(self, state="attached", **values):
        row = db_rows.add_attachment(
            values.pop("volume_id", self.volume),
            state,
            **{"instance_uuid": SERVER, "user_id": "u", **values},
        )
        return Attachment.get(api_context.make_context(*api_context.ADMIN), row["id"])

    def in_use(self, attachment):
        self.compute.volume_use.return_value = nova.VolumeUse(attachment.id)
        return attachment

    def check(self, attachment):
        return detach_guard.check(self.ctx, self.request, attachment)

    def assert_refused(self, attachment, says):
        with self.assertRaisesRegex(exception.AttachmentInUse, says):
            self.check(attachment)


class CheckTest(Case):
    def test_attachment_in_use_by_server_is_refused(self):
        used = self.in_use(self.attached())
        self.assert_refused(used, f"{used.id} is in use: server {SERVER}.*Compute API")
        self.compute.volume_use.assert_called_once_with(SERVER, self.volume)

    def test_attachment_unknown_to_nova_is_allowed_and_logged(self):
        attachment = self.attached()
        with self.assertLogs("attachd.api.detach_guard", "WARNING") as logged:
            self.check(attachment)
        (text,) = logged.output
        for word in (attachment.id, SERVER, "no such server", "compute-1"):
            self.assertIn(word, text)

    def test_attachment_replaced_in_nova_is_allowed_and_logged(self):
        self.compute.volume_use.return_value = nova.VolumeUse("another")
        with self.assertLogs("attachd.api.detach_guard", "WARNING") as logged:
            self.check(self.attached())
        self.assertIn("has it by attachment another", logged.output[0])

    def test_every_state_with_possible_access_is_checked(self):
        harmless = {AttachmentState.RESERVED, AttachmentState.CONNECT_FAILED}
        for state in set(AttachmentState) - {AttachmentState.HELD}:  # which is no attachment
            with self.subTest(state):
                attachment = self.in_use(
                    self.attached(state, volume_id=db_rows.add_volume()["id"])
                )
                if state in harmless:
                    self.check(attachment)
                else:
                    self.assert_refused(attachment, "is in use")

    def test_harmless_attachment_is_allowed_in_harmless_states_only(self):
        for state in ("reserved", "connect_failed"):
            self.assertEqual({"reserved", "connect_failed"}, self.check(self.attached(state)))
            self.assertIsNone(self.check(self.attached(state, instance_uuid=None)))
        self.compute.volume_use.assert_not_called()

    def test_attachment_released_by_nova_is_allowed_in_any_state(self):
        self.assertIsNone(self.check(self.attached()))

    def test_attachment_without_server_is_allowed_in_any_state(self):
        failed = self.attached("connect_failed")
        self.find.return_value = None
        self.assertIsNone(self.check(failed))
        self.find.side_effect = exception.Unavailable(reason="no catalogue")
        self.assertEqual(detach_guard.HARMLESS, self.check(failed))
        self.ctx.service_roles = ["service"]
        self.assertIsNone(self.check(failed))

    def test_interrupted_connect_is_checked_without_stored_connection(self):
        self.assert_refused(
            self.in_use(self.attached("connecting", connection_info=None)), "is in use"
        )

    def test_attachment_without_server_does_not_ask_nova(self):
        self.check(self.attached(instance_uuid=None))
        self.find.assert_not_called()

    def test_deployment_without_nova_allows_deletion(self):
        self.find.return_value = None
        self.check(self.attached())

    def test_unavailable_nova_refuses_deletion(self):
        self.compute.volume_use.side_effect = exception.Unavailable(reason="silent")
        with self.assertRaisesRegex(exception.Unavailable, "silent"):
            self.check(self.attached())


class ServiceTest(Case):
    def test_service_token_allows_everything(self):
        self.ctx.service_roles = ["service"]
        self.check(self.in_use(self.attached()))
        self.find.assert_not_called()

    def test_service_role_of_caller_does_not_count(self):
        self.ctx.roles = ["service", "member"]
        self.assert_refused(self.in_use(self.attached()), "is in use")

    def test_role_of_other_service_does_not_count(self):
        self.ctx.service_roles = ["reader"]
        self.assert_refused(self.in_use(self.attached()), "is in use")

    def test_service_roles_come_from_configuration(self):
        roles = mock.Mock(service_token_roles=["nova-service"])
        self.ctx.service_roles = ["nova-service"]
        with mock.patch.object(CONF, "keystone_authtoken", roles, create=True):
            self.check(self.in_use(self.attached()))


class CreatorTest(Case):
    def setUp(self):
        super().setUp()
        conf_fixture.override(self, "unknown_to_compute", "creator", "nova")

    def test_creator_may_delete_attachment_unknown_to_nova(self):
        self.check(self.attached(user_id=self.ctx.user_id))

    def test_other_user_may_not_delete_attachment_unknown_to_nova(self):
        self.assert_refused(self.attached(user_id="ironic"), "creator, user ironic")
        self.assert_refused(
            self.attached(volume_id=db_rows.add_volume()["id"], user_id=None), "its creator"
        )


class OverrideTest(Case):
    def test_override_skips_nova(self):
        used = self.in_use(self.attached())
        with mock.patch("attachd.api.override.is_overridden", return_value=True) as is_overridden:
            self.check(used)
        self.assertEqual([used.id], [argument.id for argument in is_overridden.call_args.args[2]])
        self.compute.volume_use.assert_not_called()


class VolumeTest(Case):
    def check(self, attachment_id=None):
        return detach_guard.check_volume(self.ctx, self.request, self.volume, attachment_id)

    def test_volume_without_attachments_is_allowed(self):
        self.check()
        self.compute.volume_use.assert_not_called()

    def test_only_attachment_needs_no_id(self):
        used = self.in_use(self.attached())
        with self.assertRaisesRegex(exception.AttachmentInUse, used.id):
            self.check()

    def test_several_attachments_need_an_id(self):
        first, second = self.attached(), self.attached()
        self.in_use(first)
        with self.assertRaisesRegex(exception.AttachmentInUse, "has 2 attachments"):
            self.check()
        self.check(second.id)

    def test_several_attachments_without_server_need_no_id(self):
        self.attached(instance_uuid=None)
        self.attached("reserved")
        self.check()

    def test_harmless_attachments_are_allowed_in_harmless_states_only(self):
        without_server = self.attached(instance_uuid=None).id
        failed, reserved = self.attached("connect_failed").id, self.attached("reserved").id
        expected = dict.fromkeys((failed, reserved), detach_guard.HARMLESS)
        self.assertEqual(expected, self.check())
        self.assertEqual({}, self.check(without_server))

    def test_volume_released_by_nova_is_allowed_in_any_state(self):
        self.assertEqual({}, self.check(self.attached().id))

    def test_attachment_of_other_volume_returns_400(self):
        other = self.attached(volume_id=db_rows.add_volume()["id"])
        with self.assertRaisesRegex(exception.InvalidInput, "attachment_id.*not of"):
            self.check(other.id)

    def test_deleted_attachment_is_allowed(self):
        self.attached()
        self.check(api_context.new_id())
        self.compute.volume_use.assert_not_called()

    def test_unavailable_nova_matters_only_for_used_volume(self):
        self.find.side_effect = exception.Unavailable(reason="no catalogue")
        self.check()
        self.attached()
        with self.assertRaisesRegex(exception.Unavailable, "no catalogue"):
            self.check()

    def test_check_without_nova_reads_no_rows(self):
        self.attached()
        with mock.patch.object(detach_guard, "attachment_queries") as queries:
            self.find.return_value = None
            self.check()
            self.find.return_value = self.compute
            self.ctx.service_roles = ["service"]
            self.check()
        queries.list_of_volumes.assert_not_called()


class WithoutDeviceTest(unittest.TestCase):
    def test_without_device_keeps_states_without_device(self):
        allowed = detach_guard.without_device(None)
        states = set(AttachmentState) - {"connected", "attached", "withdrawing"}
        self.assertEqual(states, allowed)
        self.assertEqual(detach_guard.HARMLESS, detach_guard.without_device(detach_guard.HARMLESS))
