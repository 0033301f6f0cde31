# SPDX-License-Identifier: Apache-2.0
"""Tests of processes that are killed at any step of calls for images."""

import unittest

from attachd.tests.crash import image_calls
from attachd.tests.crash.case import CrashCase
from attachd.tests.selection import full_only


@full_only("crash")
class EachStepTest(CrashCase, unittest.TestCase):
    """Each step of the API and of a manager, in one of the calls that take it.

    The next manager leaves no file of a conversion, no volume with a part of an image, and no
    image without data.
    """

    calls = image_calls.CALLS

    @classmethod
    def new_site(cls):
        return image_calls.ImageDeployment(cls.owner, cls.database)

    def test_crash_points_cover_driver_tools_and_image_service(self):
        names = {point.name for points in self.recorded.values() for point in points}
        for part in (
            "driver create",
            "driver delete",
            "qemu-img convert",
            "POST image",
            "PUT image",
        ):
            self.assertTrue([name for name in names if part in name], part)

    def test_volumes_of_images_killed_at_each_step_are_recovered(self):
        self.check(image_calls.CreateRaw, image_calls.CreateConverted)

    def test_reimage_killed_at_each_step_is_recovered(self):
        self.check(image_calls.Reimage)

    def test_upload_killed_at_each_step_is_recovered(self):
        self.check(image_calls.Upload)

    def test_upload_in_use_killed_at_each_step_is_recovered(self):
        self.check(image_calls.UploadInUse)


@full_only("crash")
class EachCacheStepTest(CrashCase, unittest.TestCase):
    """Each step of a volume that puts its image into the cache, and is made of it.

    The next manager leaves no entry without the whole image, and no volume that keeps an entry.
    """

    calls = image_calls.CACHED_CALLS

    @classmethod
    def new_site(cls):
        return image_calls.CachingDeployment(cls.owner, cls.database)

    def test_volumes_of_cache_killed_at_each_step_are_recovered(self):
        self.check(image_calls.CreateCached)
