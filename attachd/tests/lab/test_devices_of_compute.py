# SPDX-License-Identifier: Apache-2.0
"""Devices that os-brick makes on a host, as Compute has it do, beside a reporting agent."""

import http.client
import secrets
import uuid

from attachd.drivers import base
from attachd.tests.lab import deployment, guests, networks, storage_node

_GIB = 2**30


class DevicesOfComputeTest(deployment.StorageNodeCase):
    """Attachments with a connector, and a storage node of which the service knows no export."""

    def setUp(self):
        super().setUp()
        self.service = deployment.LabDeployment(self, portals=2)
        self.guest = self.a.guest
        self.volume = self.service.api.create_volume()
        self.service.start(self.a)

    def connect(self, *options, **properties):
        """Attach the volume by a connector, and have os-brick make the device.

        :param options: of the command "brick"
        :param properties: further ones of the connector
        """
        connector = {**self.guest.connector, **properties}
        body = {"volume_uuid": self.volume, "instance_uuid": f"{uuid.uuid4()}"}
        body["connector"] = connector
        made = self.service.api.request("POST", "/attachments", {"attachment": body})
        self.assertEqual(http.client.OK, made.status, made)
        info = made.body["attachment"]["connection_info"]
        self.info = {"driver_volume_type": info["driver_volume_type"], "data": info}
        self.guest.attach(self.info, *options)
        path = f"/attachments/{made.body['attachment']['id']}/action"
        self.service.api.request_json("POST", path, {"os-complete": None})
        return made.body["attachment"]

    def others(self):
        """Return the devices that the agent has not made, once it has found some."""
        return deployment.wait_for(
            lambda: [one for one in self.service.agent(self.a)["other_devices"] if one["path"]]
        )

    def real_path(self):
        """Return the device as the kernel names it."""
        return self.guest.run(f"readlink --canonicalize {self.guest.path}").decode().strip()

    def check_life(self, attachment, paths):
        """Check what is reported while the device is there, and that it keeps its attachment.

        :param paths: how many the device has
        """
        (found,) = self.others()
        self.assertEqual(
            (self.volume, self.real_path(), _GIB),
            (found["volume_id"], found["path"], found["size_bytes"]),
        )

        def condition():
            path = f"/attachments/{attachment['id']}"
            answer = self.service.api.request("GET", path, headers=deployment.ATTACHD_1_1)
            return answer.body["attachment"]["condition"] or {}  # None: nothing is reported yet

        deployment.wait_for(lambda: condition().get("device_present"))
        seen = condition()
        self.assertEqual(("ok", paths), (seen["state"], len(seen["paths"])), seen)
        data = secrets.token_bytes(guests.BLOCK)
        self.guest.write(0, data)
        refused = self.service.ask_to_detach(attachment)
        self.assertEqual(http.client.CONFLICT, refused.status, refused)
        self.assertIn(found["path"], f"{refused.body}")
        self.assertEqual(data, self.guest.read(0, guests.BLOCK))
        self.guest.detach(self.info)
        self.service.detach(attachment)
        self.assert_nothing_is_left(self.service, self.volume)

    def test_iscsi_disk_is_reported_and_keeps_its_attachment(self):
        self.check_life(self.connect(), paths=1)

    def test_multipath_device_is_reported_and_keeps_its_attachment(self):
        attachment = self.connect("--multipath", multipath=True)
        self.assertIn("/dev/dm-", self.real_path())
        self.check_life(attachment, paths=2)

    def connect_apart(self, target, *addresses, options=()):
        """Have os-brick connect the host to an export that the service does not know."""
        portals = [f"{address}:{storage_node.PORTS[target]}" for address in addresses]
        self.node.start(lvm_target=target, lvm_portals=portals, lvm_thin_pool=storage_node.POOL)
        self.node.call("setup")
        self.addCleanup(self.node.remove_all)
        reference = base.VolumeRef(self.volume, 1)
        self.node.call("create", reference)
        export = base.Export(f"{uuid.uuid4()}", self.guest.connector, "rw", secrets.token_hex(16))
        self.guest.attach(self.node.call("grant", reference, export), *options)
        self.addCleanup(self.a.forget)

    def check_report(self):
        """Check what is reported of a device without an attachment."""
        (found,) = self.others()
        self.assertEqual(
            (self.volume, self.real_path(), _GIB),
            (found["volume_id"], found["path"], found["size_bytes"]),
        )

    def test_nvme_namespace_is_reported(self):
        self.connect_apart("nvmet", self.node.address)
        self.check_report()

    def test_nvme_namespace_with_two_paths_is_reported_once(self):
        addresses = []
        for number in (1, 2):
            network = networks.Network(number)
            network.add(self.guest)
            addresses.append(network.add(self.node.guest))
        self.connect_apart("nvmet", *addresses, options=("--multipath",))
        self.check_report()
