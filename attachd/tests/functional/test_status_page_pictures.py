# SPDX-License-Identifier: Apache-2.0
"""Screenshots of each page of the status page: wide and narrow, light and dark.

Each is checked by axe-core for what keeps people from using it.

``ATTACHD_TEST_SCREENSHOTS`` names the folder where they are kept; ``tox -e screenshots`` writes
those of the documentation.
"""

import datetime
import os
from pathlib import Path

from attachd.db import models
from attachd.tests.fixtures import axe, lifetime, status_page_rows
from attachd.tests.functional.test_status_page import TgtCase
from attachd.tests.selection import full_only

SIZES = {"wide": (1280, 800), "narrow": (400, 800)}


@full_only("browser")
class PicturesTest(TgtCase):
    def setUp(self):
        super().setUp()
        named = os.environ.get("ATTACHD_TEST_SCREENSHOTS")
        self.folder = Path(named) if named else lifetime.temp_dir(self)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.axe = axe.require_source(self)

    def use_api(self):
        """Fence a host and drain another one; return the id of an attachment that was detached."""
        self.attach("compute-19", name="orders-db")
        self.attach("compute-19", name="orders-log")
        body = {"fence": {"reason": "no heartbeat since 03:05"}}
        self.api.request_json("POST", "/hosts/compute-19/fence", body)
        self.attach("compute-20", name="web-assets")
        _volume, attachment = self.attach("compute-20", name="mail-spool")
        body = {"drain": {"reason": "new mainboard", "detach": [attachment]}}
        self.api.request_json("POST", "/hosts/compute-20/drain", body)
        return attachment

    def prepare(self):
        """Have hosts and volumes in each state; return the path of each page, and a text of it."""
        attachment = self.use_api()
        rows = status_page_rows
        hosts = [f"compute-{number:02}" for number in range(1, 19)]
        volumes = [
            rows.make_volume(f"data-{host}", size_gib=50 + 10 * n) for n, host in enumerate(hosts)
        ]
        attached = [rows.make_attachment(v, h) for v, h in zip(volumes, hosts, strict=True)]
        attached[3] |= {"state": "disconnect_failed", "error": "The device is in use by LVM: vg0."}
        attached[6] |= rows.observed("degraded", "1 of 2 paths has failed.")
        attached[8] |= rows.observed("failed", "No path to the volume works.")
        volumes[3] |= {"status": "detaching"}
        broken = rows.make_volume(
            "scratch", state="error", status="error", attach_status="detached"
        )
        long_ago = models.now() - datetime.timedelta(minutes=47)
        with rows.writing(self.service.state) as connection:
            rows.add_backend(connection)
            for host in hosts:
                seen = {"seen_at": long_ago} if host == "compute-05" else {}
                rows.add_agent(connection, host, **seen)
            rows.add(connection, [*volumes, broken], attached)
        return {
            "now": ("#/", "compute-05"),
            "hosts": ("#/hosts", "compute-18"),
            "host": ("#/hosts/compute-20", "1 of 1"),
            "volumes": ("#/volumes", "orders-db"),
            "attachments": ("#/attachments", "compute-20"),
            "attachment": (f"#/attachments/{attachment}", "Detached"),
            "backends": ("#/backends", "up"),
            "services": ("#/services", "all-in-one"),
            "search": ("#/search/compute-20", "Attachments"),
        }

    def store(self, name, dimensions):
        """Check that a page fits the window and is accessible, and store its picture."""
        width = self.browser.run("return document.documentElement.scrollWidth")
        self.assertEqual(dimensions[0], width)
        self.browser.screenshot(self.folder / name)
        self.assertEqual([], axe.find_violations(self.browser, self.axe), name)
        self.assert_no_problems()

    def test_each_page_fits_and_is_stored_as_picture(self):
        pages = self.prepare()
        page = self.browser
        page.open(self.url)
        page.wait_for("Live", ".live")
        page.wait_for("Detached", ".feed")
        page.run("document.querySelector('header img').removeAttribute('alt')")
        (found,) = axe.find_violations(page, self.axe)
        self.assertEqual("image-alt", found["rule"], "axe finds what is wrong")
        page.run("document.querySelector('header img').alt = ''")
        for size, dimensions in SIZES.items():
            page.set_size(*dimensions)
            for scheme in ("light", "dark"):
                page.set_scheme(scheme)
                for name, (path, expected) in pages.items():
                    with self.subTest(name, size=size, scheme=scheme):
                        page.run("location.hash = arguments[0]", path)
                        page.wait_for(expected, "main")
                        page.wait_without("Loading", "main")
                        self.store(f"{name}-{size}-{scheme}.png", dimensions)
                page.run("location.hash = '#/hosts/compute-20'")
                page.click("Fence…", "main")
                page.wait_for("1 volume", "dialog")
                self.store(f"fence-{size}-{scheme}.png", dimensions)
                page.click("Cancel", "dialog")
