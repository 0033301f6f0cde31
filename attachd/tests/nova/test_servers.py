# SPDX-License-Identifier: Apache-2.0
"""Servers with volumes through what Nova does with them, with nothing failing."""

import os
from pathlib import Path

from attachd.tests.nova.case import COMPUTES, NovaCase
from attachd.tests.wait import wait_until

ONE, TWO = COMPUTES


class BootTest(NovaCase):
    def boot(self, volume, **mapping):
        """Return a server that boots from a volume."""
        root = {
            "uuid": volume,
            "source_type": "volume",
            "destination_type": "volume",
            "boot_index": 0,
            **mapping,
        }
        return self.admin.server(host=ONE, image=False, volumes=[root])

    def test_server_boots_from_volume_and_leaves_it(self):
        volume = self.admin.volume("disk", bootable=True)
        server = self.boot(volume)
        self.assertEqual(["attached"], self.states(volume))
        self.assert_agreed()
        self.admin.delete(server)
        self.admin.volume_is(volume, "available")
        self.assert_agreed()

    def test_volume_is_deleted_with_its_server(self):
        volume = self.admin.volume("disk", bootable=True)
        server = self.boot(volume, delete_on_termination=True)
        self.admin.delete(server)
        self.admin.volume_is(volume, "gone")
        self.assert_agreed()

    def boot_from_image(self, image):
        """Return a server whose root disk is a new volume of an image, and the volume."""
        root = {
            "uuid": image,
            "source_type": "image",
            "destination_type": "volume",
            "volume_size": 1,
            "boot_index": 0,
            "delete_on_termination": True,
        }
        server = self.admin.server(host=ONE, image=False, volumes=[root])
        (volume,) = self.admin.volumes_of(server)
        return server, volume

    def image(self, data):
        """Return an image of some bytes."""
        made = self.admin.conn.image.create_image(
            name="made",
            data=data,
            disk_format="raw",
            container_format="bare",
            validate_checksum=False,
            allow_duplicates=True,
        )
        self.addCleanup(self.admin.conn.image.delete_image, made.id)
        return str(made.id)

    def data(self, volume):
        """Return the first bytes of a volume of the backend "disk"."""
        path = Path(os.environ["NOVA_REAL_HOME"]) / "attachd/disk/volumes" / volume
        with path.open("rb") as file:
            return file.read(4096)

    def test_server_boots_from_new_volume_of_image(self):
        server, volume = self.boot_from_image(self.image(b"one!" * 2000))
        self.assertEqual(b"one!" * 1024, self.data(volume))
        self.assertEqual(
            "made", self.admin.get_volume(volume)["volume_image_metadata"]["image_name"]
        )
        self.assert_agreed()
        self.admin.delete(server)
        self.admin.volume_is(volume, "gone")
        self.assert_agreed()

    def test_rebuild_writes_image_to_root_volume(self):
        server, volume = self.boot_from_image(self.image(b"one!" * 2000))
        self.admin.act(server, "rebuild", {"imageRef": self.image(b"two!" * 2000)}, mv="2.93")
        self.admin.server_is(server, "ACTIVE")
        self.assertEqual(b"two!" * 1024, self.data(volume))
        self.assertEqual(["attached"], self.states(volume))
        self.assert_agreed()

    def test_image_of_server_with_root_volume_boots_another_server(self):
        server, _volume = self.boot_from_image(self.image(b"one!" * 2000))
        made = self.admin.ok(
            *("compute", "POST", f"/servers/{server}/action", {"createImage": {"name": "x"}}),
            mv="2.60",
        )["image_id"]
        self.addCleanup(self.admin.call, "image", "DELETE", f"/images/{made}")
        wait_until(lambda: self.admin.conn.image.get_image(made).status == "active", interval=0.5)
        other = self.admin.server(host=TWO, image=False, imageRef=made)
        (copy,) = self.admin.volumes_of(other)
        self.assertEqual(b"one!" * 1024, self.data(copy))
        self.assert_agreed()
        snapshot = self.admin.get_volume(copy)["snapshot_id"]
        self.admin.delete(other)
        self.admin.delete_volume(copy)
        self.admin.ok("volume", "DELETE", f"/snapshots/{snapshot}")
        wait_until(lambda: self.admin.call("volume", "GET", f"/snapshots/{snapshot}")[0] == 404)

    def test_volume_made_for_a_server_is_attached_and_deleted_with_it(self):
        data = {
            "source_type": "blank",
            "destination_type": "volume",
            "volume_size": 1,
            "delete_on_termination": True,
            "boot_index": -1,
        }
        server = self.admin.server(host=ONE, volumes=[data])
        (volume,) = self.admin.volumes_of(server)
        self.cloud.MINE.add(volume)
        self.assertEqual(["attached"], self.states(volume))
        self.assert_agreed()
        self.admin.delete(server)
        self.admin.volume_is(volume, "gone")


