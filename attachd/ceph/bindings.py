# SPDX-License-Identifier: Apache-2.0
"""The Python modules rados and rbd, which come with Ceph and are in no package index."""

import functools
import importlib
from importlib import machinery, util
import sys
from types import ModuleType
from typing import Final, NamedTuple

from attachd import exception

SYSTEM_PACKAGES: Final = "/usr/lib/python3/dist-packages"
"""Where Debian and Ubuntu install them."""


class Bindings(NamedTuple):
    """The two modules, without types."""

    rados: ModuleType
    rbd: ModuleType


@functools.cache
def load() -> Bindings:
    """Import the modules, out of the system's packages if this environment has none.

    A virtual environment does not see the system's packages.  These two are taken from there one
    by one, so that no other package becomes visible.

    :raises BackendError: naming the packages
    """
    # rbd imports rados.
    return Bindings(*(_import(name) for name in ("rados", "rbd")))


def is_installed() -> bool:
    """Return whether the modules are there, without loading them."""
    find = machinery.PathFinder.find_spec
    return all(util.find_spec(name) or find(name, [SYSTEM_PACKAGES]) for name in ("rados", "rbd"))


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        spec = machinery.PathFinder.find_spec(name, [SYSTEM_PACKAGES])
        if spec is None or spec.loader is None:
            raise _missing(f"no module {name} for this Python") from error
    except ImportError as error:
        raise _missing(f"{error}") from error
    module = util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        del sys.modules[name]
        raise _missing(f"{error}") from error
    return module


def _missing(reason: str) -> exception.BackendError:
    version = ".".join(map(str, sys.version_info[:2]))
    return exception.BackendError(
        "Volumes of Ceph need the packages python3-rados and python3-rbd, built for Python "
        f"{version}: {reason}. Install them, and run attachd with the Python of the system.",
        final=True,
    )
