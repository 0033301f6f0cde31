# SPDX-License-Identifier: Apache-2.0
"""attachd-manage audit as people type it."""

import json
from pathlib import Path
import tempfile
import unittest

from attachd.db import migration
from attachd.tests import commands, databases


class CommandTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.command = commands.Command.of_class(cls, "attachd-manage", "attachd.cmd.manage")

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        databases.use_empty(self, "sqlite")
        migration.upgrade()
        url = databases.CONF.database.connection
        self.file = Path(folder.name) / "attachd.conf"
        self.configuration = (
            f"[DEFAULT]\nstate_path = {folder.name}\nenabled_backends = files\n"
            f"[database]\nconnection = {url}\n"
            "[files]\ndriver = file\nfile_loop_devices = never\n"
        )
        self.volumes = Path(folder.name) / "files" / "volumes"

    def run_audit(self, *arguments, more=""):
        self.file.write_text(self.configuration + more, encoding="utf-8")
        done = self.command.run("--config-file", self.file, "audit", *arguments)
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, done.stdout, done.stderr

    def test_an_empty_deployment_is_clean_and_a_stray_file_is_not(self):
        self.assertEqual((0, "", ""), self.run_audit())
        (self.volumes / "stray").write_bytes(b"data")
        code, out, _error = self.run_audit("--repair", "--backend", "files", "--format", "json")
        ((difference,),) = [each["differences"] for each in json.loads(out)]
        self.assertEqual((1, "data-without-volume"), (code, difference["kind"]))
        self.assertEqual(b"data", (self.volumes / "stray").read_bytes())

    def test_what_cannot_be_compared_is_not_called_clean(self):
        for arguments, more, text in (
            (["--backend", "other"], "", "not in enabled_backends: other"),
            ([], "[DEFAULT]\nenabled_backends =\n", "nothing to compare"),
            ([], "[files]\nfile_folder = /proc/nowhere\n", "is down"),
            ([], "[database]\nconnection = sqlite:////nonexistent/x\n", "unable to open"),
        ):
            code, out, error = self.run_audit(*arguments, more=more)
            self.assertEqual((2, ""), (code, out), error)
            self.assertIn(text, error)
