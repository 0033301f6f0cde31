# SPDX-License-Identifier: Apache-2.0
import contextlib
import unittest
from unittest import mock

import openstack
import requests

from attachd.platforms import calls
from attachd.platforms.api import Api
from attachd.platforms.calls import Call, CallError, ErrorCode, NotReady
from attachd.tests.unit.client.fake_deployment import FakeDeployment


def _response(status):
    response = requests.Response()
    response.status_code = status
    response.url = "http://here/v3/attachments"
    response.headers["Content-Type"] = "application/json"
    response._content = b'{"fault": {"message": "No."}}'
    response.request = requests.Request("GET", response.url).prepare()
    return response


class ApiTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.cloud = mock.Mock()
        self.client = Api(self.cloud)

    def _answer(self, status):
        self.cloud.block_storage.request.return_value = _response(status)

    def test_check_succeeds_with_answer(self):
        self._answer(200)
        self.client.check()

    def test_check_of_failing_api_is_not_ready(self):
        self._answer(503)
        with self.assertRaisesRegex(NotReady, "503.*No."):
            self.client.check()

    def test_check_of_refused_user_fails_with_reason(self):
        for status in (401, 403, 404):
            self._answer(status)
            with self.assertRaisesRegex(CallError, "No.") as caught:
                self.client.check()
            self.assertIs(ErrorCode.FAILED_PRECONDITION, caught.exception.code)

    def test_requests_have_request_id_and_limit_of_call(self):
        self._answer(200)
        call = Call.start(10.0)
        with calls.serving(call):
            self.client.check()
        sent = self.cloud.block_storage.request.call_args.kwargs
        self.assertEqual(call.request_id, sent["global_request_id"])
        self.assertLessEqual(sent["timeout"], 10.0)

    def test_check_of_unreachable_api_is_not_ready(self):
        cloud = openstack.connect(
            auth_type="none",
            endpoint="http://127.0.0.1:1/v3",
            load_envvars=False,
            load_yaml_config=False,
        )
        self.addCleanup(cloud.close)
        with self.assertRaisesRegex(NotReady, "No Block Storage API answers at"):
            Api(cloud).check()

    def test_check_of_served_api_succeeds(self):
        with contextlib.closing(FakeDeployment(self).connection()) as cloud:
            Api(cloud).check()
