# SPDX-License-Identifier: Apache-2.0

import unittest

from oslo_messaging._drivers import impl_rabbit

from attachd.conf import CONF, messaging


class DefaultsTest(unittest.TestCase):
    def test_register_sets_defaults_for_rabbitmq(self):
        messaging.register()
        found = {name: CONF[messaging.RABBIT][name] for name in messaging.RABBIT_DEFAULTS}
        self.assertEqual(messaging.RABBIT_DEFAULTS, found)

    def test_register_allows_oslo_messaging_to_register_again(self):
        messaging.register()
        CONF.register_opts(impl_rabbit.rabbit_opts, group=messaging.RABBIT)
        self.assertEqual(5, CONF[messaging.RABBIT].rabbit_interval_max)

    def test_sample_configuration_has_defaults_for_rabbitmq(self):
        options = dict(messaging.list_opts())[messaging.RABBIT]
        found = {option.dest: option.default for option in options}
        expected = messaging.RABBIT_DEFAULTS
        self.assertEqual(expected, {name: found[name] for name in expected})

    def test_reply_retry_timeout_exceeds_reconnect_time(self):
        defaults = messaging.RABBIT_DEFAULTS
        back = defaults["rabbit_interval_max"] + defaults["heartbeat_timeout_threshold"]
        self.assertGreater(defaults["kombu_missing_consumer_retry_timeout"], back)
