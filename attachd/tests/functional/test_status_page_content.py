# SPDX-License-Identifier: Apache-2.0
"""Tests of what the status page shows in a browser: hostile names, and many rows."""

import statistics
import time

import requests

from attachd.tests.fixtures import prefix_proxy, status_page_rows
from attachd.tests.fixtures.deployments import NO_LOOP_DEVICES, AllInOne
from attachd.tests.functional.test_status_page import VERSION, StatusPageCase
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT

NAMES = (
    "<img src=x onerror=document.title='run'>",
    "\"><script>document.title='run'</script>",
    "javascript:document.title='run'",
    "${document.title='run'}",
    "\u202egnp.\u2066txt",
    "اسم المجلد",
    "a" * 255,
    "a/b?c=d&e#f%2e",
)
HOSTS, ATTACHMENTS = 1000, 10_000
PAGE_SIZE = 50
SIZES = ((1280, 800), (400, 800))


class ContentCase(StatusPageCase):
    def start(self):
        return AllInOne.configured(self, f"{NO_LOOP_DEVICES}\n[agent]\ndown_time = 86400\n")

    def show(self, path, expected):
        self.browser.run("location.hash = arguments[0]", path)
        self.browser.wait_for(expected, "main")


@full_only("browser")
class HostileNamesTest(ContentCase):
    def setUp(self):
        super().setUp()
        volumes = [status_page_rows.make_volume(name) for name in NAMES]
        with status_page_rows.writing(self.service.state) as connection:
            for name in NAMES:
                status_page_rows.add_agent(connection, name, error=name)
            rows = [
                status_page_rows.make_attachment(
                    volume, name, device=name, error=name, state="disconnect_failed"
                )
                for volume, name in zip(volumes, NAMES, strict=True)
            ]
            status_page_rows.add(connection, volumes, rows)
        self.ids = [row["id"] for row in rows]

    def test_names_are_shown_as_text_and_fit(self):
        page = self.browser
        page.open(self.url)
        page.wait_for("Live", ".live")
        paths = ["#/", "#/hosts", "#/volumes", "#/attachments", "#/services"]
        paths += [f"#/attachments/{identity}" for identity in self.ids]
        for size in SIZES:
            page.set_size(*size)
            for path in paths:
                with self.subTest(path, size=size):
                    self.show(path, "")
                    page.wait_without("Loading", "main")
                    self.assertNotEqual("run", page.run("return document.title"))
                    made = "return document.querySelectorAll('main img, main script').length"
                    self.assertEqual(0, page.run(made))
                    width = page.run("return document.documentElement.scrollWidth")
                    self.assertEqual(size[0], width)
        self.show("#/volumes", "in all")
        shown = page.run("return [...document.querySelectorAll('td bdi')].map(e => e.textContent)")
        self.assertLessEqual(set(NAMES), set(shown))
        self.assert_no_problems()

    def test_host_of_any_name_is_reached_by_its_link(self):
        page = self.browser
        page.open(f"{self.url}#/hosts")
        # The API knows no host with a slash.
        for name in (text for text in NAMES if "/" not in text):
            with self.subTest(name):
                self.show("#/hosts", "Last report")
                page.run(
                    "[...document.querySelectorAll('td a')]"
                    ".find((link) => link.textContent === arguments[0]).click()",
                    name,
                )
                page.wait_for("Last report", ".facts")
                title = page.run("return document.querySelector('h1 bdi').textContent")
                self.assertEqual(name, title)

    def test_search_for_any_text_finds_volume(self):
        page = self.browser
        page.open(self.url)
        page.wait_for("Live", ".live")
        for name in NAMES:
            with self.subTest(name):
                page.run("document.querySelector('.search input').value = arguments[0]", name)
                page.run("document.querySelector('.search').requestSubmit()")
                page.wait_for("Volumes", "main")
                found = "return [...document.querySelectorAll('td bdi')].map(e => e.textContent)"
                self.assertIn(name, page.run(found))
                self.show("#/", "volumes")


@full_only("browser")
class ManyRowsTest(ContentCase):
    def setUp(self):
        super().setUp()
        with status_page_rows.writing(self.service.state) as connection:
            status_page_rows.fill(connection, HOSTS, ATTACHMENTS)

    def timed(self, path, expected):
        began = time.monotonic()
        self.show(path, expected)
        return time.monotonic() - began

    def test_pages_have_few_of_many_rows(self):
        page = self.browser
        page.open(self.url)
        page.wait_for("10,000", ".tiles")
        page.wait_for("Live", ".live")
        seconds = {}
        for path, expected in (
            ("#/hosts", "of 20"),
            ("#/hosts?host~=0999", "compute-0999"),
            ("#/hosts/compute-0999", "Devices"),
            ("#/volumes", "of 200"),
            ("#/volumes?page=200", "Page 200"),
            ("#/volumes?name~=disk-09999", "1 in all"),
            ("#/attachments", "10,000 in all"),
            ("#/attachments?attached_host=compute-0500", "10 in all"),
            ("#/services", "All 1000"),
            ("#/search/compute-0500", "Host"),
        ):
            with self.subTest(path):
                seconds[path] = round(self.timed(path, expected), 2)
                rows = page.run("return document.querySelectorAll('tbody tr').length")
                self.assertLessEqual(rows, 2 * PAGE_SIZE)
        self.assertLess(max(seconds.values()), TIMEOUT, seconds)
        print(f"seconds to each page: {seconds}")  # noqa: T201  the figures of the documentation
        self.assert_no_problems()

    def test_first_byte_is_as_fast_as_a_request_of_the_api(self):
        def median(path, **headers):
            times = []
            with requests.Session() as session:
                for _ in range(30):
                    answer = session.get(
                        f"{self.service.url}{path}", headers=headers, timeout=TIMEOUT
                    )
                    self.assertEqual(200, answer.status_code)
                    times.append(answer.elapsed.total_seconds())
            return statistics.median(times)

        page = median("/ui/")
        api = median("/v3/attachments?limit=1", **{"OpenStack-API-Version": VERSION})
        print(f"seconds to the first byte: page {page}, API {api}")  # noqa: T201  as above
        self.assertLess(page, api + 0.05)


@full_only("browser")
class PrefixTest(ContentCase):
    def test_page_below_a_prefix_of_a_proxy_works_and_is_live(self):
        url = prefix_proxy.start(self, self.service.url)
        page = self.browser
        page.open(f"{url}/ui")
        page.wait_for("Nothing is wrong.")
        page.wait_for("Live", ".live")
        _volume, attachment = self.attach("compute-7", name="data")
        page.wait_for("Attached", ".feed")
        page.click("Attachments", "nav")
        page.click(attachment[:8], "table")
        page.wait_for("Host has access", ".timeline")
        self.assertEqual(f"{prefix_proxy.PREFIX}/ui/", page.run("return location.pathname"))
        page.click("Detach…")
        page.click("Detach", "dialog")
        page.wait_for("Done", "dialog")
        self.assert_no_problems()