class AttachTest(NovaCase):
    def test_volume_is_attached_and_detached(self):
        for vtype in ("disk", "iscsi"):
            with self.subTest(vtype):
                server, volume = self.server_with_volume(vtype=vtype)
                self.assert_agreed()
                self.admin.remove(server, volume)
                self.assert_agreed()

    def test_server_takes_26_volumes(self):
        server = self.admin.server(host=ONE)
        volumes = [self.admin.volume("disk") for _ in range(26)]
        for volume in volumes:
            self.admin.add(server, volume, wait_for=None)
        for volume in volumes:
            self.admin.volume_is(volume, "in-use")
            self.admin.attached(server, volume)
        self.assertEqual(set(volumes), set(self.admin.volumes_of(server)))
        self.assert_agreed()
        self.admin.delete(server)
        for volume in volumes:
            self.admin.volume_is(volume, "available")
        self.assert_agreed()

    def test_multiattach_volume_is_on_two_servers(self):
        volume = self.admin.volume("disk-multi")
        servers = [self.admin.server(host=host) for host in COMPUTES]
        for server in servers:
            self.admin.add(server, volume)
        self.assertEqual(["attached", "attached"], self.states(volume))
        self.assert_agreed()
        self.admin.remove(servers[0], volume, wait_for="in-use")
        wait_until(lambda: self.states(volume) == ["attached"])
        self.assert_agreed()
        self.admin.remove(servers[1], volume)
        self.assert_agreed()

    def test_volume_of_one_writer_is_refused_to_second_server(self):
        _server, volume = self.server_with_volume()
        path = f"/servers/{self.admin.server(host=TWO)}/os-volume_attachments"
        body = {"volumeAttachment": {"volumeId": volume}}
        self.assertEqual(400, self.admin.call("compute", "POST", path, body)[0])
        self.assert_agreed()

    def test_read_only_volume_is_opened_for_reading(self):
        volume = self.admin.volume("disk")
        body = {"os-update_readonly_flag": {"readonly": True}}
        self.admin.ok("volume", "POST", f"/volumes/{volume}/action", body)
        server = self.admin.server(host=ONE)
        self.admin.add(server, volume)
        self.assertEqual(
            ["ro"], [call["mode"] for call in self.cloud.calls(ONE, "attach", volume)]
        )
        self.assertEqual(["ro"], [row["attach_mode"] for row in self.attachments(volume)])
        self.assert_agreed()

    def test_swap_is_refused_by_compute_and_changes_nothing(self):
        # Nova swaps volumes only while they are migrated, which attachd does not do.
        server, volume = self.server_with_volume()
        new = self.admin.volume("disk")
        path = f"/servers/{server}/os-volume_attachments/{volume}"
        code, answer = self.admin.call(
            "compute", "PUT", path, {"volumeAttachment": {"volumeId": new}}
        )
        self.assertEqual(409, code, answer)
        self.assertEqual((["attached"], []), (self.states(volume), self.states(new)))
        self.admin.volume_is(new, "available")
        self.assert_agreed()


