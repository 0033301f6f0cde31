# SPDX-License-Identifier: Apache-2.0
"""Names and capabilities of cephx users."""

import re
import unittest

from attachd import exception
from attachd.drivers.rbd import users

VOLUME = "5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a0001"
ATTACHMENT = "5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a0002"
ENTITY = f"client.attachd-{ATTACHMENT}"
NAMING = users.Naming(["fast", "volumes"], "attachd-")
IMAGE = users.Image("volumes", f"attachd-{VOLUME}", "10acbe01")


class CapabilitiesTest(unittest.TestCase):
    """What a user may do."""

    def test_capabilities_name_the_pool_or_the_image_and_none_with_w_a_pool(self):
        for mode in ("rw", "ro"):
            for text in users.capabilities(IMAGE, mode)["osd"].split(", "):
                allowed, rights, *_ = text.split()
                self.assertEqual("allow", allowed)
                self.assertIn("object_prefix", text)
                self.assertEqual("w" in rights, " pool=volumes " not in text, text)
                self.assertTrue("w" not in rights or ".10acbe01" in text, text)

    def test_reader_may_not_write_data(self):
        for mode, expected in (
            ("rw", 'allow rwx namespace="" object_prefix rbd_data.10acbe01.'),
            ("ro", "allow r pool=volumes object_prefix rbd_data.10acbe01."),
        ):
            self.assertIn(expected, users.capabilities(IMAGE, mode)["osd"].split(", "))

    def test_reader_may_not_blocklist_clients(self):
        self.assertEqual("allow r", users.capabilities(IMAGE, "ro")["mon"])

    def test_writer_may_blocklist_single_clients_and_no_addresses_or_daemons(self):
        caps = users.capabilities(IMAGE, "rw")["mon"]
        pattern = re.search('addr regex "(.*)"$', caps)[1]
        hosts = ("192.0.2.1", "v1:192.0.2.1", "[2001:db8::1]")
        for host in hosts:
            for nonce in (1, 9, 10, 999_999_999, 10**9, 4_200_000_000, 2**32 - 1, 4_294_967_199):
                self.assertRegex(f"{host}:0/{nonce}", pattern)
            for wrong in (
                ":0/0",
                ":0/00",
                ":0/4294967296",
                ":0/42949672960",
                ":6800/5",
                "",
                "/24",
            ):
                self.assertNotRegex(f"{host}{wrong}", pattern)

    def test_prefix_of_data_does_not_match_image_with_longer_id(self):
        self.assertNotIn("rbd_data.10acbe01,", users.capabilities(IMAGE, "rw")["osd"] + ",")


class NamingTest(unittest.TestCase):
    """Users and images of a backend."""

    def test_user_is_recognized_with_mode(self):
        for mode in ("rw", "ro"):
            user = NAMING.user(ENTITY, users.capabilities(IMAGE, mode))
            self.assertEqual(users.User(ENTITY, ATTACHMENT, VOLUME, "volumes", mode), user)

    def test_withdrawn_user_keeps_its_volume(self):
        caps = users.no_capabilities("volumes", NAMING.image(VOLUME))
        user = NAMING.user(ENTITY, caps)
        self.assertEqual(
            users.User(ENTITY, ATTACHMENT, VOLUME, "volumes", None, withdrawn=True), user
        )

    def test_user_with_changed_capabilities_has_no_mode(self):
        caps = users.capabilities(IMAGE, "ro")
        for changed in (
            {**caps, "osd": f"{caps['osd']}, allow rwx pool=volumes"},
            {**caps, "mon": "allow *"},
            {**caps, "mgr": "allow *"},
        ):
            user = NAMING.user(ENTITY, changed)
            self.assertEqual((None, False), (user.mode, user.withdrawn))

    def test_user_of_other_pool_prefix_or_without_image_is_none_of_this_backend(self):
        caps = users.capabilities(IMAGE, "rw")
        elsewhere = users.capabilities(IMAGE._replace(pool="other"), "rw")
        foreign = users.capabilities(IMAGE._replace(name=f"volume-{VOLUME}"), "rw")
        for entity, has in (
            (ENTITY, elsewhere),
            (ENTITY, foreign),
            (ENTITY, {"mon": "allow r"}),
            ("client.admin", caps),
            (f"client.attachd-2-{ATTACHMENT}", caps),
        ):
            self.assertIsNone(NAMING.user(entity, has), entity)

    def test_image_of_other_prefix_is_no_volume(self):
        self.assertEqual(VOLUME, NAMING.volume_id(f"attachd-{VOLUME}"))
        for name in (VOLUME, f"volume-{VOLUME}", f"attachd-2-{VOLUME}", f"attachd-copy.{VOLUME}"):
            self.assertIsNone(NAMING.volume_id(name), name)

    def test_id_that_would_change_capabilities_is_refused(self):
        for wrong in ("", "x", f"{VOLUME}, allow *", VOLUME.upper()):
            for name in (NAMING.image, NAMING.entity):
                with self.assertRaises(exception.BackendError) as caught:
                    name(wrong)
                self.assertTrue(caught.exception.final)

    def test_users_of_pool_are_those_whose_capabilities_reach_its_data(self):
        for osd, expected in (
            ("profile rbd pool=volumes", True),
            ("profile rbd pool=images, profile rbd pool=volumes", True),
            ("profile rbd-read-only pool=volumes", True),
            ("profile rbd", True),
            ("allow rwx", True),
            ("allow rw pool=volumes", True),
            ("profile rbd pool=images", False),
            ("profile rbd pool=volumes2", False),
            ("allow rw tag cephfs data=fs", False),
            ("profile rbd pool=volumes namespace=other", False),
            (users.capabilities(IMAGE, "rw")["osd"], False),
            (users.no_capabilities("volumes", IMAGE.name)["osd"], False),
            ("allow *", False),
            ("", False),
        ):
            self.assertEqual(expected, users.may_use(["volumes"], {"osd": osd}), osd)


class OtherUsersTest(unittest.TestCase):
    """Users that attachd has not made."""

    def test_capabilities_for_data_of_an_image_are_recognized(self):
        for mode in ("rw", "ro"):
            caps = users.capabilities(IMAGE, mode)
            self.assertTrue(users.reaches(caps, IMAGE))
            self.assertFalse(users.reaches(caps, IMAGE._replace(id="10acbe02")))
        self.assertFalse(users.reaches({"mon": "allow r"}, IMAGE))
