# SPDX-License-Identifier: Apache-2.0
"""The Image service of a soak, which is a fake and is not killed, with an image in two formats."""

import random
from typing import Any, Final
import unittest

from attachd.tests.fixtures import fake_glance, lifetime
from attachd.tests.wait import wait_until

_SIZE: Final = 2 * 1024 * 1024


class Images:
    """The Image service.

    :ivar data: of the images
    :ivar raw: the id of the raw image
    :ivar converted: the id of the same image as qcow2
    :ivar settings: with which attachd uses the service
    """

    def __init__(self, test: unittest.TestCase, seed: int) -> None:
        self._glance = fake_glance.FakeGlance(test)
        self._conversions = lifetime.temp_dir(test)
        self.settings = self._glance.settings(self._conversions)
        self.data = random.Random(f"image {seed}").randbytes(_SIZE)
        self.raw = self._glance.add(self.data)
        self.converted = self._glance.add(
            fake_glance.convert(test, self.data), disk_format="qcow2"
        )

    def wait_for(self, name: str) -> list[bytes]:
        """Wait until an image of a name exists and all are complete; return their first bytes."""
        wait_until(
            lambda: {image["status"] for image in self._named(name)} == {"active"},
            lambda: f"the images {name}: {self._named(name)}",
        )
        return [self._glance.data[image["id"]] for image in self._named(name)]

    def _named(self, name: str) -> list[dict[str, Any]]:
        return [image for image in [*self._glance.images.values()] if image["name"] == name]

    def find_unfinished(self) -> list[str]:
        """Return sentences about images without data, and about files of conversions."""
        images = [*self._glance.images.values()]
        found = [
            f"image {it['id']} is {it['status']}" for it in images if it["status"] != "active"
        ]
        files = [path.name for path in self._conversions.iterdir()]
        return [*found, *(f"file of a conversion: {name}" for name in files)]
