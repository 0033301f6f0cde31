# SPDX-License-Identifier: Apache-2.0
"""A queue of work whose owners have turns, such as projects, of a project its volumes.

The place of an item names its owners, from the largest to the smallest.  At each level they have
turns one after the other; the items of one place are taken in the order of arrival.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, KeysView
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Place = tuple[str, ...]
MayTake = Callable[[Place], bool]
"""Is asked whether items may be taken at a place, or at those that begin with these names."""


class FairQueue(Generic[T]):
    """Waiting items; the caller locks it, and uses places of one length.

    :ivar length: how many items wait
    """

    def __init__(self) -> None:
        self._root: OrderedDict[str, Any] = OrderedDict()
        self.length = 0

    def names(self, *place: str) -> KeysView[str]:
        """Return the next names of the places that begin so and have items, in turn."""
        node = self._root
        for name in place:
            node = node.get(name) or OrderedDict()
        return node.keys()

    def put(self, place: Place, item: T) -> None:
        """Append an item."""
        node = self._root
        for name in place[:-1]:
            node = node.setdefault(name, OrderedDict())
        node.setdefault(place[-1], deque()).append(item)
        self.length += 1

    def put_first(self, place: Place, item: T) -> None:
        """Append an item, and have its place be the next one."""
        self.put(place, item)
        for node, name in self._path(place):
            node.move_to_end(name, last=False)

    def take(self, may_take: MayTake) -> tuple[Place, T] | None:
        """Remove the next item that may be taken, and return it with its place; None: none."""
        place = _find(self._root, (), may_take)
        return None if place is None else (place, self.take_at(place))

    def take_at(self, place: Place) -> T:
        """Remove the first item of a place, and return it; others have the next turns."""
        path = list(self._path(place))
        node, name = path[-1]
        item: T = node[name].popleft()
        self.length -= 1
        for node, name in reversed(path):
            if node[name]:
                node.move_to_end(name)
            else:
                del node[name]
        return item

    def remove(self, place: Place, item: T) -> None:
        """Remove an item that waits no more; those of others keep their turns."""
        path = list(self._path(place))
        node, name = path[-1]
        node[name].remove(item)
        self.length -= 1
        for node, name in reversed(path):
            if not node[name]:
                del node[name]

    def _path(self, place: Place) -> Iterator[tuple[OrderedDict[str, Any], str]]:
        node = self._root
        for name in place:
            yield node, name
            node = node[name]


def _find(node: OrderedDict[str, Any], start: Place, may_take: MayTake) -> Place | None:
    for name, child in node.items():
        place = (*start, name)
        if not may_take(place):
            continue
        found = place if isinstance(child, deque) else _find(child, place, may_take)
        if found is not None:
            return found
    return None
