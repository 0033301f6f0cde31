# SPDX-License-Identifier: Apache-2.0
"""Say which tests only ``tox -e full`` runs, and in which of its parts.

``.ci/run`` has to be fast and to give the same result on any machine.  A test class that takes
long, kills at random moments, or needs what is slow to set up is marked::

    @full_only("crash")
    class EveryPointTest(...):

The names of its tests then end in ``[full,crash]``, by which stestr selects, as names of Tempest's
tests end in ``[slow]``.
"""

from collections.abc import Callable
from typing import TypeVar
import unittest

Case = TypeVar("Case", bound=type[unittest.TestCase])


def full_only(part: str) -> Callable[[Case], Case]:
    """Leave a test class, and its subclasses, to a part of ``tox -e full``.

    :param part: one of the parts in ``tools/full.py``
    :raises TypeError: its base class is marked already
    """

    def mark(case: Case) -> Case:
        plain = case.id
        if plain.__qualname__.startswith(full_only.__qualname__):
            raise TypeError(f"{case.__qualname__} inherits a mark of full_only()")

        def test_id(self: unittest.TestCase) -> str:
            return f"{plain(self)}[full,{part}]"

        case.id = test_id  # type: ignore[method-assign]
        return case

    return mark
