# SPDX-License-Identifier: Apache-2.0
"""A queue of work: projects in turn, of a project its volumes in turn, of a volume in order."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Taken = tuple[str, str, T]
"""A project, a volume and one of its items."""
MayTake = Callable[[str, str, T], bool]
"""Is asked whether an item may be taken; takes a project, a volume and its first item."""


class FairQueue(Generic[T]):
    """Waiting items; the caller locks it.

    :ivar length: how many items wait
    """

    def __init__(self) -> None:
        self._projects: OrderedDict[str, OrderedDict[str, deque[T]]] = OrderedDict()
        self.length = 0

    @property
    def projects(self) -> int:
        """How many projects have waiting items."""
        return len(self._projects)

    def put(self, project: str, volume: str, item: T) -> None:
        """Append an item."""
        volumes = self._projects.setdefault(project, OrderedDict())
        volumes.setdefault(volume, deque()).append(item)
        self.length += 1

    def put_first(self, project: str, volume: str, item: T) -> None:
        """Append an item, and have its project be the next one."""
        self.put(project, volume, item)
        self._projects.move_to_end(project, last=False)

    def take(self, may_take: MayTake[T], projects: Iterable[str] | None = None) -> Taken[T] | None:
        """Remove the next item that may be taken, and return it with its project and volume.

        :param projects: those whose items may be taken; None: all, in turn
        :returns: None: there is none
        """
        for project in self._projects if projects is None else projects:
            volumes = self._projects.get(project) or OrderedDict()
            for volume, items in volumes.items():
                if may_take(project, volume, items[0]):
                    item = items.popleft()
                    self.length -= 1
                    _rotate(volumes, volume)
                    _rotate(self._projects, project)
                    return project, volume, item
        return None

    def remove(self, project: str, volume: str, item: T) -> None:
        """Remove an item that waits no more; those of others keep their turns."""
        volumes = self._projects[project]
        volumes[volume].remove(item)
        self.length -= 1
        if not volumes[volume]:
            del volumes[volume]
        if not volumes:
            del self._projects[project]


def _rotate(queues: OrderedDict[str, Any], key: str) -> None:
    """Make a queue the last one, or remove it if it is empty."""
    if queues[key]:
        queues.move_to_end(key)
    else:
        del queues[key]
