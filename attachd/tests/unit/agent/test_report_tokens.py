# SPDX-License-Identifier: Apache-2.0
"""The file of tokens; the protocol is tested in unit/db/agents/test_machines.py."""

import json
from pathlib import Path
import unittest
from unittest import mock

from attachd import exception
from attachd.agent import report_tokens
from attachd.agent.report_tokens import ReportTokens, read_machine_id
from attachd.tests.fixtures.lifetime import temp_dir


class ReportTokensTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = temp_dir(self) / "state"
        self.file = self.folder / "attachments" / "report.token"
        self.clock = 100.0
        self.enterContext(mock.patch.object(report_tokens, "monotonic", lambda: self.clock))

    def tokens(self, host="node-1"):
        made = ReportTokens(self.folder, host)
        made.store()
        return made

    def read(self):
        return json.loads(self.file.read_text())

    def test_token_is_stored_for_root_alone_before_it_is_sent(self):
        token = self.tokens().take()
        expected = {"host": "node-1", "start": 1, "previous": None, "next": token["next"]}
        self.assertEqual(expected, self.read())
        self.assertEqual(0o600, self.file.stat().st_mode & 0o777)

    def test_token_is_replaced_when_it_was_accepted_and_not_at_each_report(self):
        tokens = self.tokens()
        first = tokens.take()
        self.clock += report_tokens.INTERVAL
        tokens.store()
        self.assertEqual(first["next"], tokens.take()["next"])
        tokens.record_accepted(first)
        tokens.store()
        second = tokens.take()
        self.assertEqual(first["next"], second["previous"])
        tokens.record_accepted(second)
        tokens.store()
        self.assertEqual(second["next"], tokens.take()["next"])
        self.clock += report_tokens.INTERVAL
        tokens.store()
        self.assertEqual(second["next"], tokens.take()["previous"])

    def test_next_process_goes_on_with_stored_tokens(self):
        first = self.tokens().take()
        second = self.tokens().take()
        self.assertEqual((2, first["next"]), (second["start"], second["next"]))
        self.assertNotEqual(first["process"], second["process"])

    def test_damaged_file_and_that_of_another_host_are_as_none(self):
        self.tokens()
        self.assertIsNone(self.tokens("node-2").take()["previous"])
        self.file.write_text("{")
        self.assertIsNone(self.tokens().take()["previous"])

    def test_first_token_that_cannot_be_stored_raises_host_error(self):
        with (
            mock.patch.object(ReportTokens, "_write", side_effect=OSError(28, "disk is full")),
            self.assertRaisesRegex(exception.HostError, "report.token cannot be .*disk is full"),
        ):
            self.tokens()

    def test_later_token_that_cannot_be_stored_leaves_the_former_one(self):
        tokens = self.tokens()
        first = tokens.take()
        tokens.record_accepted(first)
        self.clock += report_tokens.INTERVAL
        with mock.patch.object(ReportTokens, "_write", side_effect=OSError(28, "full")):
            tokens.store()
        self.assertEqual(first["next"], tokens.take()["next"])

    def test_file_that_cannot_be_read_raises_host_error(self):
        self.tokens()
        with (
            mock.patch.object(Path, "read_text", side_effect=OSError(5, "broken disk")),
            self.assertRaisesRegex(exception.HostError, "broken disk"),
        ):
            self.tokens()


class MachineIdTest(unittest.TestCase):
    def test_id_of_firmware_comes_first_unless_it_names_no_machine(self):
        folder = temp_dir(self)
        files = [folder / "uuid", folder / "id"]
        self.enterContext(mock.patch.object(report_tokens, "_MACHINE_IDS", files))
        self.assertIsNone(read_machine_id())
        files[1].write_text("3D12\n")
        self.assertEqual("3d12", read_machine_id())
        files[0].write_text("00000000-0000-0000-0000-000000000000\n")
        self.assertEqual("3d12", read_machine_id())
        files[0].write_text("AB-1\n")
        self.assertEqual("ab-1", read_machine_id())
