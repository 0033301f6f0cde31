# SPDX-License-Identifier: Apache-2.0
"""The errors: status, message and serialization of each."""

import inspect
from pathlib import Path
import re
import unittest

from oslo_messaging._drivers import common
from oslo_serialization import jsonutils

from attachd import exception
from attachd.api import idempotency

_REFERENCE = Path(__file__).parents[3] / "api-ref/source/v3/errors.inc"
_KEY_ERRORS = (idempotency.KeyInUse, idempotency.KeyReused, idempotency.KeyResourceGone)
_NOT_IN_API = {
    exception.HostRefused,
    exception.BackendError,
    exception.BackendInUse,
    exception.BackendUnreachable,
    exception.ConfigurationError,
    exception.DetachFailed,
    exception.DeviceBusy,
    exception.EarlyRestart,
    exception.HostError,
    exception.HostHangs,
    exception.GrowthNeedsDetach,
    exception.LocalConflict,
    exception.MachineRefused,
    exception.MissingRequirements,
    exception.OldReport,
    exception.ProcessNotAccepted,
}
"""Errors of managers, hosts and commands, which no call of the API is answered with."""

CODES = {
    "AbilityMissing": 400,
    "AttachdError": 500,
    "BackendFrozen": 400,
    "BadRequest": 400,
    "CapabilityMissing": 400,
    "ImageUnacceptable": 400,
    "DatabaseUnavailable": 503,
    "ImageRequestUnanswered": 503,
    "ImageServiceUnavailable": 503,
    "InvalidInput": 400,
    "NoValidBackend": 400,
    "InvalidVolume": 400,
    "InvalidSnapshot": 400,
    "InvalidAuthKey": 400,
    "VolumeNotAvailable": 400,
    "AttachmentLimitExceeded": 400,
    "InvalidVolumeAttachMode": 400,
    "TypeInUse": 400,
    "Unauthorized": 401,
    "Forbidden": 403,
    "NotFound": 404,
    "ResourceUnsupported": 404,
    "ImageNotFound": 404,
    "MarkerNotFound": 404,
    "MessageNotFound": 404,
    "TransferNotFound": 404,
    "VolumeNotFound": 404,
    "SnapshotNotFound": 404,
    "VolumeTypeNotFound": 404,
    "AttachmentNotFound": 404,
    "VersionNotFound": 404,
    "NotAcceptable": 406,
    "Conflict": 409,
    "ProcessNotAccepted": 409,
    "DevicePresent": 409,
    "HostLimitExceeded": 409,
    "InitiatorTaken": 409,
    "InvalidTransition": 409,
    "ConnectorConflict": 409,
    "NotMultiattach": 409,
    "PreconditionFailed": 412,
    "TypeExists": 409,
    "EventsExpired": 410,
    "TooLarge": 413,
    "TooManyCalls": 429,
    "UnsupportedMediaType": 415,
    "BackendError": 500,
    "BackendInUse": 500,
    "BackendUnreachable": 500,
    "BackendUnavailable": 503,
    "HostError": 500,
    "HostHangs": 500,
    "AgentError": 500,
    "AttachFailed": 500,
    "DetachFailed": 500,
    "MissingRequirements": 409,
    "DeviceBusy": 409,
    "GrowthNeedsDetach": 409,
    "LocalConflict": 409,
    "AgentUnavailable": 409,
    "AgentConflict": 409,
    "MachineRefused": 409,
    "OldReport": 409,
    "EarlyRestart": 409,
    "AgentNotFound": 404,
    "AgentTimeout": 504,
    "ConnectFailed": 500,
    "TerminateConnectionFailed": 500,
    "InitializeConnectionFailed": 500,
    "DisconnectFailed": 500,
    "ConfigurationError": 500,
    "SecretUnreadable": 503,
    "Unavailable": 503,
    "TakenOver": 503,
    "ManagerTimeout": 504,
    "MoveFailed": 500,
    "AttachmentInUse": 409,
    "HostDrained": 409,
    "HostFenced": 409,
    "HostRefused": 409,
    "DefaultTypeMissing": 503,
    "DefaultTypeNotFound": 404,
    "InvalidVolumeType": 400,
    "QosSpecsExist": 409,
    "QosSpecsInUse": 400,
    "QosSpecsNotFound": 404,
    "QuotaExceeded": 413,
    "TypeAccessExists": 409,
    "TypeAccessNotFound": 404,
    "TypeIsDefault": 400,
    "VolumeSizeExceeded": 413,
}


def _classes() -> dict[str, type[exception.AttachdError]]:
    return {
        name: found
        for name, found in inspect.getmembers(exception, inspect.isclass)
        if issubclass(found, exception.AttachdError)
    }


