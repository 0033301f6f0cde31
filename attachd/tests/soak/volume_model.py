# SPDX-License-Identifier: Apache-2.0
"""The sequential specification of one volume, with which the soak compares its histories; see
linearizability.py.

A call that connects or deletes has effects that clients see one by one (``attaching`` before
``error_attaching``, ``detaching`` before nothing), and one whose answer was lost may still be
carried out at any time after it was sent, or never.  So a call is two kinds of operation: from
the moment it is :class:`Sent` the attachment may make the moves of that call by itself, and what
was answered says where it was at some moment between question and answer.  Such moves are made
in the search only where something that was seen needs them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
import functools
import itertools
from typing import Any, NamedTuple

from attachd.tests.soak import phases
from attachd.tests.soak.phases import Phase

_P = Phase
_PRESENT, _HOLDING, _MOVES = phases.PRESENT, phases.HOLDING, phases.MOVES


class Attachment(NamedTuple):
    """An existing attachment.

    :ivar sent: verbs of calls that may still be carried out
    """

    id: str
    phase: Phase
    sent: frozenset[str] = frozenset()


class Post(NamedTuple):
    """A POST that may still be carried out, also once more after it gave its reservation up.

    :ivar ids: of attachments that may come of it
    """

    server: str
    connects: bool
    ids: frozenset[str]


class State(NamedTuple):
    """A volume: its attachments and the POSTs that may become some, both sorted."""

    attachments: tuple[Attachment, ...] = ()
    posts: tuple[Post, ...] = ()

    def phase(self, attachment_id: str) -> Phase:
        """Return where an attachment is."""
        found = self.find(attachment_id)
        return found.phase if found else Phase.GONE

    def find(self, attachment_id: str) -> Attachment | None:
        """Return an attachment, if it is there."""
        return next(
            (attachment for attachment in self.attachments if attachment.id == attachment_id), None
        )

    def having(self, changed: Attachment) -> "State":
        """Return the state with the new state of an attachment."""
        others = tuple(
            attachment for attachment in self.attachments if attachment.id != changed.id
        )
        if changed.phase is not Phase.GONE:
            others = tuple(sorted((*others, changed)))
        return self._replace(attachments=others)

    def without_post(self, server: str) -> "State":
        """Return the state in which nothing more comes of a server's POST."""
        return self._replace(posts=tuple(post for post in self.posts if post.server != server))


class Posted(NamedTuple):
    """A POST was sent whose effect is not at one moment; it has no answer of its own.

    :ivar ids: of attachments that a client has seen for this server
    """

    server: str
    connects: bool
    ids: frozenset[str]


class Made(NamedTuple):
    """A POST led to an attachment, in one of some phases."""

    server: str
    id: str
    phases: frozenset[Phase]


class Refused(NamedTuple):
    """A POST was refused, since the volume is in use or in error."""

    server: str


class Sent(NamedTuple):
    """A call was sent; it has no answer of its own."""

    id: str
    verb: str


class Was(NamedTuple):
    """An attachment was in one of some phases, by a response."""

    id: str
    phases: frozenset[Phase]


class Completed(NamedTuple):
    """An attachment was completed."""

    id: str


class NotConnected(NamedTuple):
    """An attachment could not be connected because of its state or because of others."""

    id: str


class Listed(NamedTuple):
    """Exactly these existed: (id, status)."""

    pairs: frozenset[tuple[str, str]]


class HadStatus(NamedTuple):
    """The volume had a status."""

    status: str


class HadAttached(NamedTuple):
    """The volume showed exactly these as attached."""

    ids: frozenset[str]


