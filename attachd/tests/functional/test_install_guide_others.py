# SPDX-License-Identifier: Apache-2.0
"""Tests of the variants in the installation guide: PostgreSQL, loop devices, HAProxy."""

import os
from pathlib import Path
import re
import shlex
import shutil
import subprocess
import sys
import unittest
import uuid

import sqlalchemy as sa

from attachd.tests.fixtures import guides, lifetime, processes, requirements, systemd_units
from attachd.tests.fixtures.processes import ROOT
from attachd.tests.selection import full_only

GUIDE = ROOT / "doc/source/admin/install.rst"
HIGH_AVAILABILITY = ROOT / "doc/source/admin/high-availability.rst"
UNIT = ROOT / "etc/systemd/attachd-manager.service"

_LOOP = """\
import os, sys
from pathlib import Path
from attachd.drivers import loop
file = Path(sys.argv[1])
file.write_bytes(b"x" * 2**20)
with file.open("r+b") as opened:
    made = loop.attach(opened.fileno(), file, "rw")
try:
    Path(made.path).open("r+b").close()
    os.truncate(file, 2**21)
    loop.refresh(made)
finally:
    loop.detach(file)
print(Path("/proc/self/status").read_text())
"""


@full_only("guides")
class PostgresqlTest(unittest.TestCase):
    """Typed for a database and a role of another name, at the server that tests use."""

    def setUp(self):
        super().setUp()
        self.psql = requirements.require_tool(self, "psql")
        self.server = sa.engine.make_url(requirements.require_server(self, "postgresql"))
        self.name = f"attachd_test_{uuid.uuid4().hex[:12]}"
        self.blocks = [
            parse_block
            for parse_block in guides.parse_blocks(GUIDE)
            if parse_block.readers == "postgresql"
        ]
        self.addCleanup(self.run_sql, f"DROP ROLE IF EXISTS {self.name}")
        self.addCleanup(self.run_sql, f"DROP DATABASE IF EXISTS {self.name}")

    def run_sql(self, statement):
        url = self.server.set(drivername="postgresql")
        processes.check_output(
            [self.psql, "-q", url.render_as_string(hide_password=False), "-c", statement]
        )

    def type(self, block):
        for command in block.commands:
            words = shlex.split(command.replace("\\\n", " "))
            self.assertEqual(["runuser", "-u", "postgres", "--", "psql", "-c"], words[:-1])
            self.run_sql(re.sub(r"\battachd\b", self.name, words[-1]))

    def left(self):
        engine = sa.create_engine(self.server, poolclass=sa.NullPool)
        with engine.connect() as connection:
            names = "SELECT datname FROM pg_database UNION SELECT rolname FROM pg_roles"
            found = connection.exec_driver_sql(names).scalars().all()
        return self.name in found

    def test_install_guide_with_postgresql_works(self):
        make, option, remove = self.blocks
        self.type(make)
        url = option.text.partition(" = ")[2].strip()
        existing = "//attachd:DB_SECRET@127.0.0.1:5432/attachd"
        local = f"//{self.name}:DB_SECRET@{self.server.host}:{self.server.port}/{self.name}"
        self.assertIn(existing, url)
        processes.check_output(
            [processes.script("attachd-manage"), "db", "sync"],
            env=processes.environment(OS_DATABASE__CONNECTION=url.replace(existing, local)),
        )
        self.assertTrue(self.left())
        self.type(remove)
        self.assertFalse(self.left())


@full_only("guides")
class LoopDevicesTest(unittest.TestCase):
    def test_install_guide_loop_devices_need_one_capability(self):
        requirements.require_root(self)
        requirements.share_mounts(self)
        requirements.require_device(self, "/dev/loop-control")
        setpriv = requirements.require_tool(self, "setpriv")
        folder = lifetime.temp_dir(self)
        drop_ins = folder / f"{UNIT.name}.d"
        drop_ins.mkdir()
        shutil.copy(UNIT, folder)
        shutil.copy(UNIT.with_name(drop_ins.name) / "loop-devices.conf", drop_ins)
        unit = systemd_units.read_unit(folder / UNIT.name)
        self.assertEqual(["root"], unit["User"][-1:])
        self.assertEqual(["CAP_SYS_ADMIN"], unit["CapabilityBoundingSet"])
        self.assertEqual("no", unit["PrivateDevices"][-1])
        file = lifetime.temp_dir(self) / "file"
        rights = ["--bounding-set=-all,+sys_admin", "--inh-caps=-all", "--no-new-privs"]
        said = processes.check_output(
            [setpriv, *rights, sys.executable, "-P", "-c", _LOOP, str(file)],
            env=processes.environment(PYTHONPATH=os.fspath(ROOT)),
        )
        self.assertRegex(said, r"CapEff:\s+0000000000200000")
        backing = Path("/sys/block").glob("loop*/loop/backing_file")
        self.assertNotIn(str(file), [item.read_text().strip() for item in backing])


@full_only("guides")
class HaproxyTest(unittest.TestCase):
    def test_install_guide_haproxy_example_is_valid(self):
        haproxy = requirements.require_tool(self, "haproxy")
        openssl = requirements.require_tool(self, "openssl")
        folder = lifetime.temp_dir(self)
        key, certificate, both = (folder / name for name in ("key", "certificate", "pem"))
        made = (openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
        named = ("-subj", "/CN=volumes.example.org", "-keyout", key, "-out", certificate)
        subprocess.run([*made, *named], check=True, capture_output=True)
        both.write_bytes(certificate.read_bytes() + key.read_bytes())
        (block,) = (
            parse_block
            for parse_block in guides.parse_blocks(HIGH_AVAILABILITY)
            if parse_block.readers == "haproxy"
        )
        existing = "/etc/haproxy/volumes.example.org.pem"
        self.assertIn(existing, block.text)
        file = folder / "haproxy.cfg"
        file.write_text(f"global\n    maxconn 10\n\n{block.text.replace(existing, str(both))}")
        processes.check_output([haproxy, "-c", "-f", file])
