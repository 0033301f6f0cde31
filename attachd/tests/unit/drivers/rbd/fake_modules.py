# SPDX-License-Identifier: Apache-2.0
"""Fakes of the modules rados and rbd: their errors, and a connection that a test scripts."""

from types import SimpleNamespace
from unittest import mock


class Error(Exception):
    """As rados.OSError and rbd.OSError."""

    def __init__(self, text="", errno=None):
        super().__init__(text)
        self.errno = errno


_FEATURES = (
    *("LAYERING", "STRIPINGV2", "EXCLUSIVE_LOCK", "OBJECT_MAP", "FAST_DIFF", "DEEP_FLATTEN"),
    *("JOURNALING", "DATA_POOL"),
)


def _subclasses(*names):
    return {name: type(name, (Error,), {}) for name in names}


def modules():
    """Return both fakes, as bindings.Bindings."""
    rados = SimpleNamespace(
        Error=Error,
        Rados=mock.Mock(),
        **_subclasses("ObjectNotFound", "PermissionDeniedError", "PermissionError", "TimedOut"),
    )
    rbd = SimpleNamespace(
        Error=Error,
        RBD=mock.Mock(),
        Image=mock.Mock(),
        RBD_SNAP_NAMESPACE_TYPE_USER=0,
        **{f"RBD_FEATURE_{name}": 1 << bit for bit, name in enumerate(_FEATURES)},
        **_subclasses("ImageNotFound", "ImageExists", "ImageBusy", "ImageHasSnapshots"),
    )
    return SimpleNamespace(rados=rados, rbd=rbd)
