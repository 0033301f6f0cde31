# SPDX-License-Identifier: Apache-2.0
"""The plan of a run, derived from its seed: the intentions of each client, and the times of
kills; for clients.py and faults.py.
"""

from collections.abc import Iterator, Sequence
import itertools
import random
from typing import NamedTuple
import uuid

from attachd.tests.soak import deployment

INTENTIONS = {"attach": 8, "attach at once": 6, "change my mind": 3, "race": 4, "check": 4}
"""How often each of them is drawn.

* attach: reserve, connect, complete, look, delete
* attach at once: the same with a POST that connects
* change my mind: reserve, delete
* race: reserve, and delete while it is being connected
* look: at the list of attachments, and at the volume
"""

COPIES = {"volume of image": 3, "snapshot": 4, "image of volume": 3}
"""How often each of them is drawn by those who copy.

* volume of image: create, compare its data, delete
* snapshot: of a volume in use or not; write, create a volume of it, and revert where no host has
  the volume; compare the data, delete
* image of volume: of a volume in use or not; upload, and compare the data
"""

SHARE_IN_USE = 0.5
"""The share of snapshots and images whose volume is attached."""

LONGEST_PAUSE = 0.3
"""Seconds between two calls of a client."""

LONGEST_HOLD = 3.0
"""Seconds that a client stays attached."""

LOGINS = 0.08
"""The share of attachments by which the host logs in, writes and reads."""

SHARE_OF_SHARED = 0.4
"""The share of intentions that concern volumes which several may attach."""

GAP = 15.0
"""Seconds from one kill to the next, on average; less in a run that would be over too soon."""

_UNEVEN = 0.3
"""By what share a gap is longer or shorter."""

OVERLAPS = 0.25
"""The share of kills that do not wait until everything is back."""

LONGEST_OUTAGE = 3.0
"""Seconds until what was killed is started again."""


class Intention(NamedTuple):
    """The next sequence of calls of a client.

    :ivar name: CLIENT-NUMBER
    :ivar kind: a key of INTENTIONS
    :ivar volume: an index: of the shared volumes if ``shared``, else of the ordinary ones
    :ivar server: the UUID of the server for which it is done
    :ivar key: an Idempotency-Key
    :ivar chance: for pauses
    """

    name: str
    kind: str
    shared: bool
    volume: int
    server: str
    key: str
    logs_in: bool
    chance: random.Random


class Copying(NamedTuple):
    """The next sequence of calls of one who copies.

    :ivar name: of what is made: SEED-COPIER-NUMBER
    :ivar kind: a key of COPIES
    :ivar server: the UUID of the server that has the volume; None: no server has it
    :ivar converts: whether the image is no raw one
    """

    name: str
    kind: str
    server: str | None
    converts: bool
    chance: random.Random


class Kill(NamedTuple):
    """A kill.

    :ivar after: seconds from the beginning
    :ivar outage: seconds until it is started again
    :ivar overlaps: whether something else may still be away
    :ivar number: counted from 0; what is drawn besides is drawn by it
    """

    number: int
    after: float
    kind: str
    outage: float
    overlaps: bool


def intentions(seed: int, client: int, ordinary: int, shared: int) -> Iterator[Intention]:
    """Generate intentions of a client without end.

    :param ordinary: how many ordinary volumes there are
    :param shared: how many shared ones
    """
    number = 0
    while True:
        name = f"{client}-{number}"
        chance = random.Random(f"{seed}/{name}")
        (kind,) = chance.choices(list(INTENTIONS), list(INTENTIONS.values()))
        is_shared = chance.random() < SHARE_OF_SHARED
        yield Intention(
            name=name,
            kind=kind,
            shared=is_shared,
            volume=chance.randrange(shared if is_shared else ordinary),
            server=f"{uuid.UUID(int=chance.getrandbits(128), version=4)}",
            key=f"soak-{seed}-{name}",
            logs_in=chance.random() < LOGINS,
            chance=chance,
        )
        number += 1


def copyings(seed: int, copier: int) -> Iterator[Copying]:
    """Generate what one who copies intends, without end."""
    for number in itertools.count():
        name = f"{seed}-{copier}-{number}"
        chance = random.Random(f"copier {name}")
        (kind,) = chance.choices(list(COPIES), list(COPIES.values()))
        server = f"{uuid.UUID(int=chance.getrandbits(128), version=4)}"
        is_in_use = chance.random() < SHARE_IN_USE
        yield Copying(name, kind, server if is_in_use else None, chance.random() < 0.5, chance)


def kills(seed: int, seconds: float, kinds: Sequence[str] = deployment.KINDS) -> list[Kill]:
    """Generate the kills of a run: each kind once, then each kind once in another order.

    Also a short run kills each kind.
    """
    chance = random.Random(f"{seed}/kills")
    gap = min(GAP, seconds / (len(kinds) + 1))
    moment, drawn, bag = 0.0, list[Kill](), list[str]()
    while True:
        moment += gap * chance.uniform(1 - _UNEVEN, 1 + _UNEVEN)
        if moment >= seconds:
            return drawn
        bag = bag or chance.sample(list(kinds), len(kinds))
        outage, overlaps = chance.uniform(0, LONGEST_OUTAGE), chance.random() < OVERLAPS
        drawn.append(Kill(len(drawn), moment, bag.pop(), outage, overlaps))
