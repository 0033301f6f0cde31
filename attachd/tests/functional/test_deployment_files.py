# SPDX-License-Identifier: Apache-2.0
"""Tests of the files in etc/ for systemd, nginx, logrotate and containers, with these tools."""

from collections.abc import Iterator
from http import server
import os
from pathlib import Path
import queue
import re
import shlex
import shutil
import subprocess
import sys
import threading
import tomllib
import unittest

import requests
import testtools

from attachd.docker_volume.command import SOCKET
from attachd.tests.fixtures import guides, lifetime, processes, requirements, systemd_units
from attachd.tests.fixtures.processes import ROOT
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT

ETC = ROOT / "etc"
GUIDE = ROOT / "doc/source/admin/install.rst"

_LOGGING = """\
import logging, sys
from attachd import service
service.prepare([])
log = logging.getLogger("attachd")
for line in sys.stdin:
    log.warning("said %s", line.strip())
    print("written", flush=True)
"""

_NGINX = """\
daemon off;
pid {folder}/pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/attachd.conf;
}}
"""


def run(*command: str) -> str:
    done = processes.run(command)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


class UnitsTest(unittest.TestCase):
    EXPOSURE = (
        ("attachd-api", 20),
        ("attachd-csi-controller", 20),
        ("attachd-manager", 20),
        ("attachd-tgtd", 35),
    )
    """The exposure level of a unit by systemd, in tenths; 100 is the maximum."""

    def test_systemd_units_restrict_privileges(self):
        analyze = requirements.require_tool(self, "systemd-analyze")
        for name, limit in self.EXPOSURE:
            with self.subTest(name):
                # Without its drop-ins, which are tested one by one.
                file = shutil.copy(ETC / "systemd" / f"{name}.service", lifetime.temp_dir(self))
                run(analyze, "security", "--offline=yes", f"--threshold={limit}", file)

    def test_systemd_units_have_only_known_settings(self):
        analyze = requirements.require_tool(self, "systemd-analyze")
        units = ETC / "systemd"
        for file in sorted([*units.glob("*.service"), *units.glob("*.socket")]):
            with self.subTest(file.name):
                said = processes.run([analyze, "verify", "--man=no", str(file)]).stderr
                ours = [line for line in said.splitlines() if file.name in line]
                # The commands are there once attachd is installed.
                wrong = [line for line in ours if "is not executable" not in line]
                self.assertEqual([], wrong)


class DockerFilesTest(unittest.TestCase):
    def test_engines_and_systemd_have_socket_of_plugin(self):
        unit = systemd_units.read_unit(ETC / "systemd/attachd-docker-volume.socket")
        spec = (ETC / "docker/plugins/attachd.spec").read_text()
        podman = (ETC / "containers/containers.conf.d/attachd.conf").read_text()
        self.assertEqual([f"{SOCKET}"], unit["ListenStream"])
        self.assertEqual(f"unix://{SOCKET}\n", spec)
        plugins = tomllib.loads(podman)["engine"]["volume_plugins"]
        self.assertEqual({"attachd": f"{SOCKET}"}, plugins)


