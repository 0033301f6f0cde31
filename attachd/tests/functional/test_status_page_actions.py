# SPDX-License-Identifier: Apache-2.0
"""Tests of the actions of the status page in a browser, on an all-in-one with a real tgtd."""

from attachd.tests.fixtures.browser import ENTER, ESCAPE, TAB
from attachd.tests.functional.test_status_page import TgtCase
from attachd.tests.selection import full_only

HOST = "compute-1"


@full_only("browser")
class ActionsTest(TgtCase):
    def open_host(self):
        """Attach two volumes on a host, and open its page."""
        attached = [self.attach(HOST, name=name) for name in ("one", "two")]
        self.browser.open(f"{self.url}#/hosts/{HOST}")
        self.browser.wait_for("Live", ".live")
        self.browser.wait_for(attached[0][1][:8], "table")
        return attached

    def begin_fence(self, typed=HOST):
        self.browser.click("Fence…", "main")
        self.browser.wait_for("2 volumes", "dialog")
        self.browser.type("reason", "no heartbeat")
        self.browser.type("phrase", typed)
        self.browser.click("Fence", "dialog")

    def attachments(self):
        return self.api.request_json("GET", "/attachments")["attachments"]

    def host(self):
        return self.api.request_json("GET", f"/hosts/{HOST}")["host"]

    def test_fence_shows_proof_and_host_can_be_used_after_it_is_lifted(self):
        page, attached = self.browser, self.open_host()
        self.begin_fence()
        page.wait_for("Done", "dialog")
        text = page.text("dialog")
        self.assertEqual(2, text.count("proved"), text)
        page.click("Close", "dialog")
        page.wait_for("fenced", ".facts")
        self.assertEqual([], self.attachments())
        self.assertEqual("no heartbeat", self.host()["reason"])
        page.run("location.hash = arguments[0]", f"#/attachments/{attached[0][1]}")
        page.wait_for("Fenced", ".timeline")
        page.wait_for("proved", ".timeline")
        page.run("location.hash = '#/'")
        page.wait_for("Reason: no heartbeat", ".problems")
        page.click(HOST, "main")
        page.click("Lift fence…", "main")
        page.click("Lift fence", "dialog")
        page.wait_for("Done", "dialog")
        page.click("Close", "dialog")
        page.wait_without("fenced", ".facts")
        self.assertFalse(self.host()["fenced"])
        self.assert_no_problems()

    def test_fence_shows_each_proof_as_it_comes_in(self):
        self.open_host()
        self.tgtd.pause()
        self.begin_fence()
        self.browser.wait_for("In progress", "dialog")
        self.browser.wait_for("pending", "dialog table")
        self.assertNotIn("proved", self.browser.text("dialog"))
        self.tgtd.go_on()
        self.browser.wait_for("proved", "dialog table")
        self.browser.wait_for("Done", "dialog")

    def test_fence_with_other_name_is_not_sent(self):
        self.open_host()
        self.begin_fence(typed="compute-2")
        is_valid = self.browser.run("return document.querySelector('dialog form').checkValidity()")
        self.assertFalse(is_valid)
        self.assertFalse(self.host()["fenced"])
        self.assertEqual(2, len(self.attachments()))

    def test_drain_and_resume_change_host(self):
        page, _attached = self.browser, self.open_host()
        page.click("Drain…", "main")
        page.type("reason", "new mainboard")
        page.check("detach", "all")
        page.click("Drain", "dialog")
        page.wait_for("2 attached", "dialog")
        page.click("Close", "dialog")
        page.wait_for("reason: new mainboard", "main")
        page.wait_for("No agent has made it", "main")
        self.assertEqual("new mainboard", self.host()["drain"]["reason"])
        page.click("Resume…", "main")
        page.click("Resume", "dialog")
        page.wait_for("Done", "dialog")
        page.click("Close", "dialog")
        page.wait_without("drained", ".facts")
        self.assertIsNone(self.host()["drain"])

    def test_error_is_shown_as_api_says_it(self):
        page, attached = self.browser, self.open_host()
        _volume, attachment = attached[0]
        page.run("location.hash = arguments[0]", f"#/attachments/{attachment}")
        page.click("Detach…", "main")
        page.wait_for("Detach the volume?", "dialog")
        self.api.request_json("DELETE", f"/attachments/{attachment}")
        answer = self.api.request("DELETE", f"/attachments/{attachment}")
        page.click("Detach", "dialog")
        page.wait_for("Not done", "dialog")
        page.wait_for(answer.message, "dialog")

    def test_keyboard_alone_opens_and_leaves_dialog_and_detaches(self):
        page, attached = self.browser, self.open_host()
        volume, attachment = attached[0]
        page.run("location.hash = arguments[0]", f"#/attachments/{attachment}")
        page.wait_for("Host has access", ".timeline")
        self.assertEqual("H1", page.run("return document.activeElement.tagName"))
        self.focus_by_tab("Detach…")
        page.press(ENTER)
        page.wait_for("Detach the volume?", "dialog")
        self.assertEqual("Cancel", self.focused())
        page.press(ESCAPE)
        self.assertFalse(page.run("return document.querySelector('dialog').open"))
        self.assertEqual("Detach…", self.focused())
        page.press(ENTER)
        page.press(TAB)
        self.assertEqual("Detach", self.focused())
        page.press(ENTER)
        page.wait_for("Done", "dialog")
        self.assertEqual("Close", self.focused())
        page.press(ENTER)
        page.wait_for("Detached", "#announcements")
        self.assertEqual("available", self.api.status(volume))

    def focused(self):
        return self.browser.run("return document.activeElement.innerText").strip()

    def focus_by_tab(self, label):
        for _ in range(30):
            if self.focused() == label:
                return
            self.browser.press(TAB)
        self.fail(f"{label} is not reached")
