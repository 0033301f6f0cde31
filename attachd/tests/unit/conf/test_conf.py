# SPDX-License-Identifier: Apache-2.0
"""Reading, setting and listing of all options."""

from pathlib import Path
import re
import subprocess
import sys
import tempfile
import unittest

from oslo_config import types

from attachd import conf
from attachd.conf import opts

_TIME = re.compile(r"(_time|_timeout|_interval|_ttl|_delay|_seconds|_lifetime|retry_after)$")
_SIZE = re.compile(r"size|gigabytes|bytes|memory|limit$")


def all_options():
    """Yield each option of attachd and its drivers, with the name of its group."""
    for group, options in opts.list_opts():
        for option in options:
            yield group.name, option


def numeric_options():
    for group, option in all_options():
        if isinstance(option.type, types.Integer | types.Float):
            yield group, option


class RegistrationTest(unittest.TestCase):
    """Registration of the options."""

    def test_default_options_are_read_without_group(self):
        self.assertEqual("/var/lib/attachd", conf.CONF.state_path)
        self.assertNotIn("DEFAULT", conf.CONF)

    def test_other_options_are_read_through_their_group(self):
        for group in conf.GROUPS[1:]:
            for option in group.OPTIONS:
                self.assertEqual(option.default, conf.CONF[group.GROUP][option.dest])

    def test_configuration_file_sets_options_of_all_groups(self):
        lines = ["[DEFAULT]", "enabled_backends = one,two"]
        lines += ["[manager]", "workers = 7", "[rpc]", "max_calls = 3", "[api]", "max_limit = 5"]
        code = (
            "import sys; from attachd.conf import CONF; CONF(sys.argv[1:]); "
            "print(CONF.enabled_backends, CONF.manager.workers, CONF.rpc.max_calls, "
            "CONF.api.max_limit)"
        )
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "attachd.conf"
            file.write_text("\n".join(lines))
            command = [sys.executable, "-W", "ignore", "-c", code, "--config-file", str(file)]
            read = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        self.assertEqual("['one', 'two'] 7 3 5", read.strip())


class OptionsTest(unittest.TestCase):
    """Documentation of the options."""

    def test_options_have_help(self):
        for group in conf.GROUPS:
            for option in group.OPTIONS:
                self.assertRegex(option.help or "", r"^[A-Z`].*\.$", option.name)

    def test_help_of_durations_names_unit(self):
        for group, option in numeric_options():
            if _TIME.search(option.dest):
                self.assertIn("second", option.help.lower(), f"[{group}]{option.dest}")

    def test_help_of_sizes_names_unit(self):
        for group, option in numeric_options():
            if _SIZE.search(option.dest):
                unit = r"bytes|[KMG]iB|items|How many \w+"
                self.assertRegex(option.help, unit, f"[{group}]{option.dest}")

    def test_numbers_have_minimum(self):
        for group, option in numeric_options():
            self.assertIsNotNone(option.type.min, f"[{group}]{option.dest}")

    def test_help_of_options_without_default_mentions_none(self):
        for group, option in all_options():
            if option.default is None and option.sample_default is None:
                self.assertRegex(option.help, r"\bNone\b", f"[{group}]{option.dest}")

    def test_host_option_has_sample_default(self):
        (host,) = (option for option in conf.base.OPTIONS if option.name == "host")
        self.assertIsNotNone(host.sample_default)
