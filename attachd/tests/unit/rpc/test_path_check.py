# SPDX-License-Identifier: Apache-2.0
"""Tests of the checks of paths; functional/test_broker_paths.py has those with a broker."""

import unittest
from unittest import mock

from kombu import exceptions as kombu_exceptions
import oslo_messaging as messaging

from attachd.rpc import path_check, transport
from attachd.tests.fixtures import metric_samples, rpc_clients

TARGET = messaging.Target(topic="topic", server="host@backend")
QUEUE = "topic.host@backend"


class NotFound(Exception):
    """An error as amqp raises it."""

    code = 404


def missing_exchange():
    """Return the error of oslo.messaging for a message to a missing exchange."""
    error = messaging.MessageDeliveryFailure("Unable to connect")
    error.__context__ = NotFound()
    return error


class SendProbeTest(unittest.TestCase):
    def send(self, error):
        client = mock.Mock(cast=mock.Mock(side_effect=error))
        with mock.patch.object(messaging, "get_rpc_client", return_value=client) as get_client:
            path_check.send_probe(mock.Mock(), TARGET, number=1)
        (options,) = (call.kwargs["transport_options"] for call in get_client.mock_calls)
        self.assertTrue(options.at_least_once)
        client.cast.assert_called_once_with({}, path_check.METHOD, number=1)

    def test_accepted_probe_raises_nothing(self):
        self.send(None)

    def test_probe_without_queue_raises_path_cut(self):
        for error in (messaging.MessageUndeliverable(None, "e", "q", {}), missing_exchange()):
            with self.subTest(error), self.assertRaises(path_check.PathCut):
                self.send(error)

    def test_probe_without_broker_raises_delivery_failure(self):
        refused = messaging.MessageDeliveryFailure("refused")
        for error in (refused, kombu_exceptions.OperationalError("gone")):
            with self.subTest(error), self.assertRaises(messaging.MessageDeliveryFailure):
                self.send(error)


class ProbeLogTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.now = 1000.0
        clock = mock.Mock(monotonic=lambda: self.now)
        self.enterContext(mock.patch.object(path_check, "time", clock))
        self.probes = path_check.ProbeLog()

    def test_fanout_is_lost_only_if_a_later_probe_arrived(self):
        early, _fanout = self.probes.add(), self.probes.add_fanout()
        self.now += path_check.FANOUT_TIMEOUT
        later = self.probes.add()
        self.probes.record(early)
        self.assertFalse(self.probes.is_fanout_lost(), "the server may be busy")
        self.probes.record(later)
        self.assertTrue(self.probes.is_fanout_lost())
        self.assertFalse(self.probes.has_fanout_arrived())

    def test_received_fanout_is_not_lost(self):
        fanout = self.probes.add_fanout()
        self.now += path_check.FANOUT_TIMEOUT
        later = self.probes.add()
        self.probes.record(fanout)
        self.probes.record(later)
        self.assertFalse(self.probes.is_fanout_lost())
        self.assertTrue(self.probes.has_fanout_arrived())

    def test_probes_of_others_and_forged_probes_are_ignored(self):
        self.probes.add_fanout()
        self.now += path_check.FANOUT_TIMEOUT
        other = path_check.ProbeLog().add()
        own = self.probes.sender
        forged = (None, [], "x", {"sender": own}, {"sender": own, "number": [1]}, other)
        for arguments in (*forged, {"sender": own, "number": 99}):
            self.probes.record(arguments)
        self.assertFalse(self.probes.is_fanout_lost())
        self.assertFalse(self.probes.has_fanout_arrived())

    def test_log_of_probes_does_not_grow(self):
        for _ in range(3000):
            self.probes.add()
        self.assertLessEqual(len(self.probes._sent), 1000)


class AnsweringProbeLogTest(unittest.TestCase):
    def test_probes_of_others_are_answered_and_own_ones_recorded(self):
        answer = mock.Mock()
        probes = path_check.AnsweringProbeLog(answer)
        probes.record(probes.add_fanout())
        self.assertTrue(probes.has_fanout_arrived())
        for arguments in (
            {"sent_at": "t", "by_queue": True},
            {"sent_at": "t", "by_queue": "yes"},
            {"sent_at": 1},
            "bytes",
        ):
            probes.record(arguments)
        self.assertEqual([mock.call("t", True), mock.call("t", False)], answer.call_args_list)


class CheckedServerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        metric_samples.use(self)
        self.now = 1000.0
        clock = mock.Mock(monotonic=lambda: self.now)
        self.enterContext(mock.patch.object(path_check, "time", clock))
        self.send = self.enterContext(mock.patch.object(path_check, "send_probe"))
        # The tests call check() themselves.
        self.enterContext(mock.patch.object(path_check, "PeriodicThread"))
        self.made = []
        self.declare = mock.Mock()
        self.probes = path_check.ProbeLog()
        self.server = path_check.CheckedServer(
            self.make, mock.Mock(), TARGET, self.probes, self.declare
        )
        self.server.start(override_pool_size=3)

    def make(self):
        self.made.append(mock.Mock())
        return self.made[-1]

    def check(self, error=None, after=path_check.INTERVAL):
        self.now += after
        self.send.side_effect = error
        self.server.check()

    def restored(self):
        return metric_samples.sample_value("attachd_rpc_paths_restored_total", server=QUEUE)

    def assert_restored(self, times):
        self.assertEqual(times, self.restored())

    def test_intact_path_is_left_alone(self):
        for _ in range(5):
            self.check()
        self.assert_restored(0)
        queues = {(call.args[1].topic, call.args[1].server) for call in self.send.mock_calls}
        self.assertEqual({("topic", "host@backend"), ("topic", None)}, queues)

    def test_cut_path_is_declared_again_without_a_second_receiver(self):
        self.check(path_check.PathCut("no queue takes messages"))
        self.assert_restored(0)
        self.assertEqual(path_check.CONFIRM_AFTER, self.server._interval())
        with self.assertLogs(path_check.__name__, "WARNING") as logs:
            self.check(path_check.PathCut("no queue takes messages"), path_check.CONFIRM_AFTER)
        self.assertIn(f"RPC server {QUEUE}: no queue takes messages. Exch", logs.output[0])
        self.assert_restored(1)
        (server,) = self.made
        self.declare.assert_called_once_with()
        server.stop.assert_not_called()

    def test_path_that_heals_itself_is_not_restored(self):
        for _ in range(3):
            self.check(path_check.PathCut("the exchange is missing"))
            self.check(after=path_check.CONFIRM_AFTER)
        self.assert_restored(0)

    def test_path_cut_after_an_outage_is_restored_only_when_listeners_had_time(self):
        self.check(messaging.MessageDeliveryFailure("refused"))
        for _ in range(3):
            self.check(path_check.PathCut("no queue takes messages"), path_check.CONFIRM_AFTER)
        self.assert_restored(0)
        self.check(path_check.PathCut("no queue takes messages"), path_check.SETTLE_TIME)
        self.assert_restored(1)

    def test_lost_fanout_is_restored_after_a_second_loss(self):
        def lose():
            self.check(after=path_check.FANOUT_INTERVAL)
            self.now += path_check.FANOUT_TIMEOUT
            self.probes.record(self.probes.add())
            self.check(after=0)

        lose()
        self.assert_restored(0)
        lose()
        self.assert_restored(1)
        first, second = self.made
        first.stop.assert_not_called()
        second.start.assert_called_once_with(override_pool_size=3)
        self.server.stop()
        self.server.wait()
        for server in self.made:
            self.assertEqual(["start", "stop", "wait"], [call[0] for call in server.method_calls])

    def test_fanout_is_restored_a_limited_number_of_times(self):
        for _ in range(path_check.MAX_FANOUT_RESTORED):
            self.server._add_server()
        with self.assertRaises(path_check.PathCut):
            self.server._add_server()

    def test_server_that_cannot_be_restored_stays_and_is_logged_once(self):
        self.check(path_check.PathCut("no queue takes messages"))
        self.declare.side_effect = messaging.MessageDeliveryFailure("406")
        with self.assertRaises(messaging.MessageDeliveryFailure) as caught:
            self.check(path_check.PathCut("no queue takes messages"))
        with self.assertLogs(path_check.__name__, "ERROR") as logs:
            for _ in range(3):
                self.server._log_failure(caught.exception)
        self.assertEqual(1, len(logs.output), logs.output)
        self.assert_restored(0)
        self.made[0].stop.assert_not_called()

    def test_server_stopped_while_fanout_is_restored_ends(self):
        fresh = mock.Mock(start=lambda **_: self.server.stop())
        with mock.patch.object(self.server, "_make", return_value=fresh):
            self.server._add_server()
        self.assertEqual(["stop", "wait"], [call[0] for call in fresh.method_calls])
        self.made[0].stop.assert_called_once_with()


class LibraryTest(unittest.TestCase):
    """What oslo.messaging does and does not document."""

    def test_unknown_method_with_this_ending_logs_no_error(self):
        rpc_clients.use_transport(self)
        endpoint = mock.Mock(spec=["target"], target=messaging.Target(version="1.0"))
        server = messaging.get_rpc_server(
            transport.get_transport(), messaging.Target(topic="t", server="s"), [endpoint]
        )
        server.start(override_pool_size=1)
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        client = messaging.get_rpc_client(
            transport.get_transport(), messaging.Target(topic="t", server="s"), timeout=30
        )
        with (
            self.assertNoLogs("oslo_messaging", "INFO"),
            self.assertRaises(messaging.RemoteError) as caught,
        ):
            client.call({}, path_check.METHOD)
        self.assertEqual("NoSuchMethod", caught.exception.exc_type)


class DispatcherTest(unittest.TestCase):
    def test_probe_reaches_no_endpoint(self):
        endpoint = mock.Mock(target=messaging.Target(version="1.0"))
        probes = path_check.ProbeLog()
        sent = probes.add_fanout()
        for dispatcher in (
            transport.Dispatcher(endpoint, probes=probes),
            transport.Dispatcher(endpoint),
        ):
            message = {"method": path_check.METHOD, "args": sent}
            self.assertIsNone(dispatcher.dispatch(mock.Mock(message=message)))
        self.assertTrue(probes.has_fanout_arrived())
        getattr(endpoint, path_check.METHOD).assert_not_called()

    def test_server_within_one_process_is_not_checked(self):
        rpc_clients.use_transport(self)
        server = transport.get_checked_server(mock.Mock(target=None), "h@b")
        self.assertNotIsInstance(server, path_check.CheckedServer)
        self.assertFalse(transport.is_broker_used())

    def test_server_with_a_broker_is_checked(self):
        rpc_clients.use_transport(self, "rabbit://guest:guest@127.0.0.1:1/")
        server = transport.get_checked_server(mock.Mock(target=None), "h@b")
        self.assertIsInstance(server, path_check.CheckedServer)
        self.assertEqual(f"{transport.MANAGER_TOPIC}.h@b", server.name)
