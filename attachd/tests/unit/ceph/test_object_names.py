# SPDX-License-Identifier: Apache-2.0
"""Names of objects."""

import unittest

from attachd.ceph import object_names


class NamesTest(unittest.TestCase):
    """Names by the id of an image, as Ceph makes them."""

    def test_names_have_id_of_image(self):
        self.assertEqual("rbd_header.10ab", object_names.header_name("10ab"))
        self.assertEqual("rbd_data.10ab", object_names.data_prefix("10ab"))

    def test_text_is_encoded_with_its_length_in_bytes(self):
        self.assertEqual(b"\3\0\0\0a\xc3\xa4", object_names.encode("aä"))
