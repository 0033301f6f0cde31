# SPDX-License-Identifier: Apache-2.0
"""RPC calls of a backend: each has its effect and returns no secret."""

import inspect
import json
import logging
import unittest

from oslo_log import log
import oslo_messaging as messaging

from attachd import context, exception
from attachd.db import messages
from attachd.db.engine.paging import Page
from attachd.db.secrets import encryption, key_file
from attachd.db.volumes import volume_store
from attachd.manager.endpoint import Endpoint
from attachd.objects import AttachdObject, Attachment, Volume
from attachd.rpc import manager_api, transport
from attachd.states import Event
from attachd.tests.fixtures import backends, db_rows, key_files, lifetime
from attachd.tests.fixtures.db_rows import CONNECTOR


class EndpointTest(backends.BackendCase):
    """Each method as oslo.messaging calls it."""

    def setUp(self):
        super().setUp()
        self.endpoint = Endpoint(self.backend)
        self.context = context.RequestContext(project_id=db_rows.PROJECT)

    def _volume(self, state):
        volume_id = db_rows.add_volume(state, owner=backends.HOST, new_size_gib=3)["id"]
        return Volume.get(self.context, volume_id)

    def test_endpoint_version_is_that_of_manager_api(self):
        self.assertEqual(manager_api.VERSION, self.endpoint.target.version)

    def test_object_arguments_are_those_that_endpoint_annotates(self):
        methods = inspect.getmembers(Endpoint, inspect.isfunction)
        annotated = {
            name
            for _method, function in methods
            for name, kind in inspect.get_annotations(inspect.unwrap(function)).items()
            if name != "return" and inspect.isclass(kind) and issubclass(kind, AttachdObject)
        }
        self.assertEqual(transport.OBJECT_ARGUMENTS, annotated)

    def test_attach_and_attach_exclusive_connect(self):
        for method in (self.endpoint.attach, self.endpoint.attach_exclusive):
            volume_id = db_rows.add_volume()["id"]
            attachment_id = db_rows.add_attachment(volume_id)["id"]
            answer = method(
                self.context, attachment_id=attachment_id, volume_id=volume_id, connector=CONNECTOR
            )
            self.assertEqual({"id", *manager_api.Connected.__required_keys__}, set(answer))
            self.assertIn(attachment_id, self.driver.granted())

    def test_answer_is_encrypted_for_callers_with_keys_only(self):
        keys = lifetime.temp_dir(self) / "keys"
        key_file.create(str(keys))
        key_files.configure(self, keys)
        volume_id = db_rows.add_volume()["id"]
        ids = {
            "attachment_id": db_rows.add_attachment(volume_id)["id"],
            "volume_id": volume_id,
            "connector": CONNECTOR,
        }
        (key_id,) = key_files.key_ids(keys)
        for _repeated in range(2):
            encrypted = self.endpoint.attach(self.context, **ids, key_id=key_id)
            self.assertIsNone(encrypted["connection_info"])
            plain = self.endpoint.attach(self.context, **ids)
            text = encryption.decrypt(encrypted["encrypted"], "connection_info", encrypted["id"])
            self.assertEqual(plain["connection_info"], json.loads(text))

    def test_only_attach_exclusive_refuses_other_connections(self):
        volume_id = db_rows.add_volume()["id"]
        server = "11111111-1111-1111-1111-111111111111"
        db_rows.add_attachment(volume_id, "connected", instance_uuid=server)
        attachment_id = db_rows.add_attachment(volume_id, instance_uuid=server)["id"]
        arguments = {
            "attachment_id": attachment_id,
            "volume_id": volume_id,
            "connector": CONNECTOR,
        }
        with self.assertRaises(messaging.ExpectedException) as answered:
            self.endpoint.attach_exclusive(self.context, **arguments)
        self.assertIs(exception.NotMultiattach, answered.exception.exc_info[0])
        self.endpoint.attach(self.context, **arguments)

    def test_detach_returns_remaining_attachments_without_secrets(self):
        volume_id = db_rows.add_volume(multiattach=True)["id"]
        attachment_id = db_rows.add_attachment(volume_id, "attached")["id"]
        info = {"driver_volume_type": "iscsi", "data": {"auth_password": "x"}}
        other = db_rows.add_attachment(volume_id, "attached", connection_info=info)["id"]
        (left,) = self.endpoint.detach(
            self.context, attachment_id=attachment_id, volume_id=volume_id
        )
        self.assertIsInstance(left, Attachment)
        self.assertEqual((other, "attached"), (left.id, left.state))
        for secret in ("connector", "connection_info"):
            self.assertFalse(left.obj_attr_is_set(secret), secret)
        self.assertFalse(left.obj_what_changed())

    def test_force_detach_stores_message_with_caller(self):
        volume_id = db_rows.add_volume(multiattach=True)["id"]
        attachment_id = db_rows.add_attachment(volume_id, "attached")["id"]
        other = db_rows.add_attachment(volume_id, "attached")["id"]
        root = context.RequestContext(user_id="root", project_id="b" * 32, overwrite=False)
        (left,) = self.endpoint.force_detach(
            root, attachment_id=attachment_id, volume_id=volume_id
        )
        self.assertEqual(other, left.id)
        self.assertFalse(left.obj_attr_is_set("connector"))
        (result,) = messages.page({"project_id": db_rows.PROJECT}, Page(limit=9))
        self.assertEqual(("VOLUME_VOLUME_102_102", volume_id),
                         (result["event_id"], result["resource_uuid"]))  # fmt: skip
        self.assertEqual({"user_id": "root", "attachment_id": attachment_id}, result["details"])

    def test_initialize_and_terminate_connection_succeed(self):
        volume = Volume.get(self.context, db_rows.add_volume()["id"])
        answer = self.endpoint.initialize_connection(
            self.context, volume=volume, connector=CONNECTOR
        )
        self.assertEqual({"id", *manager_api.Connected.__required_keys__}, set(answer))
        self.assertEqual(1, len(self.driver.granted()))
        closed = self.endpoint.terminate_connections(
            self.context, volume_id=volume.id, connector=None, attachment_ids=[]
        )
        self.assertEqual((1, set()), (closed, self.driver.granted()))

    def test_detach_returns_no_legacy_connections(self):
        volume_id = db_rows.add_volume(multiattach=True)["id"]
        attachment_id = db_rows.add_attachment(volume_id, "attached")["id"]
        db_rows.add_attachment(volume_id, "held")
        left = self.endpoint.detach(self.context, attachment_id=attachment_id, volume_id=volume_id)
        self.assertEqual([], left)

    def test_create_volume_creates_it(self):
        volume = self._volume("creating")
        self.endpoint.create_volume(self.context, volume=volume)
        self.assertEqual("available", db_rows.get_volume(volume.id)["status"])
        self.assertIn(volume.id, self.driver.sizes())

    def test_delete_volume_removes_it(self):
        volume = self._volume("deleting")
        self.endpoint.delete_volume(self.context, volume=volume)
        self.assertEqual([], db_rows.list_volumes())

    def test_extend_volume_uses_size_of_row(self):
        volume = self._volume("ready")
        volume_store.transition(volume.id, Event.EXTEND, {"new_size_gib": 4})
        self.endpoint.extend_volume(self.context, volume=volume)
        self.assertEqual(4, db_rows.get_volume(volume.id)["size_gib"])


class LogLevelsTest(unittest.TestCase):
    def test_set_log_levels_changes_only_named_hosts(self):
        logger = log.getLogger("attachd.tests.answering").logger
        self.addCleanup(logger.setLevel, logging.NOTSET)
        levels, who = (
            Endpoint(backends.use(self)),
            context.RequestContext(overwrite=False),
        )
        for hosts, expected in ((["other@fake"], "ERROR"), ([backends.HOST], "DEBUG")):
            logger.setLevel("ERROR")
            levels.set_log_levels(who, hosts=hosts, prefix=logger.name, level="DEBUG")
            answer = levels.get_log_levels(who, prefix=logger.name)
            self.assertEqual({logger.name: expected}, answer)
