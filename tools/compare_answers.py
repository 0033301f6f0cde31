#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what a Cinder answers, and compares with it what another server answers.

    tools/compare_answers.py record http://127.0.0.1:18776
    tools/compare_answers.py compare http://127.0.0.1:8776

Both send the requests of attachd/tests/contract/answers/requests.  "record" writes the answers
beside them, "compare" prints what differs from those and is not known; the exit status is 1 if
there is anything.  The server has to believe tokens "user:project:role,role", as attachd does
with auth_strategy = noauth and a Cinder served by tools/cinder_to_record.py.
"""

import argparse
from collections.abc import Sequence
import itertools
from pathlib import Path
import sys
from typing import Any

from attachd.tests.contract.answers import differences, normal, over_http, recording, scenarios
from attachd.tests.contract.answers.playing import Player

_SECOND = 1.1


def main() -> int:
    """Do what was asked for."""
    options = _parse()
    played = [scenario for scenario in scenarios.load() if scenario.id.startswith(options.only)]
    url = options.url.rstrip("/")
    player = Player(
        over_http.asking(url), url, pace=_SECOND, timeout=options.timeout, poll_interval=0.2
    )
    if options.what == "record":
        return _record(player, played, options.folder)
    return _compare(player, played, everything=options.all)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("url", help="of the server, without /v3")
    parser.add_argument("--only", default="", help="only scenarios whose id begins so")
    parser.add_argument(
        "--folder", type=Path, default=recording.FOLDER, help="where to record: %(default)s"
    )
    parser.add_argument("--all", action="store_true", help="print known differences, too")
    parser.add_argument(
        "--timeout", type=float, default=30, help="seconds to wait for the status of a volume"
    )
    return parser.parse_args()


def _record(player: Player, played: Sequence[scenarios.Scenario], folder: Path) -> int:
    wrong = 0
    for noun, group in itertools.groupby(played, lambda item: item.noun):
        known = {k: v for k, v in recording.load(folder).items() if k.startswith(f"{noun}/")}
        answers: dict[str, Any] = {}
        for scenario in group:
            print(scenario.id, flush=True)
            answers |= player.play(scenario)
        unasked = [key for key, answer in answers.items() if answer == normal.UNASKED]
        wrong += len(unasked)
        for key in unasked:
            print(f"not asked: {key}")
        order = [request.id for s in scenarios.load() if s.noun == noun for request in s.requests]
        merged = {**known, **answers}
        recording.save(noun, {key: merged[key] for key in order if key in merged}, folder)
    return 1 if wrong else 0


def _compare(player: Player, played: Sequence[scenarios.Scenario], *, everything: bool) -> int:
    recorded = recording.load()
    known = differences.Known()
    count, found = 0, []
    for scenario in played:
        for key, answer in player.play(scenario).items():
            count += 1
            found += differences.between(key, recorded.get(key, normal.UNASKED), answer)
    for item in found if everything else known.unknown(found):
        print(item)
    print(f"{count} requests, {len(found)} differences, {len(known.unknown(found))} not known")
    return 1 if known.unknown(found) else 0


if __name__ == "__main__":
    sys.exit(main())
