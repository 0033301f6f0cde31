# SPDX-License-Identifier: Apache-2.0
"""Tests of the commands attachd, openstack and cinder on a host."""

import datetime
from importlib import metadata
import json
import os
from pathlib import Path
import re
import shutil
import signal
import subprocess
import sys

import testtools
import yaml

from attachd.agent.mount import filesystems
from attachd.tests.fixtures import lifetime, processes, requirements
from attachd.tests.functional.host_cli_case import HostCliCase
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT

SOURCE = processes.ROOT / "cinderclient-ext"
UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"

# Everything is loaded as root: other users may not be able to read Python's own files.
AS_NOBODY = """\
import os, sys
from attachd.cli import app
def run(*words):
    sys.argv = ["attachd", *words]
    return app.main()
sys.stdout = open(os.devnull, "w")
assert run("local-list") == 0
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
for words in {lines}:
    print(run(*words), file=sys.stderr)
"""


def only_ours(test, site):
    """Return a path on which cinder finds our extension, and not the other one.

    :param site: the folder that has ours
    """
    if sys.version_info >= (3, 12):
        test.skipTest("cinderclient loads no extensions with this Python")
    hidden = lifetime.temp_dir(test)
    (hidden / "brick_cinderclient_ext.py").write_text("")
    return f"{hidden}{os.pathsep}{site}"


