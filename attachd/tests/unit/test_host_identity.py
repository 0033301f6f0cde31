# SPDX-License-Identifier: Apache-2.0
"""Tests of the identity of hosts."""

import itertools
import re
import unittest

from attachd import host_identity
from attachd.host_identity import HostIdentity, HostIndex, is_same_host, of_connector

MACHINE = "4c4c4544-0000-1000-8000-000000000001"


def host(name, *identifiers):
    return HostIdentity(name, frozenset(identifiers))


class ConnectorTest(unittest.TestCase):
    def test_identifiers_have_one_form(self):
        connector = {
            "host": "Compute-1",
            "initiator": "IQN.2026-01.org.example:A ",
            "nqn": "nqn.2026-01.org.example:b",
            "wwpns": ["50:01:43:80:18:6B:3F:65", "0x500143801867ffff"],
            "system uuid": MACHINE.upper(),
        }
        expected = {
            "iscsi:iqn.2026-01.org.example:a",
            "nvme:nqn.2026-01.org.example:b",
            "fc:50014380186b3f65",
            "fc:500143801867ffff",
            f"machine:{MACHINE}",
        }
        identity = of_connector(connector)
        self.assertEqual(("Compute-1", expected), (identity.name, identity.identifiers))
        self.assertEqual(expected - {f"machine:{MACHINE}"}, identity.initiators)
        self.assertEqual(
            "iscsi:iqn.2026-01.org.example:a", host_identity.primary(identity.identifiers)
        )

    def test_values_that_name_nothing_are_left_out(self):
        empty = {"initiator": None, "nqn": "", "wwpns": [], "system uuid": "0" * 8}
        zero = {"system uuid": "00000000-0000-0000-0000-000000000000"}
        self.assertEqual(1, len(of_connector({"host": "h", **empty}).identifiers))
        self.assertEqual(frozenset(), of_connector({"host": "h", **zero}).identifiers)
        self.assertIsNone(host_identity.primary([]))

    def test_long_values_fit_the_column(self):
        (item,) = of_connector({"host": "h", "initiator": "iqn." + "a" * 5000}).identifiers
        self.assertLess(len(item), 255)
        for name in ("\u0130" * 255, "x" * 255):
            self.assertLessEqual(len(host_identity.host_key(name)), 255)
            self.assertTrue(host_identity.is_same_name(name, f"{name}.example.org"))

    def test_no_number_of_machine_ids_displaces_an_initiator(self):
        many = [f"{number}" for number in range(2 * host_identity.MAX_IDENTIFIERS)]
        for key in ("initiator", "nqn", "wwpns"):
            identity = of_connector({"host": "h", key: "nqn.x", "system uuid": many})
            self.assertEqual(1, len(identity.initiators), key)

    def test_initiators_are_parsed(self):
        for text, expected in (
            ("IQN.2026-01.org.example:a", "iscsi:iqn.2026-01.org.example:a"),
            ("nqn.2026-01.org.example:a", "nvme:nqn.2026-01.org.example:a"),
            ("50:01:43:80:18:6b:3f:65", "fc:50014380186b3f65"),
            ("compute-1", None),
        ):
            self.assertEqual(expected, host_identity.parse_initiator(text))


class SameHostTest(unittest.TestCase):
    def test_common_initiator_decides_over_names(self):
        self.assertTrue(is_same_host(host("a", "iscsi:x", "fc:1"), host("b", "fc:1", "fc:2")))

    def test_equal_name_decides_over_initiators(self):
        self.assertTrue(is_same_host(host("Web.", "iscsi:x"), host("web", "iscsi:y")))

    def test_short_and_long_name_are_one_host_unless_initiators_differ(self):
        self.assertTrue(is_same_host(host("web"), host("web.a.example")))
        self.assertTrue(is_same_host(host("web", "iscsi:x"), host("web.a.example", "nvme:y")))
        self.assertFalse(is_same_host(host("web", "iscsi:x"), host("web.a.example", "iscsi:y")))

    def test_names_of_two_domains_are_two_hosts(self):
        self.assertFalse(is_same_host(host("web.a.example"), host("web.b.example")))

    def test_addresses_have_no_short_form(self):
        self.assertFalse(is_same_host(host("192.0.2.1"), host("192")))
        self.assertTrue(is_same_host(host("2001:DB8::1"), host("2001:db8::1")))

    def test_machine_id_decides_unless_initiators_differ(self):
        one = host("a", f"machine:{MACHINE}")
        self.assertTrue(is_same_host(one, host("b", f"machine:{MACHINE}")))
        other = host("b", f"machine:{MACHINE}", "iscsi:y")
        self.assertFalse(is_same_host(host("a", f"machine:{MACHINE}", "iscsi:x"), other))


class RowTest(unittest.TestCase):
    def test_row_without_connector_has_the_stored_keys(self):
        connector = {"host": "N.example", "initiator": "iqn.a"}
        columns = host_identity.columns("N.example", connector)
        self.assertEqual({"host_key": "n", "initiator_key": "iscsi:iqn.a"}, columns)
        stored = {"host": "N.example", **columns}
        self.assertEqual(
            host_identity.of_row({**stored, "connector": connector}), host_identity.of_row(stored)
        )
        nothing = {"host_key": None, "initiator_key": None}
        self.assertEqual(nothing, host_identity.columns(None, None))


class NameTest(unittest.TestCase):
    def test_names_that_a_url_can_carry_match(self):
        for name in ("compute-1", "n.example.org", "a b", "knöten", "2001:db8::1", "a@b+c"):
            self.assertTrue(re.search(host_identity.NAME_PATTERN, name), name)
        for name in ("a/b", "a?", "#", "%2F", "a\\b", " a", "a ", ".", "..", "a\x7f", "a\n"):
            self.assertFalse(re.search(host_identity.NAME_PATTERN, name), name)


class HostIndexTest(unittest.TestCase):
    def test_index_finds_the_same_as_a_comparison_of_all(self):
        names = (
            *("a", "A", "a.", "a .", "a. .", "a.x", "A.X.", "a.y", "b", "b.x", "", ".", "\u0130"),
            *(
                "10",
                "10.0.0.1",
                "10.0.0.1.",
                "::1",
                "0:0:0:0:0:0:0:1",
                "n" * 300,
                "n" * 300 + ".x",
            ),
        )
        known = ("iscsi:i", "iscsi:j", "fc:i", "machine:m")
        given = [
            host(name, *identifiers)
            for name in names
            for number in range(len(known) + 1)
            for identifiers in itertools.combinations(known, number)
        ]
        index = HostIndex((identity, number) for number, identity in enumerate(given))
        for identity in given:
            same = [n for n, other in enumerate(given) if is_same_host(other, identity)]
            self.assertEqual(same, sorted(index.list_same(identity)), identity)
