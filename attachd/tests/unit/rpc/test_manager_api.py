# SPDX-License-Identifier: Apache-2.0
"""RPC client of managers: messages, backends and mapping of errors."""

import unittest
from unittest import mock

import oslo_messaging as messaging

from attachd import context, exception, objects
from attachd.db.secrets import encryption, key_file
from attachd.objects import Attachment, Volume
from attachd.rpc import manager_api, transport
from attachd.rpc.versions import IntroducedIn
from attachd.tests.fixtures import key_files, lifetime, rpc_clients
from attachd.tests.fixtures.conf_fixture import override

CONTEXT = context.RequestContext(project_id="p", overwrite=False)
CONNECTOR = {"host": "h"}


def _attachment(host="here@fake#pool"):
    return Attachment(id="a", volume_id="v", volume_host=host)


def _volume(host="here@fake#pool"):
    return Volume(id="v", host=host)


CALL_OF = {
    "attach": lambda **where: manager_api.attach(CONTEXT, _attachment(**where), CONNECTOR),
    "attach_exclusive": lambda **where: manager_api.attach_exclusive(
        CONTEXT, _attachment(**where), CONNECTOR
    ),
    "check_attach": lambda **where: manager_api.check_attach(
        CONTEXT, _volume(**where), CONNECTOR, None
    ),
    "detach": lambda **where: manager_api.detach(CONTEXT, _attachment(**where)),
    "force_detach": lambda **where: manager_api.force_detach(CONTEXT, _attachment(**where)),
    "process_pending": lambda **where: manager_api.process_pending(CONTEXT, _attachment(**where)),
    "initialize_connection": lambda **where: manager_api.initialize_connection(
        CONTEXT, _volume(**where), CONNECTOR
    ),
    "terminate_connections": lambda **where: manager_api.terminate_connections(
        CONTEXT, _volume(**where), None, ("a",)
    ),
    "compare_exports": lambda **where: manager_api.compare_exports(CONTEXT, _volume(**where)),
    "compare_volume": lambda **where: manager_api.compare_volume(CONTEXT, _volume(**where)),
    "get_persistent_reservation": lambda **where: manager_api.get_persistent_reservation(
        CONTEXT, _volume(**where)
    ),
    "create_volume": lambda **where: manager_api.create_volume(CONTEXT, _volume(**where)),
    "delete_volume": lambda **where: manager_api.delete_volume(CONTEXT, _volume(**where)),
    "extend_volume": lambda **where: manager_api.extend_volume(CONTEXT, _volume(**where)),
}
CALLS = frozenset(
    {
        *("attach", "attach_exclusive", "check_attach", "detach", "force_detach"),
        *("initialize_connection", "terminate_connections", "compare_exports"),
        *("compare_volume", "get_persistent_reservation"),
    }
)


class _RpcCase(unittest.TestCase):
    def setUp(self):
        super().setUp()
        override(self, "attachd_manager", manager_api.VERSION, group="upgrade_levels")
        self.client, self.made = rpc_clients.patch_clients(self)


class RequestTest(_RpcCase):
    """Each function sends one message."""

    def test_client_has_backend_timeout_and_version(self):
        override(self, "attach_timeout", 7, group="rpc")
        for ask in CALL_OF.values():
            ask()
            self.made.assert_called_with(
                "here@fake",
                timeout=7,
                version=manager_api.VERSION,
                objects=objects.newest_manifest(),
            )

    def test_methods_with_answer_are_calls_and_others_casts(self):
        for name, ask in CALL_OF.items():
            self.client.reset_mock()
            answer = ask()
            self.assertEqual(int(name in CALLS), self.client.call.call_count, name)
            self.assertEqual(int(name not in CALLS), self.client.cast.call_count, name)
            self.assertEqual(self.client.call.return_value if name in CALLS else None, answer)

    def test_set_log_levels_is_fanout_and_get_log_levels_is_call(self):
        with mock.patch.object(transport, "get_fanout_client") as get_client:
            manager_api.set_log_levels(CONTEXT, {"here@fake"}, "attachd", "DEBUG")
        get_client.assert_called_once_with(manager_api.VERSION)
        get_client.return_value.cast.assert_called_once_with(
            CONTEXT, "set_log_levels", hosts=["here@fake"], prefix="attachd", level="DEBUG"
        )
        answer = manager_api.get_log_levels(CONTEXT, "here@fake", "attachd")
        self.client.call.assert_called_once_with(CONTEXT, "get_log_levels", prefix="attachd")
        self.assertIs(self.client.call.return_value, answer)

    def test_attach_sends_ids_and_connector(self):
        for name in ("attach", "attach_exclusive"):
            CALL_OF[name]()
            self.client.call.assert_called_with(
                CONTEXT,
                name,
                attachment_id="a",
                volume_id="v",
                connector=CONNECTOR,
                denied_rule=None,
                key_id=None,
            )

    def test_encrypted_answer_is_decrypted_with_shared_key(self):
        keys = lifetime.temp_dir(self) / "keys"
        key_file.create(str(keys))
        key_files.configure(self, keys)
        info = {"driver_volume_type": "fake", "data": {"auth_password": "secret"}}
        stored = encryption.protect(info, "connection_info", "row")
        self.client.call.return_value = {
            "id": "row",
            "connection_info": None,
            "encrypted": stored.text,
            "mode": "rw",
        }
        for name in ("attach", "attach_exclusive", "initialize_connection"):
            self.assertEqual({"connection_info": info, "mode": "rw"}, CALL_OF[name]())
            key_id = self.client.call.call_args.kwargs["key_id"]
            self.assertEqual(key_files.key_ids(keys), [key_id])

    def test_detach_sends_ids_and_allowed_states(self):
        ids = {"attachment_id": "a", "volume_id": "v"}
        CALL_OF["detach"]()
        self.client.call.assert_called_with(CONTEXT, "detach", **ids, states=None)
        manager_api.detach(CONTEXT, _attachment(), frozenset({"reserved", "connect_failed"}))
        self.client.call.assert_called_with(
            CONTEXT, "detach", **ids, states=["connect_failed", "reserved"]
        )
        CALL_OF["force_detach"]()
        self.client.call.assert_called_with(CONTEXT, "force_detach", **ids, states=None)

    def test_volume_methods_send_volume(self):
        for name in ("create_volume", "delete_volume", "extend_volume"):
            CALL_OF[name]()
            (_context, method), arguments = self.client.cast.call_args
            self.assertEqual((name, "v"), (method, arguments["volume"].id))


