# SPDX-License-Identifier: Apache-2.0
"""Each answer of attachd equals the recorded one of a real Cinder, except for the differences in
answers/known_differences.yaml, each with its reason.
"""

import unittest

from attachd import exception
from attachd.db.types import type_store
from attachd.tests.contract.answers import differences, normal, recording, scenarios
from attachd.tests.contract.answers.playing import Ask, Player
from attachd.tests.fixtures import conf_fixture, wsgi_api
from attachd.tests.wait import TIMEOUT

ENOUGH = 300
DEFAULT = {"name": "__DEFAULT__", "description": "Default Volume Type"}
UNLUCKY = 13
URL = "http://api.example:8776"


def asking(api: wsgi_api.WsgiApi) -> Ask:
    """Return a function that passes requests to the application."""

    def ask(sent):
        headers = {key.replace("-", "_"): value for key, value in sent.headers.items()}
        kept = {"version": None, "token": headers.pop("X_Auth_Token")}
        answer = api.request(sent.method, f"/{sent.path}", raw=sent.content, **kept, **headers)
        return normal.Answer(answer.status, answer.headers, answer.raw)

    return ask


def serve(owner: unittest.TestCase) -> wsgi_api.WsgiApi:
    """Serve attachd, with Cinder's quotas, its default type and a size that fails."""
    api = wsgi_api.use(owner)
    for option, value in (("quota_volumes", 10), ("quota_gigabytes", 1000)):
        conf_fixture.override(owner, option, value, "quota")
    conf_fixture.override(owner, "default_volume_type", DEFAULT["name"])
    type_store.create(dict(DEFAULT))
    for method in ("create", "extend"):
        setattr(api.backend.driver, method, unlucky(getattr(api.backend.driver, method)))
    return api


def player(api: wsgi_api.WsgiApi) -> Player:
    """Return the player for the application."""
    return Player(asking(api), URL, timeout=TIMEOUT)


def unlucky(real):
    """Have a method of the driver fail at one size."""

    def method(volume, size_gib=None, *rest):
        if UNLUCKY in {volume.size_gib, size_gib}:
            raise exception.BackendError("There are no volumes of that size.", final=True)
        return real(volume, *() if size_gib is None else (size_gib, *rest))

    return method


class RecordedAnswersTest(unittest.TestCase):
    """All requests are played once, then each claim is checked."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        owner = unittest.TestCase()
        cls.addClassCleanup(owner.doCleanups)
        plays = player(serve(owner))
        cls.recorded = recording.load()
        cls.known = differences.Known()
        cls.played = {}
        for scenario in scenarios.load():
            cls.played |= plays.play(scenario)
        found = []
        for key, answer in cls.played.items():
            if key in cls.recorded:
                found += differences.between(key, cls.recorded[key], answer)
        cls.unknown = cls.known.unknown(found)

    def test_recording_has_enough_requests(self):
        self.assertLessEqual(ENOUGH, len(self.recorded))

    def test_recording_has_exactly_the_requests_of_the_scenarios(self):
        self.assertEqual(sorted(self.played), sorted(self.recorded))

    def test_recorded_requests_all_have_answers(self):
        unasked = [key for key, answer in self.recorded.items() if answer == normal.UNASKED]
        self.assertEqual([], unasked)

    def test_differences_are_all_listed(self):
        self.assertEqual([], self.unknown, "\n" + "\n".join(map(str, self.unknown)))

    def test_listed_differences_all_exist(self):
        self.assertEqual([], self.known.unneeded())

    def test_listed_differences_all_have_reasons(self):
        self.assertEqual([], self.known.unexplained)
