# SPDX-License-Identifier: Apache-2.0
"""That every option can be read, set and found by the generator of samples."""

from pathlib import Path
import subprocess
import sys
import tempfile
import unittest

from attachd import conf


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

    def test_the_machines_name_does_not_get_into_the_sample(self):
        (host,) = (each for each in conf.base.OPTIONS if each.name == "host")
        self.assertIsNotNone(host.sample_default)
