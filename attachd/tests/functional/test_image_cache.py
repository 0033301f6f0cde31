# SPDX-License-Identifier: Apache-2.0
"""The image cache, as clients of the API see it, and with a real Glance."""

import json
import secrets
import threading

import testtools

from attachd.db.volumes import image_cache_entries
from attachd.manager.backends import ImageCacheLimits
from attachd.tests.fixtures import (
    ceph,
    deployments,
    fake_glance,
    glance_fixture,
    http_client,
    keystone_fixture,
    lifetime,
    wsgi_api,
)
from attachd.tests.functional.test_backend_data import settings
from attachd.tests.functional.test_images import MIB, ImageCase
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

GIB = 2**30
VOLUMES = 16


class CacheCase(ImageCase):
    def setUp(self):
        super().setUp()
        self.api.backend.image_cache = ImageCacheLimits(entries=0, gib=0, timeout=60)
        self.image = self.glance.add(b"data" * 1000, name="Debian")

    def entries(self):
        path = f"/volumes/detail?all_tenants=1&project_id={image_cache_entries.PROJECT}"
        return self.expect(200, "GET", path, token=wsgi_api.ADMIN).body["volumes"]


class ClientTest(CacheCase):
    def test_volume_of_cache_shows_what_a_volume_of_image_shows(self):
        first, second = (self.finished(self.create(self.image, size=2)) for _ in range(2))
        self.assertEqual(1, self.glance.count_downloads(self.image))
        for name in ("bootable", "source_volid", "size", "volume_image_metadata", "metadata"):
            self.assertEqual(first[name], second[name], name)
        self.assertEqual(
            ("true", None, 2), tuple(second[name] for name in ("bootable", "source_volid", "size"))
        )
        self.assertEqual("Debian", second["volume_image_metadata"]["image_name"])

    def test_source_is_not_shown_while_the_cache_is_cloned(self):
        shown = []

        def read_source(call):
            if call.method == "clone":
                shown.append(self.show(call.volume)["source_volid"])

        self.driver.script = read_source
        self.finished(self.create(self.image))
        self.assertEqual([None], shown)

    def test_entries_are_shown_to_administrators_alone_and_use_no_quota(self):
        volume = self.create(self.image)
        self.finished(volume)
        listed = self.expect(200, "GET", "/volumes").body["volumes"]
        self.assertEqual([volume], [item["id"] for item in listed])
        (entry,) = self.entries()
        self.assertEqual(f"image-{self.image}", entry["name"])
        self.expect(404, "GET", f"/volumes/{entry['id']}")
        self.expect(404, "POST", "/volumes", {"volume": {"source_volid": entry["id"]}})
        limits = self.expect(200, "GET", "/limits").body["limits"]["absolute"]
        self.assertEqual((1, 1), (limits["totalVolumesUsed"], limits["totalGigabytesUsed"]))

    def test_administrator_can_delete_entry(self):
        self.finished(self.create(self.image))
        (entry,) = self.entries()
        self.expect(202, "DELETE", f"/volumes/{entry['id']}", token=wsgi_api.ADMIN)
        wait_until(lambda: not self.entries())
        self.finished(self.create(self.image))
        self.assertEqual(2, self.glance.count_downloads(self.image))

    def test_image_in_the_cache_that_caller_does_not_see_is_refused(self):
        self.finished(self.create(self.image))
        self.glance.may_see = lambda token, _image: token != wsgi_api.OTHER_PROJECT_MEMBER
        body = {"volume": {"size": 1, "imageRef": self.image}}
        answer = self.expect(400, "POST", "/volumes", body, token=wsgi_api.OTHER_PROJECT_MEMBER)
        self.assertIn("unable to access requested image", answer.fault)

    def test_deleted_image_in_the_cache_is_refused(self):
        self.finished(self.create(self.image))
        del self.glance.images[self.image]
        self.assertIn("unable to access requested image", self.create(self.image, 400))

    def test_image_that_is_deleted_after_the_request_leaves_error(self):
        self.finished(self.create(self.image))
        self.glance.may_see = lambda token, _image: token == wsgi_api.MEMBER
        self.finished(self.create(self.image), "error")


