# SPDX-License-Identifier: Apache-2.0
"""Subsystems of nvmet: hosts, ports, damage that audits find."""

from attachd import exception
from attachd.tests.fixtures import lifetime
from attachd.tests.unit.drivers.lvm import case

FIRST, SECOND = case.export("1"), case.export("2")


def host_of(export):
    return export.connector["nqn"]


def key(export, number=1):
    """Return the key of a host, as "nvme gen-dhchap-key" makes one."""
    return f"DHHC-1:01:{host_of(export)[-1] * 47}{number}:"


class NvmetTest(case.LvmCase):
    TARGET = "nvmet"

    def setUp(self):
        super().setUp()
        self.nvmet = self.driver()
        self.nvmet.create(case.VOLUME)
        self.root = self.tree.root / "nvmet"

    def grant(self, *exports):
        return [self.nvmet.grant(case.VOLUME, export) for export in exports]

    def subsystem(self, export):
        host = export.connector["nqn"]
        name = self.nvmet.target._name(case.VOLUME.id, host)
        return self.root / "subsystems" / name

    def test_hosts_have_own_subsystems_of_one_volume(self):
        infos = self.grant(FIRST, SECOND)
        self.assertNotEqual(*(info["data"]["target_nqn"] for info in infos))
        self.assertEqual({case.VOLUME.id}, {info["data"]["vol_uuid"] for info in infos})
        for export in (FIRST, SECOND):
            subsystem = self.subsystem(export)
            allowed = self.tree.list(subsystem / "allowed_hosts")
            self.assertEqual([export.connector["nqn"]], allowed)
            self.assertEqual("0", self.tree.read(subsystem / "attr_allow_any_host"))

    def test_readers_are_refused_with_reason(self):
        reader = case.export("1", "ro")
        error = self.assertRaises(exception.BackendError, self.grant, reader)
        self.assertTrue(error.final)
        self.assertIn("cannot keep a host from writing", f"{error}")
        self.assertEqual([], list(self.nvmet.list_exports()))

    def test_revoke_disables_namespace_first_and_keeps_other_host(self):
        self.grant(FIRST, SECOND)
        changes = []
        for name in ("_write", "_remove", "_unlink"):
            original = getattr(self.tree, name)
            setattr(
                self.tree,
                name,
                lambda path, *more, call=original: (changes.append(path), call(path, *more)),
            )
        self.nvmet.revoke(case.VOLUME, FIRST, [SECOND])
        self.assertEqual("enable", changes[0].name)
        self.assertEqual([], [path for path in changes if self.subsystem(SECOND) in path.parents])
        self.assert_as_expected(self.nvmet, SECOND)

    def test_portals_for_multipath_are_all_linked(self):
        portals = [self.portal, self.portal.replace("127.0.0.1", "127.0.0.2")]
        self.nvmet = self.driver(lvm_portals=portals)
        (info,) = self.grant(FIRST)
        expected = [[*portal.split(":"), "tcp"] for portal in portals]
        self.assertEqual(expected, info["data"]["portals"])
        links = self.root.glob("ports/*/subsystems/*")
        self.assertEqual(2, len(list(links)))

    def test_port_of_other_backend_is_shared(self):
        other = self.new_driver()
        other.target.backend = "other"
        other.setup()
        self.assertEqual(1, len(self.tree.list(self.root / "ports")))

    def test_port_that_was_interrupted_is_completed(self):
        (port,) = (self.root / "ports").iterdir()
        (port / "addr_trsvcid").write_text("\n")
        self.grant(FIRST)
        self.assertEqual([port.name], self.tree.list(self.root / "ports"))
        self.assert_as_expected(self.nvmet, FIRST)

    def test_host_of_other_volume_stays(self):
        self.nvmet.create(case.COPY)
        self.nvmet.grant(case.COPY, FIRST)
        self.grant(FIRST)
        self.nvmet.revoke(case.VOLUME, FIRST, [])
        self.assertEqual([FIRST.connector["nqn"]], self.tree.list(self.root / "hosts"))
        self.nvmet.revoke(case.COPY, FIRST, [])
        self.assertEqual([], self.tree.list(self.root / "hosts"))

    def test_portal_that_is_taken_at_grant_names_option(self):
        self.tree.refused_portal = self.portal
        error = self.assertRaises(exception.BackendError, self.grant, FIRST)
        self.assertRegex(f"{error}", "lvm_portals.*in use")

    def test_extension_is_notified(self):
        self.grant(FIRST)
        self.nvmet.extend(case.VOLUME, 2, [FIRST])
        revalidate = self.subsystem(FIRST) / "namespaces" / "1" / "revalidate_size"
        self.assertEqual("1", self.tree.read(revalidate))

    def test_damage_is_listed_and_repaired(self):
        self.grant(FIRST, SECOND)
        subsystem = self.subsystem(FIRST)
        (port,) = (self.root / "ports").iterdir()
        other = self.root / "hosts" / SECOND.connector["nqn"]
        for damage in (
            lambda: (subsystem / "attr_allow_any_host").write_text("1\n"),
            lambda: self.tree.link(subsystem / "allowed_hosts" / other.name, other),
            lambda: (subsystem / "namespaces" / "1" / "enable").write_text("0\n"),
            lambda: self.tree.remove(port / "subsystems" / subsystem.name),
            lambda: self.tree.remove(subsystem / "allowed_hosts" / FIRST.connector["nqn"]),
        ):
            damage()
            self.nvmet.revoke_all_except(case.VOLUME, [FIRST, SECOND])
            (listed,) = self.nvmet.list_volume_exports(case.VOLUME)
            self.assertNotIn("all hosts", listed.holders)
            self.grant(FIRST, SECOND)
            self.assert_as_expected(self.nvmet, FIRST, SECOND)
            allowed = self.tree.list(subsystem / "allowed_hosts")
            self.assertEqual([FIRST.connector["nqn"]], allowed)


