# SPDX-License-Identifier: Apache-2.0
"""The part of the drivers' contract on secrets that drivers keep; see test_drivers.py."""

from collections.abc import Iterator
from typing import Any

import testscenarios

from attachd.drivers import abilities, base
from attachd.tests.contract import backends
from attachd.tests.contract.driving import DriverCase

load_tests = testscenarios.load_tests_apply_scenarios

SHORTEST = 6
"""Characters of a text that is searched for; a number or a short name occurs by chance."""


class ProviderSecretsTest(DriverCase):
    """The answers of create and grant with secrets, which are lost in a crash."""

    def setUp(self):
        super().setUp()
        self.ref, self.asked = self.volume(), self.export()
        self.info = self.granted(self.ref, self.asked)
        self.require("provider_secrets", self.provider_secrets)

    def lose_secrets(self):
        """Have the process die before it stores the secrets."""
        self.provider_secrets.clear()

    def test_repeated_calls_with_secrets_keep_them(self):
        before = dict(self.provider_secrets)
        self.assertEqual(self.ref.provider, self.driver.create(base.VolumeRef(self.ref.id, 1)))
        self.assertEqual(self.info, self.driver.grant(self.ref, self.asked))
        self.assertEqual(before, self.provider_secrets)

    def test_grant_repeated_without_secrets_gives_access(self):
        host = self.host()
        self.lose_secrets()
        info = self.driver.grant(self.ref, self.asked)
        self.assertEqual(512, len(host.read(info, 0, 512)))
        self.assertEqual(self.expected(self.ref, self.asked), self.listed(self.ref))

    def test_revoke_without_secrets_ends_access(self):
        self.lose_secrets()
        self.revoked(self.ref, self.asked)
        self.assertEqual(set(), self.listed(self.ref))
        if host := self.backend.host("a"):
            self.assertRaises(backends.Refused, host.read, self.info, 0, 512)

    def test_create_and_delete_without_secrets_succeed(self):
        self.revoked(self.ref, self.asked)
        self.lose_secrets()
        self.assertEqual(self.ref.provider, self.driver.create(base.VolumeRef(self.ref.id, 1)))
        self.lose_secrets()
        self.driver.delete(self.ref)
        self.assertEqual([], self.backend.orphans())

    def test_secrets_are_not_logged_listed_or_in_provider(self):
        self.driver.extend(self.ref, 2, [])
        listed: list[Any] = [*self.exported(), self.driver.list_volumes(), self.ref.provider]
        if isinstance(self.driver, abilities.Audit):
            listed += self.driver.list_orphans()
        secrets = set(_texts(self.provider_secrets))
        self.revoked(self.ref, self.asked)
        for text in secrets:
            self.assertNotIn(text, f"{listed}")
            self.assertNotIn(text, self.logged.output)


def _texts(value: Any) -> Iterator[str]:
    """Find the texts of some length in a value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str) and len(value) >= SHORTEST:
        yield value
