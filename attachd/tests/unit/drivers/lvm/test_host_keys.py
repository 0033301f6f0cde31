# SPDX-License-Identifier: Apache-2.0
"""The file with the keys of hosts; test_nvmet.py has what is done with them."""

from attachd.drivers.lvm.host_keys import HostKeys
from attachd.tests.fixtures import lifetime
from attachd.tests.unit.drivers.lvm import case

NQN = "nqn.2026-01.test:1"
KEY = f"DHHC-1:00:{'a' * 47}=:"


class HostKeysTest(case.LvmCase):
    TARGET = "nvmet"

    def setUp(self):
        super().setUp()
        self.file = lifetime.temp_dir(self) / "keys"
        self.options = {"lvm_host_keys": f"{self.file}"}

    def write(self, text, mode=0o600):
        self.file.write_text(text)
        self.file.chmod(mode)

    def test_lines_have_nqn_and_key(self):
        self.write(f"# keys\n\n{NQN}  {KEY}\n")
        self.assertEqual({NQN: KEY}, HostKeys(f"{self.file}").read())

    def test_no_file_requires_no_keys(self):
        keys = HostKeys()
        self.assertFalse(keys.are_required)
        self.assertEqual({}, keys.read())

    def test_bad_files_are_refused_at_start(self):
        self.assert_setup_refused("lvm_host_keys.*cannot be read", **self.options)
        self.write(f"{NQN} {KEY}\n", mode=0o644)
        self.assert_setup_refused("lvm_host_keys.*readable by all users", **self.options)
        for line in (f"{NQN} secret", NQN, f"{NQN} {KEY} more"):
            self.write(f"{line}\n")
            self.assert_setup_refused("lvm_host_keys.*in line 1", **self.options)

    def test_lio_is_refused_with_keys(self):
        self.write(f"{NQN} {KEY}\n")
        options = {**self.options, "lvm_target": "lio"}
        self.assert_setup_refused("lvm_host_keys is for lvm_target nvmet", **options)
