# SPDX-License-Identifier: Apache-2.0
"""Tests of doc/source/admin/install.rst, command by command, from installation to removal.

install_guide.yaml lists what the tests run instead of the printed commands, and why.
"""

import contextlib
import functools
from pathlib import Path
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import unittest
import uuid

import sqlalchemy as sa
import yaml

from attachd.tests.fixtures import (
    cli_commands,
    guides,
    keystone_fixture,
    processes,
    requirements,
    systemd_units,
)
from attachd.tests.fixtures.processes import ROOT
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

GUIDE = ROOT / "doc/source/admin/install.rst"

_FOLDERS = (
    "etc/attachd|etc/nginx|etc/ssl/attachd|etc/systemd/system|etc/sysusers.d|etc/tmpfiles.d"
    "|etc/logrotate.d|opt/attachd|usr/local/bin|run/attachd[a-z-]*|var/lib/attachd|var/log/attachd|var/log/nginx"
)

SUBSTITUTIONS = yaml.safe_load((Path(__file__).parent / "install_guide.yaml").read_text("utf-8"))

_NGINX = """\
pid {root}/run/nginx.pid;
error_log stderr;
events {{}}
http {{
    client_body_temp_path {root}/run/nginx-body;
    proxy_temp_path {root}/run/nginx-proxy;
    fastcgi_temp_path {root}/run/nginx-fastcgi;
    uwsgi_temp_path {root}/run/nginx-uwsgi;
    scgi_temp_path {root}/run/nginx-scgi;
    include {root}/etc/nginx/sites-enabled/*;
}}
"""
"""As Debian's own, as far as it matters, without anything outside of the temporary folder."""

_LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "tests", "*.egg-info", "build", "*.sample")


