# SPDX-License-Identifier: Apache-2.0
"""The driver template as a distribution of its own, and the certificates of the documentation."""

from importlib import metadata
import json
from pathlib import Path
import re
import shutil
import sys
import unittest

from attachd.tests.contract import certificate
from attachd.tests.fixtures import lifetime, processes
from attachd.tests.selection import full_only

TEMPLATE = processes.ROOT / "driver-template"
CERTIFICATES = processes.ROOT / "doc" / "source" / "contributor" / "certificates"


@full_only("guides")
class TemplateTest(unittest.TestCase):
    """What an author of a driver does first."""

    def setUp(self):
        super().setUp()
        if not TEMPLATE.is_dir():
            self.skipTest("the template is not here, only what is installed")
        self.folder = lifetime.temp_dir(self)

    def install(self, change=lambda _source: None):
        source, site = self.folder / "source", self.folder / "site"
        shutil.copytree(TEMPLATE, source)
        change(source)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        command += ["--no-build-isolation", "--target", str(site), str(source)]
        processes.check_output(command)
        return site

    def certify(self, site, driver="folder"):
        command = [sys.executable, "-m", "attachd.tests.contract", driver]
        for kind in ("json", "rst"):
            command += [f"--{kind}", f"{self.folder / 'certificate'}.{kind}"]
        return processes.run(command, env=processes.environment(PYTHONPATH=f"{site}"))

    def test_installed_template_gets_certificate_by_one_command(self):
        done = self.certify(self.install())
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        found = json.loads((self.folder / "certificate.json").read_text())["Folder"]
        passed = {name for name, entry in found.items() if entry["result"] == "passed"}
        self.assertEqual({certificate.METHODS, "clone", "audit"}, passed)
        self.assertEqual("not declared", found["session_end"]["result"])
        page = (self.folder / "certificate.rst").read_text()
        self.assertIn("   * - ``clone``\n     - passed\n", page)
        counts = len(found["clone"]["passed"]), len(found["clone"]["skipped"])
        table = dict(
            re.split(r" {2,}", line, maxsplit=1) for line in done.stdout.splitlines()[:-1]
        )
        self.assertEqual("passed ({} passed, {} skipped)".format(*counts), table["clone"])
        self.assertEqual("-", table["session_end"])
        self.assertRegex(table["tests"], "^[0-9]+ passed, 0 failed, [0-9]+ skipped$")
        self.assertRegex(done.stdout, r"\n[0-9]+ s\n$")

    def test_template_with_false_promise_fails(self):
        def promise(source):
            driver = Path(source / "attachd_folder" / "driver.py")
            text = driver.read_text()
            lie = 'VENDOR = "Example"\n    promises = base.Promises(session_end=True)'
            driver.write_text(text.replace('VENDOR = "Example"', lie))

        done = self.certify(self.install(promise))
        self.assertEqual(1, done.returncode, done.stdout)
        self.assertRegex(done.stdout, "(?m)^session_end +failed [(].*1 failed")
        self.assertIn("test_revoke_ends_session_that_is_open", done.stderr)
        self.assertIn("Folder: PromisesTest.test_promises_are_consistent", done.stderr)

    def test_unknown_driver_is_refused(self):
        done = self.certify(self.folder, "missing")
        self.assertEqual(2, done.returncode)
        self.assertIn("No driver 'missing' is installed", done.stderr)


class CertificatesTest(unittest.TestCase):
    """The documentation shows what the suite finds."""

    drivers: tuple[str, ...] = ("fake",)

    def test_certificates_of_documentation_are_true(self):
        if not CERTIFICATES.is_dir():
            self.skipTest("the documentation is not here, only what is installed")
        page = CERTIFICATES.with_name("driver-certificates.rst").read_text()
        for driver in self.drivers:
            with self.subTest(driver):
                self.assertIn(f".. include:: certificates/{driver}.inc\n", page)
                found = certificate.certify(certificate.find_tests(driver))
                methods = [entries[certificate.METHODS] for entries in found.values()]
                if not all(entry["passed"] for entry in methods):
                    self.skipTest(f"{driver}: {methods}")
                self.assertTrue(certificate.has_passed(found), found)
                shown = (CERTIFICATES / f"{driver}.inc").read_text()
                self.assertEqual(
                    certificate.to_rst(found),
                    shown,
                    f"python -m attachd.tests.contract {driver} "
                    f"--rst doc/source/contributor/certificates/{driver}.inc",
                )


@full_only("guides")
class LongCertificatesTest(CertificatesTest):
    """The same, of all of attachd's drivers."""

    drivers = tuple(
        sorted(
            entry.name
            for entry in metadata.entry_points(group="attachd.drivers")
            if entry.module.startswith("attachd.")
        )
    )
