# SPDX-License-Identifier: Apache-2.0
import socket
import stat
import threading
import unittest

import grpc

from attachd.csi import csi_pb2, server
from attachd.platforms import calls
from attachd.platforms.call_metrics import CallMetrics
from attachd.platforms.calls import CallError, ErrorCode
from attachd.tests.fixtures import metric_samples
from attachd.tests.fixtures.lifetime import temp_dir
from attachd.tests.wait import TIMEOUT


class _Node:
    """A service with two of the calls."""

    name = "Node"

    def __init__(self):
        self.seen = []
        self.answer = lambda: csi_pb2.NodeGetInfoResponse(node_id="host")

    def node_get_info(self, _request):
        self.seen.append(calls.current())
        return self.answer()

    def node_unpublish_volume(self, _request):
        return csi_pb2.NodeUnpublishVolumeResponse()


class _Identity:
    name = "Identity"

    def probe(self, _request):
        return csi_pb2.ProbeResponse()


class ServerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = temp_dir(self) / "csi.sock"
        self.node = _Node()
        self.measured = CallMetrics("csi")

    def start(self, **settings):
        services = [self.node, _Identity()]
        started = server.Server(server.Settings(self.path, **settings), services, self.measured)
        started.start()
        self.addCleanup(started.stop)
        return started

    def call(self, name="NodeGetInfo", request=None, service="Node"):
        with grpc.insecure_channel(f"unix:{self.path}") as channel:
            ask = channel.unary_unary(
                f"/csi.v1.{service}/{name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=getattr(csi_pb2, f"{name}Response").FromString,
            )
            return ask(request or getattr(csi_pb2, f"{name}Request")(), timeout=TIMEOUT)

    def failed(self, *arguments, **options):
        """Return code and message of a call that fails."""
        with self.assertRaises(grpc.RpcError) as caught:
            self.call(*arguments, **options)
        return caught.exception.code(), caught.exception.details()

    def test_call_is_served_with_limit_and_request_id(self):
        self.start()
        self.assertEqual("host", self.call().node_id)
        (call,) = self.node.seen
        self.assertRegex(call.request_id, "^req-")
        self.assertGreater(call.remaining, 0)

    def test_call_without_method_is_unimplemented(self):
        self.start()
        code, _ = self.failed("NodeGetCapabilities")
        self.assertIs(grpc.StatusCode.UNIMPLEMENTED, code)
        code, _ = self.failed("ListVolumes", service="Controller")
        self.assertIs(grpc.StatusCode.UNIMPLEMENTED, code)

    def test_error_of_call_has_code_reason_and_request_id(self):
        def fail():
            raise CallError(ErrorCode.OUT_OF_RANGE, "too large")

        self.node.answer = fail
        self.start()
        with self.assertLogs("attachd.csi.server"):
            code, details = self.failed()
        self.assertIs(grpc.StatusCode.OUT_OF_RANGE, code)
        self.assertEqual(f"too large ({self.node.seen[0].request_id})", details)

    def test_each_code_of_errors_is_status(self):
        names = {status.name for status in grpc.StatusCode}
        self.assertEqual([], [code.name for code in ErrorCode if code.name not in names])

    def test_unexpected_error_is_internal_and_logged(self):
        self.node.answer = lambda: 1 / 0
        self.start()
        with self.assertLogs("attachd.csi.server") as logs:
            code, details = self.failed()
        self.assertIs(grpc.StatusCode.INTERNAL, code)
        self.assertNotIn("division", details)
        self.assertIn("ZeroDivisionError", logs.output[0])

    def test_invalid_request_is_refused_before_service_sees_it(self):
        self.start()
        code, details = self.failed("NodeUnpublishVolume")
        self.assertIs(grpc.StatusCode.INVALID_ARGUMENT, code)
        self.assertIn("volume_id", details)

    def test_large_message_is_refused(self):
        self.start()
        request = csi_pb2.NodeUnpublishVolumeRequest(volume_id="v" * (server.MAX_MESSAGE + 1))
        code, _ = self.failed("NodeUnpublishVolume", request)
        self.assertIs(grpc.StatusCode.RESOURCE_EXHAUSTED, code)

    def test_calls_beyond_limit_are_unavailable_and_probe_answers(self):
        entered, release = threading.Event(), threading.Event()
        self.addCleanup(release.set)

        def wait():
            entered.set()
            release.wait(TIMEOUT)
            return csi_pb2.NodeGetInfoResponse(node_id="host")

        self.node.answer = wait
        self.start(workers=1)
        thread = threading.Thread(target=self.call)
        thread.start()
        self.addCleanup(thread.join, TIMEOUT)
        self.assertTrue(entered.wait(TIMEOUT))
        code, _ = self.failed()
        self.assertIs(grpc.StatusCode.UNAVAILABLE, code)
        self.assertIsNotNone(self.call("Probe", service="Identity"))
        release.set()

    def test_stop_waits_for_call_and_removes_socket(self):
        entered, release = threading.Event(), threading.Event()
        self.addCleanup(release.set)

        def wait():
            entered.set()
            release.wait(TIMEOUT)
            return csi_pb2.NodeGetInfoResponse(node_id="late")

        self.node.answer = wait
        started = self.start()
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.call().node_id))
        thread.start()
        self.assertTrue(entered.wait(TIMEOUT))
        stopping = threading.Thread(target=started.stop)
        stopping.start()
        release.set()
        for ended in (thread, stopping):
            ended.join(TIMEOUT)
        self.assertEqual(["late"], answers)
        self.assertFalse(self.path.exists())

    def test_socket_is_for_owner_unless_mode_says_other(self):
        for mode in (0o600, 0o660):
            started = self.start(mode=mode)
            self.assertEqual(mode, stat.S_IMODE(self.path.stat().st_mode))
            started.stop()

    def test_stale_socket_is_replaced(self):
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(f"{self.path}")
        self.start()
        self.assertEqual("host", self.call().node_id)

    def test_live_socket_is_kept(self):
        self.start()
        other = server.Server(server.Settings(self.path), [], self.measured)
        with self.assertRaisesRegex(server.EndpointError, "Another process serves"):
            other.start()
        self.assertEqual("host", self.call().node_id)

    def test_file_and_missing_directory_are_refused(self):
        self.path.write_text("")
        with self.assertRaisesRegex(server.EndpointError, "not a socket"):
            self.start()
        self.path = self.path.parent / "missing" / "csi.sock"
        with self.assertRaisesRegex(server.EndpointError, "no directory"):
            self.start()

    def test_calls_are_counted_by_name_and_outcome(self):
        metric_samples.use(self)
        self.start()
        self.call()

        def refuse():
            raise CallError(ErrorCode.NOT_FOUND, "no")

        self.node.answer = refuse
        with self.assertRaises(grpc.RpcError):
            self.call()
        for outcome in ("ok", "not_found"):
            labels = {"driver": "csi", "call": "NodeGetInfo", "outcome": outcome}
            value = metric_samples.sample_value("attachd_platform_calls_total", **labels)
            self.assertEqual(1.0, value, outcome)


class NamesTest(unittest.TestCase):
    def test_methods_are_named_in_snake_case(self):
        self.assertEqual("node_get_info", server.method_name("NodeGetInfo"))

    def test_endpoint_is_url_of_unix_socket(self):
        self.assertEqual("/run/csi.sock", f"{server.parse_endpoint('unix:///run/csi.sock')}")
        self.assertEqual("/csi.sock", f"{server.parse_endpoint('unix:/csi.sock')}")

    def test_other_endpoints_are_refused(self):
        for endpoint in (
            "",
            "tcp://127.0.0.1:1",
            "unix://host/a",
            "unix:a",
            "unix:/a%62",
            "unix:/a?b",
            "unix:/" + "p" * 107,
        ):
            with self.subTest(endpoint), self.assertRaises(server.EndpointError):
                server.parse_endpoint(endpoint)
