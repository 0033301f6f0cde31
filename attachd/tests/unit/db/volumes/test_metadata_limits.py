# SPDX-License-Identifier: Apache-2.0
"""Limits of all metadata of one volume or snapshot."""

import testtools

from attachd import exception
from attachd.db.volumes import metadata_limits


class MetadataLimitsTest(testtools.TestCase):
    def test_as_many_keys_and_bytes_as_allowed_pass(self):
        metadata_limits.check("x", {})
        metadata_limits.check("x", {f"{n}": "" for n in range(metadata_limits.MAX_PAIRS)})
        metadata_limits.check("x", {"a": "b" * (metadata_limits.MAX_BYTES - 1)})

    def test_more_keys_are_refused(self):
        more = {f"{number}": "" for number in range(metadata_limits.MAX_PAIRS + 1)}
        with self.assertRaisesRegex(
            exception.BadRequest, "Volume 1 would have 257 .* may have 256"
        ):
            metadata_limits.check("Volume 1", more)

    def test_more_bytes_are_refused_as_utf_8_counts_them(self):
        characters = metadata_limits.MAX_BYTES // 2
        with self.assertRaisesRegex(exception.BadRequest, r"Volume 1 would have 1048577 bytes"):
            metadata_limits.check(
                "Volume 1", {"a": "\N{LATIN SMALL LETTER U WITH DIAERESIS}" * characters}
            )