class DropInsTest(unittest.TestCase):
    """The unit of the manager with each of its drop-ins."""

    def setUp(self):
        super().setUp()
        self.analyze = requirements.require_tool(self, "systemd-analyze")
        self.drop_ins = sorted((ETC / "systemd" / "attachd-manager.service.d").glob("*.conf"))
        self.assertNotEqual([], self.drop_ins)

    def unit_with(self, drop_in: Path) -> Path:
        """Return a copy of the unit beside this drop-in alone."""
        unit = lifetime.temp_dir(self) / drop_in.parent.stem
        folder = unit.with_name(drop_in.parent.name)
        folder.mkdir()
        shutil.copy(drop_in, folder)
        return Path(shutil.copy(drop_in.parents[1] / unit.name, unit))

    def test_drop_ins_have_only_known_settings(self):
        for drop_in in self.drop_ins:
            with self.subTest(drop_in.name):
                unit = f"{self.unit_with(drop_in)}"
                said = processes.run([self.analyze, "verify", "--man=no", unit]).stderr
                self.assertEqual([], [line for line in said.splitlines() if drop_in.name in line])

    def test_units_with_drop_ins_restrict_privileges(self):
        for drop_in in self.drop_ins:
            with self.subTest(drop_in.name):
                unit = f"{self.unit_with(drop_in)}"
                run(self.analyze, "security", "--offline=yes", "--threshold=30", unit)

    def calls(self, name: str) -> Iterator[str]:
        """List the system calls of a group."""
        if not name.startswith("@"):
            yield name
            return
        for line in run(self.analyze, "syscall-filter", name).splitlines()[1:]:
            if (member := line.strip()) and not member.startswith("#"):
                yield from self.calls(member)

    def test_drop_in_for_nfs_permits_calls_of_mount(self):
        unit = self.unit_with(ETC / "systemd" / "attachd-manager.service.d" / "nfs.conf")
        rules = systemd_units.read_unit(unit)["SystemCallFilter"]
        permitted: set[str] = set()
        for rule in rules:
            calls = {call for name in rule.strip("~").split() for call in self.calls(name)}
            permitted = permitted - calls if rule.startswith("~") else permitted | calls
        # As strace shows them, of mount(8), mount.nfs(8) and umount(8).
        self.assertLessEqual({"mount", "umount2", "setuid", "setgid", "bind"}, permitted)
        self.assertEqual(set(), permitted & {"chroot", "pivot_root", "init_module"})


class LogrotateTest(unittest.TestCase):
    def test_logrotate_makes_a_running_process_use_the_new_file(self):
        requirements.require_root(self)
        logrotate = requirements.require_tool(self, "logrotate")
        folder = lifetime.temp_dir(self)
        logs = folder / "log"
        logs.mkdir(mode=0o750)
        text = (ETC / "logrotate.d/attachd").read_text().replace("/var/log/attachd", f"{logs}")
        settings = folder / "settings"
        # The account of the guide is not on this machine.
        settings.write_text(text.replace("su attachd attachd", "su root root"))
        settings.chmod(0o644)
        rotate = (logrotate, f"--state={folder / 'state'}", str(settings))
        log = logs / "manager.log"
        process = subprocess.Popen(
            [sys.executable, "-c", _LOGGING],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=processes.environment(
                HOME=str(folder),
                ATTACHD_CONFIG_FILES="/dev/null",
                # As the guide's drop-in has it.
                OS_DEFAULT__LOG_FILE=str(log),
            ),
            text=True,
        )
        self.addCleanup(process.communicate)

        def say(word: str) -> None:
            process.stdin.write(f"{word}\n")
            process.stdin.flush()
            self.assertEqual("written\n", process.stdout.readline())

        say("one")
        self.assertNotIn("error", run(rotate[0], "--debug", *rotate[1:]))
        run(rotate[0], "--force", *rotate[1:])
        say("two")
        self.assertIn("said one", (logs / "manager.log.1").read_text())
        self.assertNotIn("said one", log.read_text())
        self.assertIn("said two", log.read_text())