class ServedCase(testtools.TestCase):
    """A served API with volumes in files.

    :ivar state: the directory of the manager
    """

    OPTIONS = "[file]\nfile_loop_devices = never\nimage_cache_enabled = true\n"

    def setUp(self):
        super().setUp()
        folder = lifetime.temp_dir(self)
        self.path, self.state = folder / "own.conf", folder / "state"

    def start(self):
        self.server = deployments.AllInOne(self, self.state, f"--config-file={self.path}")
        self.server.show_in_failures(self)

    def create(self, client, image, count=1):
        """Create volumes at once, and return their ids when they are available."""
        body = {"volume": {"size": 1, "imageRef": image}}
        request = http_client.Request("POST", "/volumes", body)
        answers = client.request_at_once([request] * count)
        self.assertEqual([202] * count, [answer.status for answer in answers], answers)
        volumes = [answer.body["volume"]["id"] for answer in answers]
        for volume in volumes:
            client.wait_for(volume, "available")
        return volumes

    def data(self, volume, length):
        (path,) = self.state.rglob(volume)
        with path.open("rb") as file:
            self.assertEqual(GIB, path.stat().st_size)
            return file.read(length)

    def entries(self, client):
        path = f"/volumes/detail?all_tenants=1&project_id={image_cache_entries.PROJECT}"
        return client.request_json("GET", path)["volumes"]


@full_only("deployments")
class GlanceTest(ServedCase):
    """Users of a real Keystone, and a real Glance."""

    def setUp(self):
        super().setUp()
        self.keystone = keystone_fixture.shared(self)
        self.glance = glance_fixture.Glance(self, self.keystone)
        images = "".join(f"{key} = {value}\n" for key, value in self.glance.options().items())
        self.path.write_text(
            f"{self.OPTIONS}image_cache_max_entries = 2\n[glance]\n{images}"
            "[quota]\nquota_volumes = -1\n"
            f"[api]\nauth_strategy = keystone\n{self.glance.service.middleware}"
        )
        self.start()
        self.alice, self.bob = (self.keystone.user(name, "member") for name in ("alice", "bob"))
        self.admin = self.client(self.keystone.user("root", "admin"))
        self.content = secrets.token_bytes(4 * MIB)

    def client(self, user):
        token = {"X-Auth-Token": self.keystone.token(user)}
        return http_client.Client(f"{self.server.url}/v3", headers=token)

    def change(self, image, path, value):
        change = json.dumps([{"op": "add", "path": path, "value": value}])
        kind = {"Content-Type": "application/openstack-images-v2.1-json-patch"}
        options = {"data": change, "headers": kind}
        answer = self.glance.request(self.alice, "PATCH", f"/images/{image}", **options)
        answer.raise_for_status()
        return answer.json()["updated_at"]

    def test_image_of_many_volumes_at_once_is_read_once(self):
        image = self.glance.add(self.alice, self.content)
        volumes = self.create(self.client(self.alice), image, VOLUMES)
        self.assertEqual(1, self.glance.count_downloads(image))
        self.assertEqual(VOLUMES, len(set(volumes)))
        for volume in volumes:
            self.assertEqual(self.content + bytes(MIB), self.data(volume, 5 * MIB))

    def test_changed_image_is_read_again(self):
        image, client = self.glance.add(self.alice, self.content), self.client(self.alice)
        made_at = self.change(image, "/os_distro", "other")
        self.create(client, image)
        # Glance has the time of a change in seconds.
        wait_until(lambda: self.change(image, "/os_distro", "debian") != made_at)
        (volume,) = self.create(client, image)
        self.assertEqual(2, self.glance.count_downloads(image))
        self.assertEqual("debian", client.volume(volume)["volume_image_metadata"]["os_distro"])
        self.assertEqual(1, len(self.entries(self.admin)))

    def test_image_that_is_private_or_deleted_by_now_is_refused_to_others(self):
        image = self.glance.add(self.alice, self.content, visibility="community")
        alice, bob = self.client(self.alice), self.client(self.bob)
        for client in (alice, bob):
            self.create(client, image)
        self.assertEqual(1, self.glance.count_downloads(image))
        self.change(image, "/visibility", "private")
        body = {"volume": {"size": 1, "imageRef": image}}
        answer = bob.request("POST", "/volumes", body)
        self.assertIn("unable to access requested image", answer.message)
        self.create(alice, image)
        self.glance.request(self.alice, "DELETE", f"/images/{image}").raise_for_status()
        answer = alice.request("POST", "/volumes", body)
        self.assertIn("unable to access requested image", answer.message)

    def test_least_recently_used_image_is_removed_for_another(self):
        client = self.client(self.alice)
        first, second, third = (self.glance.add(self.alice, self.content) for _ in range(3))
        for image in (first, second, first, third, first):
            self.create(client, image)
        names = {entry["name"] for entry in self.entries(self.admin)}
        self.assertEqual({f"image-{first}", f"image-{third}"}, names)
        self.assertEqual(1, self.glance.count_downloads(first))


