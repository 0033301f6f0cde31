# SPDX-License-Identifier: Apache-2.0
"""Check whether a history of concurrent operations is linearizable; for soak/history.py.

It is, if each operation can be given one moment between its invocation and its answer at which
it takes effect, such that a sequential specification allows what came of it.  An operation that
was never answered takes effect at any time after its invocation, or never.

The algorithm is that of J. Wing and C. Gong, "Testing and Verifying Concurrent Objects" (1993),
a search through the orders that are possible, with the memory that G. Lowe added to it in
"Testing for linearizability" (2016): what was tried from the same state with the same operations
done is not tried again.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

State = TypeVar("State", bound=Hashable)

_NEVER = float("inf")


class Operation(NamedTuple):
    """One operation of a history.

    :ivar invoked: when it was started, by a clock that all operations share
    :ivar answered: when its outcome was known; None: it never was
    :ivar what: the call and its result, in the terms of the specification
    """

    invoked: float
    answered: float | None
    what: Any


class Verdict(NamedTuple, Generic[State]):
    """The result of the search.

    :ivar linearizable: None: given up, it would have taken too long
    :ivar order: of operations, as far as the search has come; all of them, if it is linearizable
    :ivar state: after those
    :ivar stuck: the operations of which none can be the next one
    :ivar visited: how many situations were looked at
    """

    linearizable: bool | None
    order: list[Operation]
    state: State
    stuck: list[Operation]
    visited: int


class _Node(Generic[State]):
    """A situation: some operations done, in a state, and the next ones that are still to try."""

    def __init__(self, done: int, count: int, state: State, last: int | None) -> None:
        self.done = done
        self.count = count
        self.state = state
        self.last = last
        self.choices: Iterator[tuple[int, State]] = iter(())


class _Search(Generic[State]):
    def __init__(
        self,
        history: Iterable[Operation],
        step: Callable[[State, Any], Iterable[State]],
    ) -> None:
        self._operations = sorted(history, key=lambda item: (item.invoked, _end(item)))
        self._step = step
        self._required = sum(operation.answered is not None for operation in self._operations)
        self._all = (1 << len(self._operations)) - 1

    def run(self, initial: State, most: int) -> Verdict[State]:
        path = [self._node(0, 0, initial, None)]
        seen: set[tuple[int, State]] = {(0, initial)}
        deepest = path[:]
        while path:
            if path[-1].count == self._required:
                return self._verdict(True, path, len(seen))
            if len(seen) > most:
                return self._verdict(None, deepest, len(seen))
            if path[-1].count > deepest[-1].count:
                deepest = path[:]
            following = self._following(path[-1], seen)
            if following is None:
                path.pop()
            else:
                path.append(following)
        return self._verdict(False, deepest, len(seen))

    def _following(self, node: _Node[State], seen: set[tuple[int, State]]) -> _Node[State] | None:
        for index, state in node.choices:
            done = node.done | 1 << index
            if (done, state) not in seen:
                seen.add((done, state))
                required = self._operations[index].answered is not None
                return self._node(done, node.count + required, state, index)
        return None

    def _node(self, done: int, count: int, state: State, last: int | None) -> _Node[State]:
        made = _Node(done, count, state, last)
        made.choices = self._choices(made)
        return made

    def _choices(self, node: _Node[State]) -> Iterator[tuple[int, State]]:
        for index in self._possible(node.done):
            for state in self._step(node.state, self._operations[index].what):
                yield index, state

    def _possible(self, done: int) -> Sequence[int]:
        """Return what can be next: what began before the first of the rest was answered.

        The order is that in which they were answered, which mostly is the right one.
        """
        found = []
        first_answer = _NEVER
        rest = self._all & ~done
        while rest:
            lowest = rest & -rest
            index = lowest.bit_length() - 1
            operation = self._operations[index]
            if operation.invoked > first_answer:
                break
            first_answer = min(first_answer, _end(operation))
            found.append(index)
            rest ^= lowest
        return sorted(found, key=lambda item: _end(self._operations[item]))

    def _verdict(
        self, linearizable: bool | None, path: list[_Node[State]], visited: int
    ) -> Verdict[State]:
        order = [self._operations[node.last] for node in path if node.last is not None]
        stuck = [] if linearizable else self._possible(path[-1].done)
        operations = [self._operations[index] for index in stuck]
        return Verdict(linearizable, order, path[-1].state, operations, visited)


def _end(operation: Operation) -> float:
    return _NEVER if operation.answered is None else operation.answered


def check(
    history: Iterable[Operation],
    initial: State,
    step: Callable[[State, Any], Iterable[State]],
    most: int = 1_000_000,
) -> Verdict[State]:
    """Find an order of all operations that the specification allows.

    :param step: the specification: (a state, an operation's ``what``) -> the states that there
        may be after it, none where it cannot be in this state; both are hashable
    :param most: the limit of situations to try
    """
    return _Search(history, step).run(initial, most)
