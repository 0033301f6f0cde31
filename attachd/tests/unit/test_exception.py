# SPDX-License-Identifier: Apache-2.0
"""The errors: each says what is wrong, and can cross RPC; for whoever adds one."""

import inspect
import re
import unittest

from oslo_messaging._drivers import common
from oslo_serialization import jsonutils

from attachd import exception

CODES = {
    "AttachdError": 500,
    "BackendFrozen": 400,
    "BadRequest": 400,
    "InvalidInput": 400,
    "NoValidBackend": 400,
    "InvalidVolume": 400,
    "VolumeNotAvailable": 400,
    "AttachmentLimitExceeded": 400,
    "InvalidVolumeAttachMode": 400,
    "TypeInUse": 400,
    "Unauthorized": 401,
    "Forbidden": 403,
    "NotFound": 404,
    "ResourceUnsupported": 404,
    "MarkerNotFound": 404,
    "MessageNotFound": 404,
    "VolumeNotFound": 404,
    "VolumeTypeNotFound": 404,
    "AttachmentNotFound": 404,
    "VersionNotFound": 404,
    "NotAcceptable": 406,
    "Conflict": 409,
    "InvalidTransition": 409,
    "ConnectorConflict": 409,
    "NotMultiattach": 409,
    "PreconditionFailed": 412,
    "TypeExists": 409,
    "EventsExpired": 410,
    "TooLarge": 413,
    "UnsupportedMediaType": 415,
    "BackendError": 500,
    "HostError": 500,
    "AttachFailed": 500,
    "DetachFailed": 500,
    "MissingRequirements": 409,
    "DeviceBusy": 409,
    "LocalConflict": 409,
    "AgentUnavailable": 409,
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
    "AttachmentInUse": 409,
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


class ErrorsTest(unittest.TestCase):
    """All of them."""

    maxDiff = None

    def test_each_answers_with_its_status(self):
        self.assertEqual(CODES, {name: kind.code for name, kind in _classes().items()})

    def test_each_says_every_detail_in_its_message(self):
        for name, kind in _classes().items():
            error = _example(kind)
            for value in error.details.values():
                self.assertIn(str(value), str(error), name)
            self.assertNotIn("%(", str(error), name)

    def test_each_is_named_by_the_module_that_rpc_lets_through(self):
        modules = {kind.__module__ for kind in _classes().values()}
        self.assertEqual({exception.__name__}, modules)

    def test_a_forgotten_detail_is_noticed_at_once(self):
        with self.assertRaises(KeyError):
            exception.ConnectorConflict(attachment_id="a")

    def test_a_message_of_ones_own_replaces_the_usual_one(self):
        self.assertEqual("100 % wrong", str(exception.BadRequest("100 % wrong")))

    def test_a_backend_error_leaves_doubt_unless_it_says_otherwise(self):
        self.assertIs(False, exception.BackendError("broken").final)
        self.assertIs(True, exception.BackendError("refused", final=True).final)
        self.assertEqual("Backend error: broken", str(exception.BackendError("broken")))

    def test_each_crosses_rpc_with_its_class_and_its_message(self):
        for name, kind in _classes().items():
            if kind is exception.BackendError:
                continue  # It never leaves the manager: it becomes ConnectFailed and the like.
            error = _example(kind)
            sent = common.serialize_remote_exception((kind, error, None))
            back = common.deserialize_remote_exception(
                jsonutils.dumps(jsonutils.loads(sent)), [exception.__name__]
            )
            self.assertIsInstance(back, kind, name)
            self.assertEqual(str(error), back.args[0].partition("\n")[0], name)


class MessageTest(unittest.TestCase):
    def test_message_is_formatted_from_details_which_are_kept(self):
        error = exception.Conflict(reason="It is busy.")
        self.assertEqual("It is busy.", str(error))
        self.assertEqual({"reason": "It is busy."}, error.details)