@full_only("guides")
class InstallGuideTest(unittest.TestCase):
    """A machine of which everything but the servers is in a folder."""

    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        requirements.share_mounts(self)
        self.tools = {
            name: requirements.require_tool(self, name)
            for name in ("nginx", "openssl", "curl", "systemd-sysusers", "systemd-tmpfiles")
        }
        self.mariadb = sa.engine.make_url(requirements.require_server(self, "mariadb"))
        self.rabbitmq = sa.engine.make_url(requirements.require_server(self, "rabbitmq"))
        self.name = f"attachd_test_{uuid.uuid4().hex[:12]}"
        # Short, since a socket is in it; and others than root have to come in.
        self.root = Path(tempfile.mkdtemp(prefix="attachd-", dir="/tmp"))
        self.root.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.root)
        self.keystone = keystone_fixture.Keystone(self)
        self.values = {
            "root": self.root,
            "name": self.name,
            "api": processes.free_port(),
            "iscsi": processes.free_port(),
            "tls": processes.free_port(),
            "keystone": self.keystone.url,
            "mariadb": f"{self.mariadb.host}:{self.mariadb.port}",
            "rabbitmq": f"{self.rabbitmq.host}:{self.rabbitmq.port}",
            "python": sys.executable,
            "install": f"{sys.executable} -m pip --python {self.root}/opt/attachd/bin/python "
            "install --quiet --no-deps --no-index --no-build-isolation",
        }
        self.sit_down()
        self.units = systemd_units.Units(self, self.root, self.account, self.variables)
        self.nginx: processes.Process | None = None
        self.addCleanup(self.remove_from_servers)
        self.make_machine()

    # What the guide finds

    def make_machine(self) -> None:
        """Make what Debian and its packages bring along, and unpack the source."""
        for folder in ("etc/nginx/sites-available", "etc/nginx/sites-enabled", "run", "var/lib"):
            (self.root / folder).mkdir(parents=True)
        for folder in ("etc/systemd/system", "etc/logrotate.d", "var/log/nginx", "usr/local/bin"):
            (self.root / folder).mkdir(parents=True)
        etc = self.root / "etc"
        (etc / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
        (etc / "group").write_text("root:x:0:\nadm:x:4:\n")
        shutil.copy("/etc/login.defs", etc)
        (etc / "nginx/nginx.conf").write_text(_NGINX.format(root=self.root))
        source = self.root / "src/attachd"
        for name in ("attachd", "etc"):
            shutil.copytree(ROOT / name, source / name, ignore=_LEFT_OUT)
        for name in ("setup.cfg", "pyproject.toml", "README.rst", "LICENSE"):
            shutil.copy(ROOT / name, source)
        for kind in ("nginx", "systemd"):
            for file in (path for path in (source / "etc" / kind).rglob("*") if path.is_file()):
                file.write_text(self.substituted(file.read_text()))
        uwsgi = source / "etc/attachd/uwsgi.ini"
        uwsgi.write_text(self.substituted(uwsgi.read_text()))

    def account(self, name: str) -> int:
        """Return the id of an account of this machine."""
        if name == "root" or not self.separate:
            return 0
        lines = (self.root / "etc/passwd").read_text().splitlines()
        (found,) = (line.split(":") for line in lines if line.startswith(f"{name}:"))
        return int(found[2])

    @functools.cached_property
    def separate(self) -> bool:
        """Whether others than root can read Python's own files here; else all runs as root."""
        words = [
            "setpriv",
            "--reuid=61234",
            "--clear-groups",
            sys.executable,
            "-c",
            "import cliff",
        ]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    # What is typed

    def sit_down(self) -> None:
        """Begin at a new terminal, as an administrator of Keystone."""
        self.variables = processes.environment(
            **self.keystone.admin.environment,
            HOME=str(self.root),
            PWD=str(self.root / "src"),
            PATH=f"{cli_commands.command_path(self)}:/usr/sbin:/sbin",
            ATTACHD_CONFIG_FILES=f"{self.root}/etc/attachd/attachd.conf",
        )

    def substituted(self, text: str) -> str:
        values = {**self.values, "as_attachd": ""}
        if (self.root / "etc/passwd").is_file() and "runuser -u attachd" in text:
            user = self.account("attachd")
            values["as_attachd"] = f"setpriv --reuid={user} --regid={user} --clear-groups -- "
        for substitution in SUBSTITUTIONS:
            pattern = substitution["printed"].replace("{folders}", _FOLDERS)
            typed = substitution["typed"]
            for key, value in values.items():
                typed = typed.replace(f"{{{key}}}", f"{value}")
            text = re.sub(pattern, typed, text, flags=re.MULTILINE)
        return text

    def server(self, command: str) -> str:
        """Return a command at a server, with another name than attachd there."""
        tool, _, rest = command.partition(" <")
        rest = rest.partition(">")[2]
        rest = re.sub(r"\battachd\b", self.name, rest)
        options = ""
        if tool == "mariadb":
            url = self.mariadb
            options = f"-h {url.host} -P {url.port} -u {url.username} -p{url.password} "
        elif tool == "psql":
            url = sa.engine.make_url(requirements.require_server(self, "postgresql"))
            url = url.set(drivername="postgresql")
            options = f"-q -d {url.render_as_string(hide_password=False)} "
        return f"{tool} {options}{rest}"

    def type(self, command: str) -> None:
        typed = self.substituted(command)
        if re.match(r"(mariadb|rabbitmqctl|psql) <", typed):
            typed = self.server(typed)
        word, *rest = typed.split()
        if word == "systemctl":
            self.control(*rest)
        elif word == "apt":
            pass  # test_packages() looks whether there are such.
        else:
            self.run_it(typed)
        if word == self.values["python"]:
            self.lend_packages()

    def run_it(self, typed: str) -> None:
        """Run a command in a shell, whose folder and variables the next one has too."""
        after = self.root / "run" / "after"
        script = f"{typed}\ncode=$?; env -0 >{after}; exit $code\n"
        done = processes.run(["bash", "-c", script], cwd=self.variables["PWD"], env=self.variables)
        said = f"{typed}\n{done.stdout}\n{done.stderr}\n{self.logs()}"
        self.assertEqual(0, done.returncode, said)
        read = after.read_text().split("\0")[:-1]
        self.variables = dict(item.split("=", 1) for item in read)

    def logs(self) -> str:
        """Return what the units have written."""
        return "\n".join(
            f"{name}:\n{item.output[-4000:]}" for name, item in self.units.running.items()
        )

    def lend_packages(self) -> None:
        """Let the new environment find the packages of this one, and copy the web server."""
        new = self.root / "opt/attachd"
        (site,) = new.glob("lib/python*/site-packages")
        (site / "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        for name in ("uwsgi", "oslo-config-generator", "oslopolicy-sample-generator"):
            script = Path(processes.script(name)).read_bytes()
            ours, theirs = sys.executable.encode(), f"{new}/bin/python".encode()
            (new / "bin" / name).write_bytes(script.replace(b"#!" + ours, b"#!" + theirs, 1))
            (new / "bin" / name).chmod(0o755)

    def control(self, *words: str) -> None:
        """Do what systemctl does."""
        if words == ("reload", "nginx"):
            self.reload_nginx()
        elif words[-1] != "tgt" and words != ("daemon-reload",):
            self.units.control(*words)

    def reload_nginx(self) -> None:
        command = [self.tools["nginx"], "-c", f"{self.root}/etc/nginx/nginx.conf"]
        if self.nginx is None:
            self.nginx = processes.Process(self, *command, "-g", "daemon off;")
            wait_until(lambda: listens(self.values["tls"]))
        else:
            subprocess.run([*command, "-s", "reload"], check=True, capture_output=True)

    # The test

    def test_install_guide_from_installation_to_removal_works(self):
        for block in guides.parse_blocks(GUIDE):
            if block.readers in {"postgresql", "container"}:
                continue
            if block.file:
                Path(self.substituted(block.file)).write_text(self.substituted(block.text))
            if block.readers == "administrator":
                self.sit_down()
            for command in block.commands if block.language == "console" else ():
                self.type(command)
                self.look_after(command)
        self.assertEqual({}, self.units.running)
        self.assertEqual(set(), self.units.enabled())
        left = [
            str(path.relative_to(self.root))
            for path in self.root.rglob("*attachd*")
            if "src" not in path.relative_to(self.root).parts
        ]
        self.assertEqual([], [path for path in left if not path.startswith("var/log/nginx")])
        self.assertNotIn("attachd", (self.root / "etc/passwd").read_text())
        self.assertNotIn("attachd", (self.root / "etc/group").read_text())
        self.assertEqual(("", ""), self.on_servers())
        # nginx is Debian's, and stays.
        self.assertEqual({"nginx"}, self.processes())
        self.assertEqual([], self.keystone.rest.get("/services?name=attachd").json()["services"])
        for name in ("alice", "attachd"):
            found = self.keystone.rest.get(f"/users?name={name}").json()["users"]
            self.assertEqual([], found)

    def look_after(self, command: str) -> None:
        """Look at what a reader would not see by the command's end alone."""
        if "attachd-manage db sync" in command:
            secret = self.root / "etc/attachd/attachd.conf"
            self.assertEqual(0o640, secret.stat().st_mode & 0o777)
        elif command.startswith("systemctl enable"):
            wait_until(lambda: listens(self.values["api"]))
            self.units.running["attachd-manager"].wait_for("(?s)Serving backend.*Serving backend")
            self.assert_units_are_in_order()
        elif command.startswith("openstack volume attachment list"):
            self.assert_hosts_are_let_in()

    def assert_units_are_in_order(self) -> None:
        analyze = requirements.require_tool(self, "systemd-analyze")
        for name in self.units.enabled():
            # Without root's own folders it warns that units which ours follow are missing.
            said = processes.run(
                [analyze, "verify", "--man=no", str(self.units.file(name))]
            ).stderr
            ours = [line for line in said.splitlines() if self.root.name in line]
            self.assertEqual([], ours, said)
        for name, process in self.units.running.items():
            status = Path(f"/proc/{process.pid}/status").read_text()
            self.assertRegex(status, rf"Uid:\s+{self.account('attachd')}\s")
            self.assertRegex(status, r"CapBnd:\s+0{16}", name)

    def assert_hosts_are_let_in(self) -> None:
        # tgtd answers only its own user.
        user = self.account("attachd")
        tgtadm = [requirements.require_tool(self, "setpriv"), f"--reuid={user}", f"--regid={user}"]
        tgtadm += ["--clear-groups", requirements.require_tool(self, "tgtadm")]
        said = processes.check_output(
            [*tgtadm, "--lld", "iscsi", "--op", "show", "--mode", "target"],
            env={"TGT_IPC_SOCKET": f"{self.root}/run/attachd-tgtd/socket"},
        )
        for initiator in ("node1", "node2"):
            self.assertIn(f"iqn.2026-01.org.example:{initiator}", said)
        (export,) = (self.root / "var/lib/attachd/disk/exports").glob("*/*")
        self.assertEqual(2**30, export.stat().st_size)

    def processes(self) -> set[str]:
        """Return the names of what runs with a path of our folder in its command line."""
        found = set()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if str(self.root).encode() in path.read_bytes():
                    found.add(path.with_name("comm").read_text().strip())
        return found

    def on_servers(self) -> tuple[str, str]:
        """Return what MariaDB and RabbitMQ have of our name."""
        engine = sa.create_engine(self.mariadb, poolclass=sa.NullPool)
        names = sa.text(
            "SELECT schema_name FROM information_schema.schemata WHERE schema_name = :name "
            "UNION SELECT user FROM mysql.user WHERE user = :name"
        )
        with engine.connect() as connection:
            found = connection.execute(names, {"name": self.name}).fetchall()
        control = requirements.require_tool(self, "rabbitmqctl")
        ask = "{rabbit_vhost:list_names(), rabbit_auth_backend_internal:list_users()}."
        said = processes.check_output([control, "eval", ask])
        return "".join(item[0] for item in found), self.name if self.name in said else ""

    def remove_from_servers(self) -> None:
        """Remove what a test that failed has left there."""
        bases, rabbit = self.on_servers()
        if bases:
            engine = sa.create_engine(self.mariadb, poolclass=sa.NullPool)
            with engine.connect() as connection:
                connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {self.name}")
                connection.exec_driver_sql(f"DROP USER IF EXISTS {self.name}@'127.0.0.1'")
        if rabbit:
            for verb in ("delete_vhost", "delete_user"):
                subprocess.run(["rabbitmqctl", verb, self.name], check=False, capture_output=True)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