@full_only("clients")
class AttachdTest(HostCliCase):
    """The command attachd on this host."""

    def test_attachd_local_attach_restores_files_and_keeps_busy_device(self):
        requirements.require_tool(self, "mkfs.ext4")
        volume, folder = self.volume(), self.folder / "new" / "mnt"
        words = ("attach", "data", "--mountpoint", "new/mnt")
        shown = json.loads(self.local(*words, "--mkfs", "ext4", "-f", "json"))
        self.assertEqual(volume, shown["volume_id"])
        self.assertEqual(f"{folder}", shown["mountpoint"])
        self.assertTrue(Path(shown["path"]).is_block_device())
        self.assertEqual(shown["path"], shown["device"]["path"])
        (folder / "letter").write_text("kept")

        (row,) = self.rows(self.local("list", "-f", "json"))
        self.assertEqual(
            {
                "Name": "data",
                "Volume ID": volume,
                "Attachment ID": shown["attachment_id"],
                "Device": shown["path"],
                "Mountpoint": f"{folder}",
                "Mode": "rw",
                "Step": "attached",
                "Present": True,
                "Status": "attached",
                "Growth": None,
                "Error": None,
            },
            row,
        )
        self.assertEqual("in-use", self.status(volume))

        with (folder / "letter").open():
            said = self.local("detach", "data", code=1)
            self.assertIn(f"process {os.getpid()}", said)
            self.assertEqual(1, len(said.splitlines()), said)
        self.assertTrue(self.mounted(folder))
        self.assertEqual("in-use", self.status(volume))

        self.assertEqual("", self.local("detach", "data"))
        self.assertFalse(folder.parent.exists())
        self.assertEqual("available", self.status(volume))
        self.assertEqual({}, self.attachments(volume))
        self.assertEqual("", self.local("list", "-f", "value"))

        self.local(*words, "--mode", "ro")
        self.assertEqual("kept", (folder / "letter").read_text())
        with self.assertRaises(OSError):
            (folder / "letter").write_text("changed")
        self.local("detach", volume)

    def test_attachd_local_list_watch_prints_changes(self):
        words = ("local-list", "--watch", "-f", "value", "-c", "Name", "-c", "Step")
        watch = subprocess.Popen(
            [processes.script("attachd"), *words],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(watch.communicate)
        self.addCleanup(watch.kill)
        self.volume()
        self.local("attach", "data")
        steps = iter(watch.stdout.readline, "data attached\n")
        self.assertEqual(set(), {step.split()[0] for step in steps if step.strip()} - {"data"})
        watch.send_signal(signal.SIGINT)
        _out, error = watch.communicate(timeout=TIMEOUT)
        self.assertEqual((130, ""), (watch.returncode, error))
        self.local("detach", "data")

    def test_attachd_host_doctor_reports_missing_service(self):
        rows = self.rows(self.attachd("host-doctor", "-f", "json"))
        self.assertEqual({"ok", "not used"}, {row["Result"] for row in rows})
        elsewhere = ("--os-endpoint", "http://127.0.0.1:1/v3")
        words = (processes.script("attachd"), "host-doctor", "-f", "json", *elsewhere)
        done = processes.run(words, env=self.environment)
        missing = [row["Missing"] for row in json.loads(done.stdout) if row["Result"] == "missing"]
        self.assertEqual(1, done.returncode)
        self.assertRegex("".join(missing), r"\ANo Block Storage API answers at http://127.0.0.1:1")

    def test_attachd_attachment_delete_keeps_what_this_host_has(self):
        volume = self.volume()
        self.local("attach", "data")
        (attachment,) = self.attachments(volume)
        said = self.attachd("attachment-delete", attachment, code=1)
        self.assertRegex(said, "is attached to this host .*local-detach.*--force")
        self.assertEqual("in-use", self.status(volume))
        self.local("detach", "data")

    def test_attachd_local_detach_with_several_attachments_requires_an_id(self):
        volume = self.create_multiattach_volume()
        ours = json.loads(self.local("attach", volume, "-f", "json"))["attachment_id"]
        made = self.attachd(
            *("attachment-create", volume, "--connect", "True", "--host", self.name),
            *("-f", "value", "-c", "attachment_id"),
        )
        other = made.strip()
        self.attachd("attachment-complete", other)
        said = self.local("detach", volume, code=1)
        for item in (ours, other):
            self.assertIn(item, said)
        self.assertEqual({ours, other}, set(self.attachments(volume)))
        self.local("detach", volume, "--attachment_uuid", ours)
        self.assertEqual({other}, set(self.attachments(volume)))
        self.local("detach", volume, "--attachment-id", other)
        self.assertEqual("available", self.status(volume))

    def test_attachd_local_attach_with_mkfs_refuses_large_volume_with_few_bytes(self):
        requirements.require_tool(self, "mkfs.ext4")
        volume = self.volume(size=5)
        path = Path(json.loads(self.local("attach", "data", "-f", "json"))["path"])
        with path.open("r+b") as device:
            device.seek(2 * 2**30 + 5000)
            device.write(b"data")
        self.local("detach", "data")
        words = ("attach", "data", "--mkfs", "ext4")
        self.assertRegex(self.local(*words, code=1), r"carries data \(at byte 21474")
        self.assertEqual({}, self.attachments(volume))
        path = json.loads(self.local(*words, "--assume-empty", "-f", "json"))["path"]
        self.assertEqual("ext4", filesystems.get_type(path))

    def test_attachd_local_attach_with_missing_tools_reserves_nothing(self):
        volume = self.volume()
        (self.folder / "mnt").mkdir()
        words = ("attach", volume, "--mountpoint", "mnt", "--mkfs", "ext99")
        self.assertIn("mkfs.ext99", self.local(*words, code=1))
        lines = [["local-attach", volume], ["local-detach", volume], ["get-connector"]]
        command = (sys.executable, "-c", AS_NOBODY.format(lines=lines))
        done = processes.run(command, env=self.environment)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(["1", "1", "1"], re.findall(r"(?m)^\d$", done.stderr))
        self.assertIn("lacks: the rights of root (run it with sudo).\n", done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual({}, self.attachments(volume))
        self.assertEqual("available", self.status(volume))

    def test_attachd_errors_are_one_line_and_bash_completes(self):
        for said in (
            self.local("attach", "nothing", code=1),
            # The command as it is installed.
            self.run_command(
                processes.script("attachd"), "local-list", "--os-cloud", "no", code=1
            ),
            self.attachd("attachment-list", "--os-endpoint", "http://127.0.0.1:1/v3", code=1),
        ):
            self.assertEqual(1, len(said.splitlines()), said)

        script = 'eval "$(attachd complete)"; declare -F _attachd; complete -p attachd'
        said = self.run_command("bash", "-c", script)
        self.assertEqual(["_attachd", "complete -F _attachd attachd"], said.splitlines())


@full_only("clients")
class AttachmentsTest(HostCliCase):
    """The commands on attachments against a real API."""

    def test_attachd_attachment_commands_cycle_works(self):
        volume = self.volume()
        made = self.attachd("attachment-create", "data")
        attachment = re.search(rf"\| attachment_id +\| ({UUID}) +\|", made)[1]
        self.assertIn("| reserved ", made)
        shown = self.attachd("attachment-update", attachment, "--host", self.name)
        self.assertRegex(shown, rf"\| attachment_id +\| {attachment} +\|")
        self.assertRegex(shown, rf"\| volume_id +\| {volume} +\|")
        self.assertRegex(shown, r"\| access_mode +\| rw +\|")
        self.attachd("attachment-complete", attachment)

        first = json.loads(self.attachd("attachment-show", attachment, "-f", "json"))
        self.assertEqual(("attached", "local"), (first["status"], first["driver_volume_type"]))
        self.assertEqual((self.name, None), (first["attached_host"], first["error"]))
        self.assertEqual(
            first, yaml.safe_load(self.attachd("attachment-show", attachment, "-f", "yaml"))
        )
        shell = self.attachd("attachment-show", attachment, "-f", "shell")
        self.assertIn('status="attached"\n', shell)
        value = self.attachd("attachment-show", attachment, "-f", "value", "-c", "status")
        self.assertEqual("attached\n", value)

        for words, found in (
            (["--volume-id", volume], True),
            (["--status", "attached", "--all-projects"], True),
            (["--status", "reserved"], False),
            (["--limit", "1"], True),
            (["--marker", attachment], False),
            (["--older-than", "0s", "--unchanged-for", "0s"], True),
            (["--older-than", "9d", "--status", "attached"], False),
            (["--agent", "node1"], False),
            (["--host", "nowhere", "--all-projects"], False),
        ):
            listed = self.attachd("attachment-list", *words, "-f", "value", "-c", "ID")
            self.assertEqual(f"{attachment}\n" if found else "", listed, words)
        csv = self.attachd("attachment-list", "--long", "-f", "csv")
        self.assertIn(f'"{attachment}","{volume}","","attached","data"', csv)

        said = self.attachd("attachment-delete", attachment, attachment, code=1)
        self.assertEqual(1, len(said.splitlines()), said)
        self.assertEqual("available", self.status(volume))

    def test_attachd_attachment_options_of_attachd_work(self):
        volume = self.volume()
        made = self.attachd("attachment-create", "data", "--expires-in", "1h", "-f", "json")
        attachment = json.loads(made)["attachment_id"]
        shown = self.attachd("attachment-show", attachment, "-f", "value", "-c", "expires_at")
        expires = datetime.datetime.fromisoformat(shown.strip()).replace(tzinfo=datetime.UTC)
        self.assertGreater(expires, datetime.datetime.now(datetime.UTC))
        words = ("--connect", "--host", self.name, "--dry-run", "-f", "json")
        asked = self.attachd("attachment-create", "data", *words)
        dry_run = json.loads(asked)
        self.assertIs(False, dry_run["possible"], dry_run)
        self.assertEqual([attachment], [item["id"] for item in dry_run["holders"]])
        self.assertIn(attachment, dry_run["reasons"][0]["message"])
        self.attachd("attachment-update", attachment, "--host", self.name)
        self.attachd("attachment-delete", attachment, "--force", "--override-reason", "it is off")
        self.assertEqual("available", self.status(volume))

    def test_attachd_lists_show_all_pages(self):
        volume = self.create_multiattach_volume()
        ids = [self.reserve(volume) for _ in range(3)]
        listed = self.attachd("attachment-list", "-f", "value", "-c", "ID").split()
        self.assertEqual(ids[::-1], listed)
        self.attachd("attachment-delete", *ids)
        self.assertEqual({}, self.attachments(volume))

    def test_attachd_agent_list_shows_agents_that_never_reported(self):
        self.volume()
        configuration = f"--config-file={self.folder / 'state' / 'all-in-one.conf'}"
        self.run_command("attachd-manage", configuration, "agent", "add", "node1")
        listed = self.attachd("agent-list", "-f", "value", "-c", "Host", "-c", "State")
        self.assertEqual("node1 new\n", listed)
        shown = json.loads(self.attachd("agent-show", "node1", "-f", "json"))
        self.assertEqual(("node1", []), (shown["host"], shown["devices"]))
        said = self.attachd("attachment-create", "data", "--on", "node1", code=1)
        self.assertIn("has not reported yet", said)
        self.attachd("agent-delete", "node1")
        said = self.attachd("attachment-create", "data", "--on", "node1", code=1)
        self.assertIn("No agent of host node1 is known", said)
        self.assertEqual("", self.attachd("attachment-list", "-f", "value"))

    def reserve(self, volume):
        made = self.attachd("attachment-create", volume, "-f", "value", "-c", "attachment_id")
        return made.strip()


@full_only("clients")
class OpenStackTest(HostCliCase):
    """The plug-in of the command openstack."""

    def openstack(self, *words, code=0):
        return self.run_command("openstack", "volume", *words, code=code)

    def test_openstack_local_attach_cycle_works(self):
        volume = self.volume()
        shown = json.loads(self.openstack("local", "attach", "data", "-f", "json"))
        self.assertTrue(Path(shown["path"]).is_block_device())
        listed = self.openstack("local", "list", "-f", "value", "-c", "Volume ID")
        self.assertEqual(f"{volume}\n", listed)
        self.openstack("local", "detach", "data")
        self.assertEqual("available", self.status(volume))
        shown = json.loads(self.openstack("connector", "show", "-f", "json"))
        self.assertIs(False, shown["multipath"])
        self.assertIn("--mode", self.openstack("local", "attach", "data", "--mode", "x", code=2))


@full_only("clients")
class CinderTest(HostCliCase):
    """The extension of the command cinder."""

    def test_cinder_local_attach_cycle_works(self):
        volume, path = self.volume(), only_ours(self, SOURCE)
        shown = self.cinder(
            *("local-attach", "data", "--hostname", self.name, "--multipath", "False"),
            *("--enforce_multipath", "False", "--mode", "rw"),
            PYTHONPATH=path,
        )
        device = re.search(r"\| path +\| (\S+) +\|", shown)[1]
        self.assertTrue(Path(device).is_block_device())
        self.assertIn(volume, self.cinder("local-list", PYTHONPATH=path))
        (attachment,) = self.attachments(volume)
        self.cinder(
            *("local-detach", "data", "--attachment_uuid", attachment, "--hostname", self.name),
            PYTHONPATH=path,
        )
        self.assertEqual("available", self.status(volume))
        said = self.cinder("local-detach", "data", PYTHONPATH=path, code=1)
        self.assertRegex(said, r"\AERROR: Volume .* is not attached to this host")
        self.assertIn("multipath", self.cinder("get-connector", PYTHONPATH=path))


@full_only("clients")
class ExtensionTest(testtools.TestCase):
    """What cinder does with the extension, of which there may be several."""

    def cinder(self, *command, path):
        """Run it; return its exit code and output."""
        done = processes.run(
            command, env=processes.environment(PYTHONPATH=path, HOME=f"{lifetime.temp_dir(self)}")
        )
        return done.returncode, done.stdout + done.stderr

    def commands(self, path):
        code, said = self.cinder(processes.script("cinder"), "help", path=path)
        self.assertEqual(0, code, said)
        return set(re.findall(r"(?m)^    (\S*(?:local|connector)\S*)", said))

    def test_cinderclient_extension_beside_brick_extension_gives_way(self):
        site, source = lifetime.temp_dir(self), lifetime.temp_dir(self) / "source"
        shutil.copytree(SOURCE, source)
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        install += ["--no-build-isolation", "--target", str(site), str(source)]
        processes.check_output(install)
        theirs = {"local-attach", "local-detach", "get-connector"}
        ours = {"local-grow", "local-list", "local-restore", "local-trim"}
        self.assertEqual(theirs | ours, self.commands(only_ours(self, site)))
        renamed = {f"attachd-{their}" for their in theirs}
        self.assertEqual(theirs | ours | renamed, self.commands(f"{site}"))
        for name, makes_file_systems in (("attachd-local-attach", True), ("local-attach", False)):
            _code, said = self.cinder(processes.script("cinder"), "help", name, path=f"{site}")
            self.assertIs(makes_file_systems, "--mkfs" in said, said)

    def test_cinderclient_extension_is_not_loaded_by_newer_python(self):
        newer = (
            "from importlib.machinery import FileFinder\n"
            "del FileFinder.find_module, FileFinder.find_loader\n"
            "from cinderclient.shell import main\n"
            "main()"
        )
        command = (sys.executable, "-c", newer, "help")
        code, said = self.cinder(*command, path=only_ours(self, SOURCE))
        self.assertEqual(1, code, said)
        self.assertIn("'FileFinder' object has no attribute 'find_module'", said)


@full_only("clients")
class ExamplesTest(HostCliCase):
    """The examples in the documentation."""

    def examples(self, page):
        """Return the commands of a page, in their order."""
        text = (processes.ROOT / "doc" / "source" / page).read_text()
        text = re.sub(r"\\\n\s+", "", text)
        found = re.findall(r"(?m)^ +\$ (.*)$", text)
        return [item for item in found if "[" not in item and not item.startswith("pip ")]

    def type_in(self, line):
        """Run a line, adapted to the differences between this test and a host."""
        for shown, local in (
            ("http://127.0.0.1:8776/v3", self.url),
            ("/mnt/", f"{self.folder}/"),
            ("/etc/bash_completion.d", f"{self.folder}"),
            ("/etc/zsh/attachd", f"{self.folder}/zsh"),
        ):
            line = line.replace(shown, local)
        line = re.sub(r" PROJECT\b", f" {self.noauth['OS_PROJECT_ID']}", line)
        if " ATTACHMENT" in line:
            (attachment,) = self.attachments(self.data)
            line = line.replace(" ATTACHMENT", f" {attachment}")
        # The newest one is listed first.
        for name, place in (("OLD", -1), ("NEW", 0)):
            if f" {name}" in line:
                line = line.replace(f" {name}", f" {[*self.attachments(self.data)][place]}")
        return self.run_command("bash", "-c", line)

    def test_command_reference_examples_work(self):
        self.data = self.volume("data")
        self.volume("other")
        self.volume("spare")
        # Strays of this machine may be devices of other tests: test_strays.py names its own.
        examples = self.examples("cli/attachd.rst")
        lines = [line for line in examples if not line.startswith("attachd host-strays")]
        for line in lines:
            self.type_in(line)
        self.assertIn("_attachd()", (self.folder / "attachd").read_text())
        names = {line.split()[1] for line in lines if line.startswith("attachd")}
        commands = set(metadata.entry_points(group="attachd.cli").names) | {"complete"}
        # Those on agents need one; those on other hosts have a page of their own.
        others = {name for name in commands if name.startswith(("agent-", "host-"))}
        self.assertEqual(commands - others, names - others)

    def test_local_attach_guide_examples_work(self):
        self.data = self.volume("data")
        for name in ("OS_AUTH_TYPE", "OS_ENDPOINT"):
            del self.environment[name]
        cloud = {"auth_type": "none", "auth": {"endpoint": self.url}}
        (self.folder / "clouds.yaml").write_text(json.dumps({"clouds": {"mine": cloud}}))
        for line in self.examples("user/local-attach.rst"):
            if line.startswith("export "):
                name, _, value = line.removeprefix("export ").partition("=")
                self.environment[name] = value
            else:
                self.type_in(line)
        self.assertEqual("available", self.status(self.data))

        example = processes.ROOT / "doc" / "source" / "user" / "local_attach_example.py"
        requirements.require_mount_namespaces(self)
        # Its host is this machine, whose own notes are none of our business.
        local = 'mount -t tmpfs tmpfs /var/lib && exec "$@"'
        said = self.run_command(
            *(requirements.require_tool(self, "unshare"), "--mount", "sh", "-c", local, "-"),
            *(sys.executable, f"{example}", "data", f"{self.folder / 'data'}"),
        )
        self.assertIn(f"{self.data} attached\n", said)
        self.assertEqual("available", self.status(self.data))
        self.local("attach", "data", "--mountpoint", "data", "--mode", "ro")
        self.assertEqual("kept", (self.folder / "data" / "letter").read_text())
        self.local("detach", "data")