class MigrationTest(NovaCase):
    def setUp(self):
        super().setUp()
        self.server, self.volume = self.server_with_volume()

    def assert_on(self, host):
        self.assertEqual(host, self.host_of(self.server))
        self.admin.attached(self.server, self.volume)
        self.assert_agreed()  # The audit compares the hosts.

    def test_resized_server_moves_with_its_volume(self):
        self.admin.act(self.server, "resize", {"flavorRef": self.cloud.FLAVORS["big"]})
        self.admin.server_is(self.server, "VERIFY_RESIZE")
        self.admin.act(self.server, "confirmResize")
        self.admin.server_is(self.server, "ACTIVE")
        self.assert_on(TWO)

    def test_reverted_resize_returns_volume_to_its_host(self):
        self.admin.act(self.server, "resize", {"flavorRef": self.cloud.FLAVORS["big"]})
        self.admin.server_is(self.server, "VERIFY_RESIZE")
        self.admin.act(self.server, "revertResize")
        self.admin.server_is(self.server, "ACTIVE")
        self.assert_on(ONE)

    def test_cold_migrated_server_moves_with_its_volume(self):
        self.admin.act(self.server, "migrate", {"host": TWO})
        self.admin.server_is(self.server, "VERIFY_RESIZE")
        self.admin.act(self.server, "confirmResize")
        self.admin.server_is(self.server, "ACTIVE")
        self.assert_on(TWO)

    def test_live_migrated_server_moves_with_its_volume(self):
        self.admin.act(self.server, "os-migrateLive", {"host": TWO, "block_migration": "auto"})
        wait_until(lambda: self.host_of(self.server) == TWO)
        self.admin.server_is(self.server, "ACTIVE")
        wait_until(lambda: len(self.attachments(self.volume)) == 1)
        self.assert_on(TWO)

    def evacuate(self):
        """Evacuate the server; until that begins, it is ACTIVE on the host that is down."""
        self.admin.act(self.server, "evacuate", {})
        wait_until(lambda: self.host_of(self.server) == TWO)
        self.admin.server_is(self.server, "ACTIVE", "SHUTOFF")

    def test_evacuated_server_has_its_volume_on_the_other_host(self):
        self.kill_compute(ONE)
        self.evacuate()
        self.assert_on(TWO)
        self.restart_compute(ONE)
        self.assert_on(TWO)

    def test_server_of_fenced_host_is_evacuated_with_its_volume(self):
        self.kill_compute(ONE)
        self.fence(ONE)
        self.evacuate()
        self.assert_on(TWO)


class ShelveTest(NovaCase):
    def shelve(self, server):
        self.admin.act(server, "shelve")
        self.admin.server_is(server, "SHELVED_OFFLOADED")

    def unshelve(self, server):
        self.admin.act(server, "unshelve")
        self.admin.server_is(server, "ACTIVE")
        wait_until(lambda: self.action_result(server, "unshelve") == "Success")

    def test_shelved_server_keeps_its_volume_and_gets_it_back(self):
        server, volume = self.server_with_volume()
        self.shelve(server)
        self.assertEqual(["reserved"], self.states(volume))
        self.assert_agreed(states=("reserved",))
        self.unshelve(server)
        self.admin.attached(server, volume)
        self.assert_agreed()

    def test_volume_added_to_shelved_server_is_connected_when_it_is_unshelved(self):
        server = self.admin.server(host=ONE)
        self.shelve(server)
        volume = self.admin.volume("disk")
        self.admin.add(server, volume)
        self.unshelve(server)
        self.admin.attached(server, volume)
        self.assert_agreed()

    def test_volume_added_to_shelved_server_can_be_removed(self):
        server = self.admin.server(host=ONE)
        self.shelve(server)
        volume = self.admin.volume("disk")
        self.admin.add(server, volume)
        self.admin.remove(server, volume)
        self.assert_agreed()