class HostKeysTest(NvmetTest):
    """Hosts that have to have a key."""

    def setUp(self):
        super().setUp()
        self.file = lifetime.temp_dir(self) / "keys"
        self.write_keys(FIRST, SECOND)
        self.nvmet = self.driver(lvm_host_keys=f"{self.file}")

    def write_keys(self, *exports, number=1, mode=0o600):
        lines = [f"{host_of(export)} {key(export, number)}\n" for export in exports]
        self.file.write_text("".join(["# keys\n", *lines]))
        self.file.chmod(mode)

    def stored(self, export):
        return self.tree.read(self.root / "hosts" / host_of(export) / "dhchap_key")

    def test_host_gets_its_key_before_it_is_allowed(self):
        changes = []
        for name in ("_write", "_link"):
            original = getattr(self.tree, name)
            setattr(
                self.tree,
                name,
                lambda path, other, call=original: (changes.append(path.name), call(path, other)),
            )
        self.grant(FIRST)
        self.assertEqual(key(FIRST), self.stored(FIRST))
        self.assertLess(changes.index("dhchap_key"), changes.index(host_of(FIRST)))
        self.assertTrue(self.nvmet.promises.per_host_access)
        self.assertFalse(self.new_driver().promises.per_host_access)

    def test_host_without_key_gets_nothing(self):
        self.write_keys(SECOND)
        error = self.assertRaises(exception.BackendError, self.grant, FIRST)
        self.assertRegex(f"{error}", f"lvm_host_keys.*no key for {host_of(FIRST)}.*config.json")
        self.assertNotIn("DHHC", f"{error}")
        self.assertEqual([], self.tree.list(self.subsystem(FIRST) / "allowed_hosts"))

    def test_changed_key_is_damage_that_next_grant_repairs(self):
        self.grant(FIRST)
        self.write_keys(FIRST, number=2)
        (listed,) = self.nvmet.list_volume_exports(case.VOLUME)
        self.assertNotIn(listed, self.nvmet.expected_exports(case.VOLUME, [FIRST]))
        self.grant(FIRST)
        self.assertEqual(key(FIRST, 2), self.stored(FIRST))
        self.assert_as_expected(self.nvmet, FIRST)

    def test_kernel_without_keys_is_refused_at_start(self):
        self.tree.attributes_missing = frozenset({"dhchap_key"})
        self.assert_setup_refused("NVME_TARGET_AUTH", lvm_host_keys=f"{self.file}")
        self.assertEqual([], self.tree.list(self.root / "hosts"))
