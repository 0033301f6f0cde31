# SPDX-License-Identifier: Apache-2.0
"""A manager that serves other storage under the name of a backend that has volumes."""

import unittest

from attachd.tests.fixtures import lifetime, processes
from attachd.tests.fixtures.deployments import AllInOne
from attachd.tests.fixtures.http_client import Client
from attachd.tests.selection import full_only

HOST = {"host": "here"}


@full_only("deployments")
class OtherStorageTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.base = lifetime.temp_dir(self)
        self.state = self.base / "state"
        self.plain = self.base / "plain.conf"

    def configure(self, folder):
        text = f"[file]\nfile_loop_devices = never\nfile_folder = {self.base / folder}\n"
        self.plain.write_text(text)

    def start(self, folder):
        self.configure(folder)
        process = AllInOne(self, self.state, f"--config-file={self.plain}")
        return process, Client(f"{process.url}/v3", version="volume 3.71, attachd 1.0")

    def manage(self, *arguments):
        files = [f"--config-file={self.state / 'all-in-one.conf'}", f"--config-file={self.plain}"]
        line = [processes.script("attachd-manage"), *files, *arguments]
        return processes.run(line, env=processes.environment())

    def test_missing_volume_is_not_detached_but_by_force(self):
        _process, api = self.start("own")
        volume = api.create_volume()
        body = {"attachment": {"volume_uuid": volume, "connector": HOST}}
        attachment = api.request_json("POST", "/attachments", body)["attachment"]["id"]
        (file,) = self.base.glob(f"own/**/volumes/{volume}")
        hidden = file.rename(self.base / "hidden")
        answer = api.request("DELETE", f"/attachments/{attachment}")
        self.assertIn(f"has no volume {volume}", f"{answer.body}")
        self.assertEqual(1, len([*self.base.glob("own/exports/*/*")]))
        hidden.rename(file)
        api.request_json("DELETE", f"/attachments/{attachment}")
        attachment = api.request_json("POST", "/attachments", body)["attachment"]["id"]
        file.rename(hidden)
        api.request_json("DELETE", f"/attachments/{attachment}?force=true")
        self.assertEqual([], [*self.base.glob("own/exports/*/*")])

    def test_nothing_is_proved_by_a_manager_with_other_storage(self):
        process, api = self.start("own")
        attachments = {}
        for _ in range(3):
            volume = api.create_volume()
            body = {"attachment": {"volume_uuid": volume, "connector": HOST}}
            made = api.request_json("POST", "/attachments", body)["attachment"]
            attachments[made["id"]] = volume
        self.assertEqual(0, process.end())

        process, api = self.start("other")
        (service,) = api.request_json("GET", "/os-services")["services"]
        self.assertEqual("down", service["state"], service)
        for attachment, volume in attachments.items():
            for query in ("", "?force=true"):
                answer = api.request("DELETE", f"/attachments/{attachment}{query}")
                self.assertEqual(503, answer.status, answer.body)
                self.assertIn("serves other storage", f"{answer.body}")
            api.request_json("GET", f"/attachments/{attachment}")
            self.assertNotEqual("available", api.status(volume))
        audit = self.manage("audit", "--repair")
        self.assertEqual(2, audit.returncode, audit.stdout)
        self.assertIn("attachd-manage storage accept file", audit.stderr)
        self.assertEqual(0, process.end())
        self.assertEqual(3, len([*self.base.glob("own/exports/*/*")]))

        process, api = self.start("own")
        for attachment, volume in attachments.items():
            api.request_json("DELETE", f"/attachments/{attachment}?force=true")
            self.assertEqual("available", api.status(volume))
        self.assertEqual(0, process.end())

        self.configure("other")
        accepted = self.manage("storage", "accept", "file")
        self.assertIn("was", accepted.stdout, accepted.stderr)
        _process, api = self.start("other")
        api.create_volume()
