# SPDX-License-Identifier: Apache-2.0
"""Tests that the forked commands of fixtures/cli_commands.py behave as the real ones."""

from pathlib import Path
import unittest

from attachd.tests.fixtures import cli_commands, lifetime, processes
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT


@full_only("clients")
class CommandsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)
        self.real = processes.environment()["PATH"]
        self.path = cli_commands.command_path(self)

    def said(self, path, command, **variables):
        done = processes.run(
            ["bash", "-c", command],
            env=processes.environment(PATH=path, HOME=str(self.folder), **variables),
            cwd=self.folder,
            timeout=2 * TIMEOUT,
        )
        return done.returncode, done.stdout, done.stderr

    def assert_alike(self, expected, command, **variables):
        real = self.said(self.real, command, **variables)
        self.assertEqual(expected, real[0], real)
        self.assertEqual(real, self.said(self.path, command, **variables))

    def test_forked_commands_precede_installed_ones_in_path(self):
        _status, said, _wrong = self.said(self.path, "command -v attachd openstack cinder")
        folders = {Path(word).parent for word in said.split()}
        self.assertEqual(1, len(folders))
        self.assertNotIn(Path(processes.script("cinder")).parent, folders)

    def test_forked_commands_have_the_same_output_and_exit_code(self):
        self.assert_alike(0, "openstack volume set --help")
        self.assert_alike(2, "openstack volume nonsense")
        self.assert_alike(1, "openstack volume show 'a b' ''")
        self.assert_alike(0, "cinder help reset-state")
        self.assert_alike(2, "cinder nonsense")
        self.assert_alike(0, "attachd local-attach --help")
        self.assert_alike(2, "attachd nonsense")

    def test_forked_commands_use_the_callers_environment(self):
        variables = {"OS_AUTH_URL": "http://127.0.0.1:1/v3", "OS_USERNAME": "a", "COLUMNS": "50"}
        self.assert_alike(1, "openstack volume list", **variables)
        self.assert_alike(0, "cinder help list", COLUMNS="50")

    def test_forked_commands_use_the_callers_directory_and_home(self):
        command = "openstack configuration show -f value -c auth.username --os-cloud"
        local, home = self.folder / "here", self.folder / ".config" / "openstack"
        for place in (local, home):
            place.mkdir(parents=True)
            cloud = f"clouds: {{{place.name}: {{auth: {{username: me}}}}}}"
            (place / "clouds.yaml").write_text(cloud)
        self.assert_alike(0, f"{command} openstack")
        self.assert_alike(0, f"cd here; {command} here")

    def test_forked_commands_use_the_callers_output(self):
        self.assertEqual((0, "", ""), self.said(self.path, "openstack --version > out"))
        self.assertRegex((self.folder / "out").read_text(), "^openstack [0-9]")

    def test_forked_commands_keep_no_state_between_calls(self):
        self.said(self.path, "openstack volume list", OS_AUTH_URL="http://127.0.0.1:1/v3")
        self.assertNotIn("127.0.0.1", self.said(self.path, "openstack volume list")[2])
