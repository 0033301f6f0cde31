# SPDX-License-Identifier: Apache-2.0
"""Bursts of one project: all requests are served, and none is refused."""

import http.client
import uuid

import testtools

from attachd.tests.fixtures import deployments, http_client, tgtd
from attachd.tests.selection import full_only

_CLIENTS = 200
_SHARING = 64
_HOSTS = 50
_ATTACHES = 1300

_ALL_IN_ONE = """\
[DEFAULT]
enabled_backends = {driver}
[quota]
quota_volumes = -1
quota_gigabytes = -1
[{driver}]
driver = {driver}
"""


def connector(number):
    """Return the connector of a host."""
    name = f"host-{number}"
    return {"host": name, "initiator": f"iqn.2026-01.test:{name}", "ip": "127.0.0.1"}


class BurstCase(testtools.TestCase):
    api: http_client.Client

    def create_volumes(self, count, **values):
        body = {"volume": {"size": 1, **values}}
        calls = [http_client.Request("POST", "/volumes", body)] * count
        made = [answer.body["volume"]["id"] for answer in self.send(calls, http.client.ACCEPTED)]
        for volume in made:
            self.api.wait_for(volume, "available")
        return made

    def send(self, requests, expected):
        """Send requests at the same moment, and check the status of each answer."""
        answers = self.api.request_at_once(requests)
        others = [answer for answer in answers if answer.status != expected]
        self.assertEqual([], others[:3], f"{len(others)} of {len(answers)}")
        return answers

    def attach(self, places):
        """Attach volumes at the same moment; return the ids of the attachments.

        :param places: a volume and the number of a host of each
        """
        calls = []
        for volume, number in places:
            body = {"volume_uuid": volume, "instance_uuid": f"{uuid.uuid4()}"}
            body["connector"] = connector(number)
            calls.append(http_client.Request("POST", "/attachments", {"attachment": body}))
        answers = self.send(calls, http.client.OK)
        return [answer.body["attachment"]["id"] for answer in answers]

    def detach(self, attachments):
        """Delete attachments at the same moment."""
        calls = [http_client.Request("DELETE", f"/attachments/{item}") for item in attachments]
        self.send(calls, http.client.OK)
        self.assertEqual([], self.api.request_json("GET", "/attachments")["attachments"])

    def create_shared_volume(self):
        values = {"name": "shared", "extra_specs": {"multiattach": "<is> True"}}
        self.api.request_json("POST", "/types", {"volume_type": values})
        return self.api.create_volume(volume_type="shared")


class AllInOneCase(BurstCase):
    def start(self, driver, options=""):
        text = deployments.NO_LOOP_DEVICES + _ALL_IN_ONE.format(driver=driver) + options
        server = deployments.AllInOne.configured(self, text)
        server.show_in_failures(self)
        self.api = http_client.Client(f"{server.url}/v3")

    def check_own_volumes(self, clients):
        places = [(volume, 0) for volume in self.create_volumes(clients)]
        self.detach(self.attach(places))

    def check_shared_volume(self):
        volume = self.create_shared_volume()
        self.detach(self.attach([(volume, number) for number in range(_SHARING)]))


class AllInOneTest(AllInOneCase):
    def test_burst_on_own_volumes_is_served(self):
        self.start("fake")
        self.check_own_volumes(_SHARING)


@full_only("scale")
class LargeBurstTest(AllInOneCase):
    def test_large_burst_on_own_volumes_is_served(self):
        self.start("fake")
        self.check_own_volumes(_CLIENTS)

    def test_burst_on_shared_volume_of_fake_is_served(self):
        self.start("fake")
        self.check_shared_volume()

    def test_burst_on_shared_volume_of_file_is_served(self):
        self.start("file", "file_hosts = *\n")
        self.check_shared_volume()

    def test_burst_on_shared_volume_of_tgt_is_served(self):
        server = self.useFixture(tgtd.Tgtd(self))
        options = "".join(f"{name} = {value}\n" for name, value in server.options.items())
        self.start("tgt", options)
        self.check_shared_volume()


@full_only("scale")
class HostsTest(BurstCase):
    """MariaDB, RabbitMQ, uWSGI with two processes, and two processes of a manager."""

    def test_attaches_of_many_hosts_at_once_are_served(self):
        deployment = deployments.Deployment(self, "mariadb", backend="quick")
        deployment.configure("[quick]\ndriver = fake\n")
        deployment.start_manager().show_in_failures(self)
        deployment.start_uwsgi().show_in_failures(self)
        deployment.wait_until_served()
        self.api = deployment.api
        volumes = self.create_volumes(_ATTACHES)
        self.detach(self.attach([(volume, n % _HOSTS) for n, volume in enumerate(volumes)]))