class Backend(server.ThreadingHTTPServer):
    """What nginx is in front of.

    :ivar events: sent one by one; "" ends the stream
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Upstream)
        self.events: queue.Queue[str] = queue.Queue()


class Upstream(server.BaseHTTPRequestHandler):
    """Returns the request; of events, one now and the next on demand."""

    protocol_version = "HTTP/1.1"
    server: Backend

    def do_GET(self) -> None:
        if self.path.endswith("/events"):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for event in iter(self.server.events.get, ""):
                data = f"data: {event}\n\n".encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        else:
            self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("X-Length", f"{len(body)}")
        self.send_header("X-Connection", f"{self.client_address[1]}")
        for name in ("Host", "X-Forwarded-Proto", "X-Forwarded-For"):
            self.send_header(f"X-Seen-{name}", self.headers[name] or "")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        pass


@full_only("deployments")
class NginxTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        nginx = requirements.require_tool(self, "nginx")
        openssl = requirements.require_tool(self, "openssl")
        self.folder = lifetime.temp_dir(self)
        # nginx's workers are not root, and keep large bodies there.
        self.folder.chmod(0o755)
        self.upstream = Backend()
        self.addCleanup(self.upstream.server_close)
        threading.Thread(target=self.upstream.serve_forever, daemon=True).start()
        self.addCleanup(self.upstream.shutdown)
        self.certificate = self.folder / "certificate.pem"
        run(
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", f"{self.folder / 'key.pem'}", "-out", str(self.certificate)),
        )
        port = processes.free_port()
        text = (ETC / "nginx/attachd.conf").read_text()
        for existing, local in (
            ("127.0.0.1:8776", f"127.0.0.1:{self.upstream.server_port}"),
            ("listen 443", f"listen 127.0.0.1:{port}"),
            ("volumes.example.org", "localhost"),
            ("/etc/ssl/attachd", f"{self.folder}"),
            ("/var/log/nginx", f"{self.folder}"),
        ):
            self.assertIn(existing, text)
            text = text.replace(existing, local)
        (self.folder / "attachd.conf").write_text(text)
        main = self.folder / "nginx.conf"
        main.write_text(_NGINX.format(folder=self.folder))
        run(nginx, "-t", "-c", str(main))
        self.nginx = processes.Process(self, nginx, "-c", str(main))
        self.url = f"https://localhost:{port}"
        self.session = requests.Session()
        self.addCleanup(self.session.close)
        self.session.trust_env = False
        self.session.verify = str(self.certificate)
        retries = requests.adapters.Retry(total=60, backoff_factor=0.1, backoff_max=1)
        self.session.mount("https://", requests.adapters.HTTPAdapter(max_retries=retries))

    def test_nginx_keeps_connections_open_and_passes_bodies(self):
        first = self.session.get(f"{self.url}/v3/", timeout=TIMEOUT)
        body = b"x" * (2**20 + 2**18)
        second = self.session.post(f"{self.url}/v3/", data=body, timeout=TIMEOUT)
        self.assertEqual(f"{len(body)}", second.headers["X-Length"])
        self.assertEqual(first.headers["X-Connection"], second.headers["X-Connection"])
        self.assertEqual("https", second.headers["X-Seen-X-Forwarded-Proto"])
        self.assertEqual("127.0.0.1", second.headers["X-Seen-X-Forwarded-For"])
        larger = self.session.post(f"{self.url}/v3/", data=b"x" * 2**22, timeout=TIMEOUT)
        self.assertEqual(413, larger.status_code)

    def test_nginx_replaces_forwarding_headers_of_clients(self):
        said = {"X-Forwarded-For": "192.0.2.99"}
        answer = self.session.get(f"{self.url}/v3/", headers=said, timeout=TIMEOUT)
        self.assertEqual("127.0.0.1", answer.headers["X-Seen-X-Forwarded-For"])

    def test_nginx_passes_events_without_delay(self):
        for path in ("/v3/events", "/v3/0123/events"):
            self.upstream.events.put("first")
            with self.session.get(self.url + path, stream=True, timeout=TIMEOUT) as answer:
                lines = answer.iter_lines()
                # The second is only sent when the first has come.
                self.assertEqual(b"data: first", next(lines))
                self.upstream.events.put("second")
                self.assertEqual([b"", b"data: second"], [next(lines), next(lines)])
                self.upstream.events.put("")
                self.assertEqual([b""], list(lines))


class ContainerTest(unittest.TestCase):
    """No image is built here: that takes an engine and a registry."""

    INSTRUCTIONS = frozenset(
        {"FROM", "RUN", "COPY", "WORKDIR", "ENV", "USER", "EXPOSE", "STOPSIGNAL", "CMD"}
    )

    def setUp(self):
        super().setUp()
        text = (ETC / "container/Containerfile").read_text().replace("\\\n", " ")
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        self.lines = [tuple(line.split(maxsplit=1)) for line in lines]

    def test_container_file_has_two_stages(self):
        words = [word for word, _rest in self.lines]
        self.assertLessEqual(set(words), self.INSTRUCTIONS)
        self.assertEqual(2, words.count("FROM"))
        self.assertEqual(
            ("USER", "attachd"), [line for line in self.lines if line[0] == "USER"][-1]
        )

    def test_container_file_copies_existing_files(self):
        for word, rest in self.lines:
            if word == "COPY" and not rest.startswith("--from"):
                self.assertTrue((ROOT / rest.split()[0]).exists(), rest)

    def test_container_runs_the_commands_of_the_guide(self):
        typed = {
            " ".join(command.replace("\\\n", " ").split())
            for block in guides.parse_blocks(GUIDE)
            if block.language == "console"
            for command in block.commands
        }
        packages = {
            word for item in typed if item.startswith("apt install") for word in item.split()
        }
        runs = [rest for word, rest in self.lines if word == "RUN"]
        alike = [item.replace(" --no-cache-dir", "") for item in runs if "apt-get" not in item]
        alike = [item for item in alike if not item.startswith("install -d")]
        self.assertEqual(3, len(alike))
        self.assertLessEqual(set(alike), typed)
        pattern = r"apt-get install --no-install-recommends -y ([\w -]+?) +(?:&&|$)"
        found = re.findall(pattern, "\n".join(f"{item} &&" for item in runs))
        wanted = {word for item in found for word in item.split()}
        # An image has no systemd.
        self.assertEqual({"systemd-standalone-sysusers"}, wanted - packages)

    def test_container_runs_its_script(self):
        (command,) = (rest for word, rest in self.lines if word == "CMD")
        self.assertEqual('["attachd-api"]', command)
        self.assertIn(("COPY", "etc/container/attachd-api /usr/local/bin/attachd-api"), self.lines)

    def _typed(self, configuration):
        """Run the script of the container; return how it would run uWSGI."""
        folder = lifetime.temp_dir(self)
        (folder / "attachd.conf").write_text(configuration)
        (folder / "uwsgi").write_text('#!/bin/sh\necho uwsgi "$@"\n')
        (folder / "uwsgi").chmod(0o755)
        environment = processes.environment(ATTACHD_CONFIG_FILES=str(folder / "attachd.conf"))
        environment["PATH"] = f"{folder}:{environment['PATH']}"
        done = processes.run([ETC / "container/attachd-api"], env=environment)
        self.assertEqual(0, done.returncode, done.stderr)
        return shlex.split(done.stdout)

    def test_container_command_equals_that_of_the_unit(self):
        unit = (ETC / "systemd/attachd-api.service").read_text()
        (line,) = re.findall(r"^ExecStart=/opt/attachd/bin/(.*)$", unit, re.MULTILINE)
        for strategy, address in (("keystone", "0.0.0.0"), ("noauth", "127.0.0.1")):
            with self.subTest(strategy):
                expected = shlex.split(line.replace("127.0.0.1", address))
                found = self._typed(f"[api]\nauth_strategy = {strategy}\n")
                self.assertEqual(expected, found)


class PackagesTest(unittest.TestCase):
    def test_install_guide_packages_are_those_of_bindep(self):
        bindep = (ROOT / "bindep.txt").read_text()
        known = {line.split()[0] for line in bindep.splitlines() if "[" in line}
        for block in guides.parse_blocks(GUIDE):
            for command in block.commands if block.language == "console" else ():
                words = command.replace("\\\n", " ").split()
                if words[:2] == ["apt", "install"]:
                    self.assertLessEqual(set(words[2:]), known)

    def test_source_archive_has_all_of_etc(self):
        manifest = (ROOT / "MANIFEST.in").read_text().splitlines()
        self.assertIn("graft etc", manifest)
        for text in ("attachd/config-generator.conf", "attachd/policy-generator.conf"):
            self.assertTrue((ETC / text).is_file())
        self.assertTrue(os.access(ETC / "nginx/attachd.conf", os.R_OK))
        self.assertTrue(Path(ETC / "systemd/attachd-manager.service.d").is_dir())


class ShellTest(unittest.TestCase):
    def test_shell_scripts_are_all_checked_by_tox(self):
        listed = (ROOT / "tox.ini").read_text()
        scripts = [*ROOT.glob("devstack/*"), *ROOT.glob("attachd/tests/**/*.sh"), ROOT / ".ci/run"]
        scripts += [*ROOT.glob("tools/*.sh"), ROOT / "etc/container/attachd-api"]
        for script in scripts:
            if script.suffix != ".rst":
                self.assertIn(str(script.relative_to(ROOT)), listed)