def _example(kind: type[exception.AttachdError]) -> exception.AttachdError:
    if kind is exception.BackendError:
        return exception.BackendError("the disk is gone", final=True)
    return kind(**{name: f"<{name}>" for name in re.findall(r"%\((\w+)\)s", kind.msg_fmt)})


class HidePathsTest(unittest.TestCase):
    def test_paths_are_hidden(self):
        for text, expected in (
            ("there is no file /var/lib/a b.", "there is no file (path) b."),
            ("[Errno 2] No such file: '/var/my disk/x'.", "[Errno 2] No such file: '(path)'."),
            (
                "(/dev/loop3) is open; see host:/export, /x",
                "((path)) is open; see host:(path), (path)",
            ),
            ("took a=/run/s at ipc:///run/tgtd/socket.0.", "took a=(path) at (path)."),
            ("'tgtadm -C 0 --op x' failed: exit code 1", "A command failed: exit code 1"),
            ("'qemu-img /x' did not end in 5 s.", "A command did not end in 5 s."),
        ):
            with self.subTest(text):
                self.assertEqual(expected, exception.hide_paths(text))

    def test_other_text_is_kept(self):
        for text in (
            "Update it to try again, or delete it. 1/2 and/or 3 / 4",
            "https://volumes.example/v3/x is iqn.2026-01.org:a/b",
            "Check endpoint_override in [nova]: the URL ends in /v2.1.",
            "Volume 'a' is 'b'. Finish it with: DELETE /attachments/1",
        ):
            with self.subTest(text):
                self.assertEqual(text, exception.hide_paths(text))


class ErrorsTest(unittest.TestCase):
    """All errors."""

    maxDiff = None

    def test_errors_have_http_status(self):
        self.assertEqual(CODES, {name: kind.code for name, kind in _classes().items()})

    def test_messages_contain_all_details(self):
        for name, kind in _classes().items():
            error = _example(kind)
            for value in error.details.values():
                self.assertIn(str(value), str(error), name)
            self.assertNotIn("%(", str(error), name)

    def test_errors_are_defined_in_module_allowed_by_rpc(self):
        modules = {kind.__module__ for kind in _classes().values()}
        self.assertEqual({exception.__name__}, modules)

    def test_error_with_missing_detail_raises_key_error(self):
        with self.assertRaises(KeyError):
            exception.ConnectorConflict(attachment_id="a")

    def test_explicit_message_replaces_format(self):
        self.assertEqual("100 % wrong", str(exception.BadRequest("100 % wrong")))

    def test_backend_error_is_not_final_by_default(self):
        self.assertIs(False, exception.BackendError("broken").final)
        self.assertIs(True, exception.BackendError("refused", final=True).final)
        self.assertEqual("Backend error: broken", str(exception.BackendError("broken")))

    def test_errors_survive_rpc_with_class_and_message(self):
        for name, kind in _classes().items():
            if issubclass(kind, exception.BackendError):
                continue  # It never leaves the manager: it becomes ConnectFailed and the like.
            error = _example(kind)
            sent = common.serialize_remote_exception((kind, error, None))
            back = common.deserialize_remote_exception(
                jsonutils.dumps(jsonutils.loads(sent)), [exception.__name__]
            )
            self.assertIsInstance(back, kind, name)
            self.assertEqual(str(error), back.args[0].partition("\n")[0], name)


class ReasonCodeTest(unittest.TestCase):
    def test_reason_code_is_name_in_lower_case(self):
        self.assertEqual(
            "attachd.volume_not_available", exception.VolumeNotAvailable.reason_code()
        )
        self.assertEqual("attachd.not_multiattach", exception.NotMultiattach.reason_code())
        self.assertEqual("attachd.internal_error", exception.AttachdError.reason_code())

    def test_api_reference_has_row_of_each_error(self):
        kinds = {kind.reason_code(): kind for kind in (*_classes().values(), *_KEY_ERRORS)}
        rows = [
            (f"``{code}``", f"{kind.code}", str(inspect.getdoc(kind)).splitlines()[0])
            for code, kind in sorted(kinds.items())
            if kind not in _NOT_IN_API
        ]
        expected = "".join(f"   * - {row[0]}\n     - {row[1]}\n     - {row[2]}\n" for row in rows)
        text = _REFERENCE.read_text(encoding="utf-8")
        table = text.partition("     - Meaning\n")[2].partition("\n\n")[0] + "\n"
        self.assertEqual(expected, table, f"{_REFERENCE} lists other errors")


class MessageTest(unittest.TestCase):
    def test_message_is_formatted_from_details_which_are_kept(self):
        error = exception.Conflict(reason="It is busy.")
        self.assertEqual("It is busy.", str(error))
        self.assertEqual({"reason": "It is busy."}, error.details)
