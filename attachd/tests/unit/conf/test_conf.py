# SPDX-License-Identifier: Apache-2.0
"""That every option can be read, set and found by the generator of samples."""

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


def every():
    """Give each option of ours and of our drivers, with the name of its group."""
    for group, options in opts.list_opts():
        for option in options:
            yield group.name, option


def every_number():
    for group, option in every():
        if isinstance(option.type, types.Integer | types.Float):
            yield group, option


class RegistrationTest(unittest.TestCase):
    """Where the options end up."""

    def test_the_options_for_everybody_are_read_without_a_group(self):
        self.assertEqual("/var/lib/attachd", conf.CONF.state_path)
        self.assertNotIn("DEFAULT", conf.CONF)

    def test_every_other_option_is_read_through_its_group(self):
        for group in conf.GROUPS[1:]:
            for option in group.OPTIONS:
                self.assertEqual(option.default, conf.CONF[group.GROUP][option.dest])

    def test_a_configuration_file_reaches_every_group(self):
        lines = ["[DEFAULT]", "enabled_backends = one,two"]
        lines += ["[manager]", "workers = 7", "[rpc]", "topic = t", "[api]", "max_limit = 5"]
        code = (
            "import sys; from attachd.conf import CONF; CONF(sys.argv[1:]); "
            "print(CONF.enabled_backends, CONF.manager.workers, CONF.rpc.topic, "
            "CONF.api.max_limit)"
        )
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "attachd.conf"
            file.write_text("\n".join(lines))
            command = [sys.executable, "-W", "ignore", "-c", code, "--config-file", str(file)]
            read = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        self.assertEqual("['one', 'two'] 7 t 5", read.strip())


class OptionsTest(unittest.TestCase):
    """What the administrator is told of them."""

    def test_every_option_says_what_it_is_for(self):
        for group in conf.GROUPS:
            for option in group.OPTIONS:
                self.assertRegex(option.help or "", r"^[A-Z`].*\.$", option.name)

    def test_a_time_names_its_unit(self):
        for group, option in every_number():
            if _TIME.search(option.dest):
                self.assertIn("second", option.help.lower(), f"[{group}]{option.dest}")

    def test_a_size_names_its_unit(self):
        for group, option in every_number():
            if _SIZE.search(option.dest):
                unit = r"bytes|[KMG]iB|items|How many \w+"
                self.assertRegex(option.help, unit, f"[{group}]{option.dest}")

    def test_no_number_is_without_a_lower_limit(self):
        for group, option in every_number():
            self.assertIsNotNone(option.type.min, f"[{group}]{option.dest}")

    def test_whatever_need_not_be_set_says_what_is_so_then(self):
        for group, option in every():
            if option.default is None and option.sample_default is None:
                self.assertRegex(option.help, r"\bNone\b", f"[{group}]{option.dest}")

    def test_the_machines_name_does_not_get_into_the_sample(self):
        (host,) = (each for each in conf.base.OPTIONS if each.name == "host")
        self.assertIsNotNone(host.sample_default)
