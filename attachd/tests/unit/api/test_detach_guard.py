# SPDX-License-Identifier: Apache-2.0
"""Who may delete an attachment that a server may use, with Compute replaced."""

import unittest
from unittest import mock

import webob

from attachd import exception
from attachd.api import detach_guard, nova
from attachd.conf import CONF
from attachd.objects import Attachment
from attachd.states import AttachmentState
from attachd.tests import asking, backends, rows

SERVER = "11111111-2222-3333-4444-555555555555"


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.compute = mock.Mock()
        self.compute.volume_use.return_value = nova.VolumeUse(None, "no such server")
        self.find = self.enterContext(
            mock.patch.object(nova, "find_compute", return_value=self.compute)
        )
        self.ctx = asking.context()
        self.volume = rows.add_volume()["id"]
        self.request = webob.Request.blank("/")

    def attached(self, state="attached", **values):
        row = rows.add_attachment(
            values.pop("volume_id", self.volume),
            state,
            **{"instance_uuid": SERVER, "user_id": "u", **values},
        )
        return Attachment.get(asking.context(*asking.ADMIN), row["id"])

    def in_use(self, attachment):
        self.compute.volume_use.return_value = nova.VolumeUse(attachment.id)
        return attachment

    def check(self, attachment):
        return detach_guard.check(self.ctx, self.request, attachment)

    def assert_refused(self, attachment, says):
        with self.assertRaisesRegex(exception.AttachmentInUse, says):
            self.check(attachment)


class CheckTest(Case):
    def test_what_a_server_uses_is_detached_through_compute(self):
        used = self.in_use(self.attached())
        self.assert_refused(used, f"{used.id} is in use: server {SERVER}.*Compute API")
        self.compute.volume_use.assert_called_once_with(SERVER, self.volume)

    def test_what_compute_does_not_have_is_let_through_and_told(self):
        attachment = self.attached()
        with self.assertLogs("attachd.api.detach_guard", "WARNING") as logged:
            self.check(attachment)
        (text,) = logged.output
        for word in (attachment.id, SERVER, "no such server", "compute-1"):
            self.assertIn(word, text)

    def test_what_compute_has_by_another_attachment_is_let_through_and_told(self):
        self.compute.volume_use.return_value = nova.VolumeUse("another")
        with self.assertLogs("attachd.api.detach_guard", "WARNING") as logged:
            self.check(self.attached())
        self.assertIn("has it by attachment another", logged.output[0])

    def test_whatever_may_have_let_a_host_in_counts(self):
        harmless = {AttachmentState.RESERVED, AttachmentState.CONNECT_FAILED}
        for state in set(AttachmentState) - {AttachmentState.HELD}:  # which is no attachment
            with self.subTest(state):
                attachment = self.in_use(self.attached(state, volume_id=rows.add_volume()["id"]))
                if state in harmless:
                    self.check(attachment)
                else:
                    self.assert_refused(attachment, "is in use")

    def test_what_was_harmless_may_go_as_long_as_it_is(self):
        for state in ("reserved", "connect_failed"):
            self.assertEqual({"reserved", "connect_failed"}, self.check(self.attached(state)))
            self.assertIsNone(self.check(self.attached(state, instance_uuid=None)), "nobody minds")
        self.compute.volume_use.assert_not_called()

    def test_what_compute_has_let_go_may_go_whatever_becomes_of_it(self):
        self.assertIsNone(self.check(self.attached()))

    def test_where_nobody_minds_it_may_go_whatever_becomes_of_it(self):
        failed = self.attached("connect_failed")
        self.find.return_value = None
        self.assertIsNone(self.check(failed))
        self.find.side_effect = exception.Unavailable(reason="no catalogue")
        self.assertEqual(detach_guard.HARMLESS, self.check(failed))
        self.ctx.service_roles = ["service"]
        self.assertIsNone(self.check(failed))

    def test_an_interrupted_connect_counts_though_no_connection_was_noted(self):
        self.assert_refused(
            self.in_use(self.attached("connecting", connection_info=None)), "is in use"
        )

    def test_without_a_server_nobody_is_asked(self):
        self.check(self.attached(instance_uuid=None))
        self.find.assert_not_called()

    def test_without_compute_nobody_is_asked(self):
        self.find.return_value = None
        self.check(self.attached())

    def test_a_compute_that_cannot_tell_stops_it(self):
        self.compute.volume_use.side_effect = exception.Unavailable(reason="silent")
        with self.assertRaisesRegex(exception.Unavailable, "silent"):
            self.check(self.attached())