class Volume:
    """The specification of one volume.

    :ivar shared: several may attach it, each for itself; otherwise one holds it at a time
    """

    def __init__(self, *, shared: bool) -> None:
        self.shared = shared
        self._steps: Mapping[type, Callable[[State, Any], Iterable[State]]] = {
            Posted: self._posted,
            Made: self._made,
            Refused: self._refused,
            Sent: self._sent,
            Was: self._was,
            Completed: self._completed,
            NotConnected: self._not_connected,
            Listed: self._listed,
            HadStatus: self._had_status,
            HadAttached: self._had_attached,
        }

    def step(self, state: State, what: Any) -> Iterable[State]:
        """Return the states that there may be after an operation; none: it cannot be now."""
        return self._steps[type(what)](state, what)

    @staticmethod
    def _posted(state: State, what: Posted) -> Iterator[State]:
        yield state._replace(posts=tuple(sorted((*state.posts, Post(*what)))))

    def _made(self, state: State, what: Made) -> Iterator[State]:
        for item in self._where(state, {what.id: what.phases | {_P.GONE}}):
            if item.find(what.id):
                yield item.without_post(what.server)
            elif _P.RESERVED in what.phases and self._is_free(item):
                made = Attachment(what.id, _P.RESERVED)
                yield item.having(made).without_post(what.server)

    def _refused(self, state: State, what: Refused) -> Iterator[State]:
        if self.shared:
            if self._may_have_status(state, "error"):
                yield state.without_post(what.server)
            return
        for reachable in _closure(state):
            if not self._is_free(reachable):
                yield reachable.without_post(what.server)

    @staticmethod
    def _sent(state: State, what: Sent) -> Iterator[State]:
        found = state.find(what.id)
        yield state.having(found._replace(sent=found.sent | {what.verb})) if found else state

    def _was(self, state: State, what: Was) -> Iterable[State]:
        return self._where(state, {what.id: what.phases})

    def _completed(self, state: State, what: Completed) -> Iterator[State]:
        may = frozenset({_P.RESERVED, _P.CONNECTED, _P.ATTACHED})
        for item in self._where(state, {what.id: may}):
            found = item.find(what.id)
            assert found
            yield item.having(found._replace(phase=_P.ATTACHED))

    def _not_connected(self, state: State, what: NotConnected) -> Iterator[State]:
        alone = frozenset({_P.RESERVED, _P.FAILED, _P.DOUBTFUL, _P.ATTACHED})
        if self.shared and self._may_have_status(state, "error"):
            yield state
            return
        for item in self._where(state, {what.id: _PRESENT | {_P.GONE}}):
            others = {a.phase for a in item.attachments if a.id != what.id}
            if item.phase(what.id) not in alone or (others & _HOLDING and not self.shared):
                yield item

    def _listed(self, state: State, what: Listed) -> Iterator[State]:
        wanted = {item.id: frozenset({_P.GONE}) for item in state.attachments}
        wanted |= {attachment: phases.phases_of(word) for attachment, word in what.pairs}
        for item in self._where(state, wanted):
            if len(item.attachments) == len(what.pairs):
                yield item

    def _had_status(self, state: State, what: HadStatus) -> Iterator[State]:
        if self.shared:
            if self._may_have_status(state, what.status):
                yield state
            return
        for reachable in _closure(state):
            if phases.status(a.phase for a in reachable.attachments) == what.status:
                yield reachable

    def _had_attached(self, state: State, what: HadAttached) -> Iterator[State]:
        others = [attachment for attachment in state.attachments if attachment.id not in what.ids]
        if any(reach(other) == {_P.ATTACHED} for other in others):
            return
        wanted = dict.fromkeys(what.ids, frozenset({_P.ATTACHED}))
        if not self.shared:
            wanted |= {other.id: (_PRESENT | {_P.GONE}) - {_P.ATTACHED} for other in others}
        yield from self._where(state, wanted)

    def _is_free(self, state: State) -> bool:
        return self.shared or not any(
            attachment.phase in _HOLDING for attachment in state.attachments
        )

    @staticmethod
    def _may_have_status(state: State, wanted: str) -> bool:
        """Return whether attachments that move independently of each other can make a status."""
        methods = [reach(attachment) for attachment in state.attachments]
        methods += [_reach_of_post(post) for post in state.posts]
        order = ["in-use", "attaching", "detaching", "reserved", "error", "available"]
        rank = order.index(wanted)
        ranks = [{order.index(phases.status([phase])) for phase in method} for method in methods]
        can_be = wanted == "available" or any(rank in item for item in ranks)
        return can_be and all(max(item) >= rank for item in ranks)

    def _where(self, state: State, wanted: Mapping[str, frozenset[Phase]]) -> Iterator[State]:
        """Return the states that may come of one, in which attachments are as they should be."""
        if self.shared:
            yield from _independently(state, wanted)
            return
        for reachable in _closure(state):
            if all(reachable.phase(name) in may for name, may in wanted.items()):
                yield reachable


def reach(attachment: Attachment) -> frozenset[Phase]:
    """Return the phases in which an attachment may be by itself, without another call."""
    return frozenset(phases.reach(attachment.phase, attachment.sent))


def _new(post: Post, attachment_id: str) -> Attachment:
    return Attachment(attachment_id, _P.RESERVED, phases.BY_POST if post.connects else frozenset())


def _reach_of_post(post: Post) -> frozenset[Phase]:
    return reach(_new(post, "")) | {_P.GONE}


def _independently(state: State, wanted: Mapping[str, frozenset[Phase]]) -> Iterator[State]:
    methods: list[list[Attachment | None]] = []
    for name, may in wanted.items():
        found = state.find(name) or _from_post(state, name)
        if found is None:
            methods.append([None] if _P.GONE in may else [])
            continue
        after = [found._replace(phase=item) for item in phases.reach(found.phase, found.sent)]
        unborn = state.find(name) is None
        can: list[Attachment | None] = [None] if unborn and _P.GONE in may else []
        methods.append(can + [item for item in after if item.phase in may])
    for chosen in itertools.product(*methods):
        made = state
        for item in chosen:
            if item is not None:
                made = made.having(item)
        yield made


def _from_post(state: State, attachment_id: str) -> Attachment | None:
    for post in state.posts:
        if attachment_id in post.ids:
            return _new(post, attachment_id)
    return None


@functools.lru_cache(10_000)
def _closure(state: State) -> tuple[State, ...]:
    """Return where an ordinary volume may be by itself; the fewest moves come first."""
    found = {state: None}
    for item in (ahead := [state]):
        for following in _moved(item):
            if following not in found:
                found[following] = None
                ahead.append(following)
    return tuple(found)


def _moved(state: State) -> Iterator[State]:
    free = not any(attachment.phase in _HOLDING for attachment in state.attachments)
    for attachment in state.attachments:
        for phase in _next(attachment):
            if attachment.phase is not _P.FAILED or phase is not _P.CONNECTING or free:
                yield state.having(attachment._replace(phase=phase))
    for post in state.posts if free else ():
        # An attachment that no client saw may have existed as well.
        for name in (*sorted(post.ids), f"unseen {post.server}"):
            if state.find(name) is None:
                yield state.having(_new(post, name))


def _next(attachment: Attachment) -> Iterator[Phase]:
    for verb in sorted(attachment.sent):
        yield from sorted(_MOVES[verb].get(attachment.phase, ()))
