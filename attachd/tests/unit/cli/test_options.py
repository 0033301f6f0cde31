# SPDX-License-Identifier: Apache-2.0
"""Options of the commands for this host: spellings, defaults and refused values."""

import argparse
import contextlib
import io
import os
import unittest
from unittest import mock

from attachd.agent import journal
from attachd.cli import options


def parsed(definitions, *words):
    parser = argparse.ArgumentParser()
    options.add(parser, definitions)
    return parser.parse_args(words)


class SpellingTest(unittest.TestCase):
    def test_options_of_two_words_accept_hyphen_and_underscore(self):
        for definitions in (options.ATTACH, options.DETACH, options.GET_CONNECTOR):
            for option in definitions:
                names = set(option.names)
                for name in names:
                    if "-" in name.lstrip("-"):
                        self.assertIn("--" + name[2:].replace("-", "_"), names)

    def test_attach_options_are_parsed(self):
        for words, name, value in (
            (["--mountpoint", "/mnt/disk"], "mountpoint", "/mnt/disk"),
            (["--mkfs", "ext4"], "mkfs", "ext4"),
            (["--mode", "ro"], "mode", "ro"),
            (["--multipath", "True"], "multipath", True),
            (["--multipath", "false"], "multipath", False),
            (["--multipath"], "multipath", True),
            (["--enforce-multipath", "True"], "enforce_multipath", True),
            (["--enforce_multipath", "True"], "enforce_multipath", True),
            (["--enforce_multipath"], "enforce_multipath", True),
            (["--nic", "eth1"], "nic", "eth1"),
            (["--hostname", "node1"], "hostname", "node1"),
            (["--initiator", "iqn.2026-01.example:1"], "initiator", "iqn.2026-01.example:1"),
            (["--connector-type", "user-space"], "connector_type", "user-space"),
            (["--state-path", "/var/x"], "state_path", "/var/x"),
            (["--state_path", "/var/x"], "state_path", "/var/x"),
        ):
            with self.subTest(words=words):
                found = parsed(options.ATTACH, "data", *words)
                self.assertEqual(value, getattr(found, name))
                self.assertEqual("data", found.volume)

    def test_detach_options_are_parsed(self):
        device = '{"path": "/dev/sdb", "type": "block"}'
        for words, name, value in (
            (["--attachment-id", "a"], "attachment_id", "a"),
            (["--attachment_id", "a"], "attachment_id", "a"),
            (["--attachment-uuid", "a"], "attachment_id", "a"),
            (["--attachment_uuid", "a"], "attachment_id", "a"),
            (["--device-info", device], "device_info", {"path": "/dev/sdb", "type": "block"}),
            (["--device_info", device], "device_info", {"path": "/dev/sdb", "type": "block"}),
            (["--multipath", "True"], "multipath", True),
            (["--enforce_multipath", "True"], "enforce_multipath", True),
            (["--enforce-multipath", "True"], "enforce_multipath", True),
            (["--force"], "force", True),
        ):
            with self.subTest(words=words):
                found = parsed(options.DETACH, "data", *words)
                self.assertEqual(value, getattr(found, name))

    def test_attach_options_have_defaults(self):
        found = vars(parsed(options.ATTACH, "data"))
        self.assertEqual(
            {
                "volume": "data",
                "mountpoint": None,
                "mkfs": None,
                "assume_empty": False,
                "allow_filesystem": [],
                "mount_options": "",
                "grow_fs": False,
                "mode": "rw",
                "multipath": False,
                "enforce_multipath": False,
                "nic": None,
                "hostname": None,
                "initiator": None,
                "connector_type": "auto",
                "state_path": None,
            },
            found,
        )

    def test_relative_mountpoint_is_resolved_against_working_directory(self):
        found = parsed(options.ATTACH, "data", "--mountpoint", "disk")
        self.assertEqual(os.path.join(os.getcwd(), "disk"), found.mountpoint)  # noqa: PTH109, PTH118


class RefusalTest(unittest.TestCase):
    def test_invalid_value_is_refused_with_name_of_option(self):
        for definitions, words, names in (
            (options.ATTACH, ["--mode", "rx"], "--mode"),
            (options.ATTACH, ["--multipath", "perhaps"], "--multipath"),
            (options.ATTACH, ["--enforce_multipath", "perhaps"], "--enforce-multipath"),
            (options.ATTACH, ["--mkfs", "ext4 -F"], "--mkfs"),
            (options.ATTACH, ["--mkfs", "../ext4"], "--mkfs"),
            (options.ATTACH, ["--mountpoint", ""], "--mountpoint"),
            (options.ATTACH, ["--connector-type", "magic"], "--connector-type"),
            (options.DETACH, ["--device-info", "{"], "--device-info"),
            (options.DETACH, ["--device-info", "[]"], "--device-info"),
            (options.DETACH, ["--attachment-id"], "--attachment-id"),
        ):
            with self.subTest(words=words):
                said = io.StringIO()
                with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as ended:
                    parsed(definitions, "data", *words)
                self.assertEqual(2, ended.exception.code)
                self.assertIn(f"argument {names}", said.getvalue())


class StateDirTest(unittest.TestCase):
    def test_state_path_is_read_from_environment(self):
        with mock.patch.dict(os.environ, {options.STATE_PATH_VARIABLE: "/var/x"}):
            self.assertEqual("/var/x", options.host_state_path())

    def test_state_path_without_environment_is_default(self):
        with mock.patch.dict(os.environ):
            os.environ.pop(options.STATE_PATH_VARIABLE, None)
            self.assertEqual(str(journal.DEFAULT_STATE_PATH), options.host_state_path())