class ServiceTest(Case):
    def test_a_service_token_lets_everything_through(self):
        self.ctx.service_roles = ["service"]
        self.check(self.in_use(self.attached()))
        self.find.assert_not_called()

    def test_the_callers_own_role_service_does_not(self):
        self.ctx.roles = ["service", "member"]
        self.assert_refused(self.in_use(self.attached()), "is in use")

    def test_another_services_role_does_not(self):
        self.ctx.service_roles = ["reader"]
        self.assert_refused(self.in_use(self.attached()), "is in use")

    def test_the_roles_are_those_of_the_configuration(self):
        roles = mock.Mock(service_token_roles=["nova-service"])
        self.ctx.service_roles = ["nova-service"]
        with mock.patch.object(CONF, "keystone_authtoken", roles, create=True):
            self.check(self.in_use(self.attached()))


class CreatorTest(Case):
    def setUp(self):
        super().setUp()
        backends.override(self, "unknown_to_compute", "creator", "nova")

    def test_the_one_who_made_it_may_delete_it(self):
        self.check(self.attached(user_id=self.ctx.user_id))

    def test_nobody_else_may(self):
        self.assert_refused(self.attached(user_id="ironic"), "The user who made it, ironic")
        self.assert_refused(
            self.attached(volume_id=rows.add_volume()["id"], user_id=None), "made it"
        )


class OverrideTest(Case):
    def test_an_administrator_goes_on_without_compute(self):
        used = self.in_use(self.attached())
        with mock.patch("attachd.api.override.is_overridden", return_value=True) as is_overridden:
            self.check(used)
        self.assertEqual([used.id], [each.id for each in is_overridden.call_args.args[2]])
        self.compute.volume_use.assert_not_called()


class VolumeTest(Case):
    def check(self, attachment_id=None):
        return detach_guard.check_volume(self.ctx, self.request, self.volume, attachment_id)

    def test_without_attachments_there_is_nothing_to_protect(self):
        self.check()
        self.compute.volume_use.assert_not_called()

    def test_the_only_attachment_is_meant(self):
        used = self.in_use(self.attached())
        with self.assertRaisesRegex(exception.AttachmentInUse, used.id):
            self.check()

    def test_of_several_one_has_to_be_named(self):
        first, second = self.attached(), self.attached()
        self.in_use(first)
        with self.assertRaisesRegex(exception.AttachmentInUse, "has 2 attachments"):
            self.check()
        self.check(second.id)

    def test_several_without_servers_need_no_name(self):
        self.attached(instance_uuid=None)
        self.attached("reserved")
        self.check()

    def test_each_that_was_harmless_may_go_as_long_as_it_is(self):
        nobodys = self.attached(instance_uuid=None).id
        failed, reserved = self.attached("connect_failed").id, self.attached("reserved").id
        expected = dict.fromkeys((failed, reserved), detach_guard.HARMLESS)
        self.assertEqual(expected, self.check())
        self.assertEqual({}, self.check(nobodys))

    def test_what_compute_has_let_go_may_go_whatever_becomes_of_it(self):
        self.assertEqual({}, self.check(self.attached().id))

    def test_an_attachment_of_another_volume_is_told(self):
        other = self.attached(volume_id=rows.add_volume()["id"])
        with self.assertRaisesRegex(exception.InvalidInput, "attachment_id.*not of"):
            self.check(other.id)

    def test_an_attachment_that_is_gone_may_go(self):
        self.attached()
        self.check(asking.new_id())
        self.compute.volume_use.assert_not_called()

    def test_where_nobody_can_tell_it_matters_only_if_a_server_may_have_the_volume(self):
        self.find.side_effect = exception.Unavailable(reason="no catalogue")
        self.check()
        self.attached()
        with self.assertRaisesRegex(exception.Unavailable, "no catalogue"):
            self.check()

    def test_where_nobody_is_to_be_asked_nothing_is_read(self):
        self.attached()
        with mock.patch.object(detach_guard, "attachment_queries") as queries:
            self.find.return_value = None
            self.check()
            self.find.return_value = self.compute
            self.ctx.service_roles = ["service"]
            self.check()
        queries.list_of_volumes.assert_not_called()


class WithoutDeviceTest(unittest.TestCase):
    def test_of_whatever_the_guard_allows_that_remains_in_which_there_is_no_device(self):
        allowed = detach_guard.without_device(None)
        states = set(AttachmentState) - {"connected", "attached", "withdrawing"}
        self.assertEqual(states, allowed)
        self.assertEqual(detach_guard.HARMLESS, detach_guard.without_device(detach_guard.HARMLESS))