@full_only("deployments")
class KilledTest(ServedCase):
    """A manager that is killed while it fills an entry; the next one goes on."""

    def test_killed_import_is_repeated_and_leaves_one_entry(self):
        glance = fake_glance.FakeGlance(self)
        self.path.write_text(
            f"{self.OPTIONS}[glance]\nauth_type = none\nendpoint_override = {glance.url}\n"
        )
        self.start()
        content = secrets.token_bytes(3 * MIB)
        image, waiting = glance.add(content), threading.Event()
        glance.before_piece = lambda offset: offset and (waiting.set(), glance.over.wait(TIMEOUT))
        client = http_client.Client(f"{self.server.url}/v3")
        body = {"volume": {"size": 1, "imageRef": image}}
        request = http_client.Request("POST", "/volumes", body)
        answers = client.request_at_once([request] * 6)
        self.assertTrue(waiting.wait(TIMEOUT))
        self.server.kill()
        glance.before_piece = lambda _offset: None
        glance.over.set()
        self.start()
        client = http_client.Client(f"{self.server.url}/v3")
        for answer in answers:
            volume = answer.body["volume"]["id"]
            client.wait_for(volume, "available")
            self.assertEqual(content, self.data(volume, len(content)))
        wait_until(lambda: [it["status"] for it in self.entries(client)] == ["available"])
        self.assertIsNone(client.volume(volume)["source_volid"])


@full_only("storage")
class CephTest(ServedCase):
    """Clones of the cache on Ceph: the key of a host reaches one image and no parent."""

    def test_image_of_many_volumes_is_read_once_and_they_share_nothing(self):
        cluster, prefix = ceph.shared(self), ceph.new_prefix()
        cluster.require_statistics(self)
        glance, content = fake_glance.FakeGlance(self), secrets.token_bytes(5 * MIB)
        backend = settings("rbd", {**cluster.options(prefix), "image_cache_enabled": "true"})
        self.path.write_text(
            f"{backend}\n[glance]\nauth_type = none\nendpoint_override = {glance.url}\n"
        )
        self.start()
        image = glance.add(content)
        client = http_client.Client(f"{self.server.url}/v3")
        volumes = self.create(client, image, 6)
        self.assertEqual(1, glance.count_downloads(image))
        (entry,) = self.entries(client)
        for volume in (*volumes, entry["id"]):
            with cluster.open_image(f"{prefix}{volume}") as opened:
                self.assertEqual(content, opened.read(0, len(content)))
                self.assertEqual(0, opened.overlap())
                self.assertEqual([], list(opened.list_snaps()))
        client.request_json("DELETE", f"/volumes/{entry['id']}")
        client.wait_for(entry["id"], "gone")
        for volume in volumes:
            client.request_json("DELETE", f"/volumes/{volume}")
            client.wait_for(volume, "gone")
        self.assertEqual([], list(cluster.images(prefix)))