class ErrorTest(_RpcCase):
    """Errors of oslo.messaging become errors of attachd."""

    ERRORS = (
        (
            messaging.MessagingTimeout("late"),
            exception.ManagerTimeout,
            "here@fake .*(attachment a|volume v) before",
        ),
        (messaging.MessageUndeliverable(None, "", "", ""), exception.Unavailable, "here@fake"),
        (messaging.MessageDeliveryFailure("refused"), exception.Unavailable, "message queue"),
    )

    def test_messaging_errors_become_errors_naming_backend(self):
        for name, ask in CALL_OF.items():
            for trouble, error, said in self.ERRORS:
                self.client.call.side_effect = self.client.cast.side_effect = trouble
                with self.subTest(name, trouble=trouble), self.assertRaisesRegex(error, said):
                    ask()

    def test_error_of_manager_is_raised_unchanged(self):
        held = exception.ConnectorConflict(attachment_id="a", host="h")
        self.client.call.side_effect = held
        with self.assertRaises(exception.ConnectorConflict) as raised:
            CALL_OF["attach"]()
        self.assertIs(held, raised.exception)

    def test_volume_without_backend_raises_conflict_and_sends_nothing(self):
        for host in (None, ""):
            for name, ask in CALL_OF.items():
                with self.subTest(name, host=host), self.assertRaises(exception.Conflict):
                    ask(host=host)
        self.made.assert_not_called()


class OlderManagersTest(_RpcCase):
    """An invented contract of later releases."""

    def setUp(self):
        super().setUp()
        introduced = {
            "attach": IntroducedIn(arguments={"denied_rule": "1.3", "key_id": "1.2"}),
            "detach": IntroducedIn(arguments={"states": "1.2"}),
            "initialize_connection": IntroducedIn("1.1", {"denied_rule": "1.3", "key_id": "1.7"}),
            "set_log_levels": IntroducedIn("1.2"),
            "get_log_levels": IntroducedIn("1.2"),
        }
        self.enterContext(mock.patch.multiple(manager_api, VERSION="1.3", _INTRODUCED=introduced))

    def pin(self, version):
        override(self, "attachd_manager", version, group="upgrade_levels")

    def sent(self):
        (((_context, method), arguments),) = self.client.call.call_args_list
        self.client.reset_mock()
        return method, set(arguments)

    def test_empty_argument_newer_than_manager_is_left_out(self):
        self.pin("1.1")
        ids = {"attachment_id", "volume_id"}
        CALL_OF["attach"]()
        self.assertEqual(("attach", ids | {"connector"}), self.sent())
        CALL_OF["detach"]()
        self.assertEqual(("detach", ids), self.sent())
        CALL_OF["initialize_connection"]()
        self.assertEqual(("initialize_connection", {"volume", "connector"}), self.sent())

    def test_call_of_older_manager_uses_its_version_and_objects(self):
        self.pin("1.1")
        CALL_OF["attach"]()
        self.made.assert_called_with(
            "here@fake",
            timeout=mock.ANY,
            version="1.1",
            objects=objects.manifest_of_contract("1.1"),
        )

    def test_argument_or_method_newer_than_manager_raises_unavailable_and_sends_nothing(self):
        volume = _volume()
        for version, call in (
            ("1.2", lambda: manager_api.attach(CONTEXT, _attachment(), CONNECTOR, "a:rule")),
            ("1.2", lambda: manager_api.initialize_connection(CONTEXT, volume, CONNECTOR, "a:r")),
            ("1.1", lambda: manager_api.detach(CONTEXT, _attachment(), {"reserved"})),
            ("1.0", CALL_OF["initialize_connection"]),
            ("1.1", lambda: manager_api.get_log_levels(CONTEXT, "here@fake", "attachd")),
            (
                "1.1",
                lambda: manager_api.set_log_levels(CONTEXT, {"here@fake"}, "attachd", "DEBUG"),
            ),
        ):
            self.pin(version)
            with (
                self.subTest(version),
                self.assertRaisesRegex(exception.Unavailable, "being upgraded.*upgrade_levels"),
            ):
                call()
        self.client.call.assert_not_called()
        self.client.cast.assert_not_called()

    def test_method_of_first_contract_is_sent_to_oldest_manager(self):
        self.pin("1.0")
        CALL_OF["create_volume"]()
        self.client.cast.assert_called_once()
