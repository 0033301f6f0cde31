# SPDX-License-Identifier: Apache-2.0
"""The command attachd-manage storage."""

from attachd.db.cluster import storages
from attachd.tests.fixtures import databases, forked_command, lifetime


class StorageTest(forked_command.ForkedCommandCase):
    def setUp(self):
        super().setUp()
        url = databases.use(self)
        folder = lifetime.temp_dir(self)
        self.file = folder / "attachd.conf"
        self.file.write_text(
            "[DEFAULT]\nenabled_backends = disk\nhost = here\n"
            f"state_path = {folder}\n[database]\nconnection = {url}\n"
            f"[disk]\ndriver = file\nfile_folder = {folder}/files\nfile_loop_devices = never\n"
        )

    def accept(self, backend):
        return self.command.run("--config-file", self.file, "storage", "accept", backend)

    def test_accept_stores_present_storage_and_names_the_former(self):
        storages.claim("here@disk", {"disk": "former", "gone": "x"})
        done = self.accept("disk")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        (present,) = storages.list_known("here@disk").values()
        self.assertEqual(
            f"Backend here@disk: pool disk was former and is {present}\n", done.stdout
        )
        self.assertIn("serves the same storage as before", self.accept("disk").stdout)
        self.assertEqual({"disk": present}, storages.list_known("here@disk"))

    def test_unknown_backend_is_an_error(self):
        done = self.accept("other")
        self.assertEqual((1, ""), (done.returncode, done.stdout))
        self.assertIn("other is not in enabled_backends", done.stderr)
