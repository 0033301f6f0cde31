# SPDX-License-Identifier: Apache-2.0
"""Fakes of the modules rados and rbd: their errors, and a connection that a test scripts."""

import contextlib
import errno
import json
from types import SimpleNamespace
from unittest import mock

from attachd.drivers.rbd import copies


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
        ReadOpCtx=lambda: contextlib.nullcontext(mock.Mock(results=[])),
        WriteOpCtx=lambda: contextlib.nullcontext(mock.Mock(steps=[], unsafe=True)),
        OSError=Error,
        **_subclasses("ObjectNotFound", "PermissionDeniedError", "PermissionError", "TimedOut"),
    )
    rbd = SimpleNamespace(
        Error=Error,
        RBD=mock.Mock(),
        Image=mock.Mock(),
        RBD_SNAP_NAMESPACE_TYPE_USER=0,
        **{f"RBD_FEATURE_{name}": 1 << bit for bit, name in enumerate(_FEATURES)},
        **_subclasses(
            "ImageNotFound", "ImageExists", "ImageBusy", "ImageHasSnapshots", "InvalidArgument"
        ),
    )
    return SimpleNamespace(rados=rados, rbd=rbd)


class Pool:
    """A pool with objects: bytes, and dictionaries that stand for omaps.

    :ivar calls: object, class and method of each call of an object class
    :ivar answers: those of methods
    :ivar writes_fail_with: the errors of the next write operations on headers
    """

    def __init__(self, lib):
        self._missing = lib.rados.ObjectNotFound("none", 2)
        self.objects = {}
        self.calls = []
        self.answers = {}
        self.writes_fail_with = []

    def add_header(self, image_id, **changes):
        """Add the header of an image of one GiB."""
        prefix = f"rbd_data.{image_id}".encode()
        keys = {
            "features": (61).to_bytes(8, "little"),
            "object_prefix": len(prefix).to_bytes(4, "little") + prefix,
            "order": b"\x16",
            "size": (2**30).to_bytes(8, "little"),
            "snap_seq": bytes(8),
        }
        self.objects[f"rbd_header.{image_id}"] = keys | changes

    def add_record(self, name, **values):
        """Add the record of a complete copy of the image 10ab."""
        filled = {"source_id": "10ab", "snapshot": 7, "cloned": True, **values}
        self.objects.setdefault(copies.RECORDS, {})[name] = json.dumps(filled).encode()

    def read(self, name):
        return self._get(name)

    def stat(self, name):
        self._get(name)

    def get_last_version(self):
        return 1

    def write_full(self, name, data):
        self.objects[name] = data

    def remove_object(self, name):
        self._get(name)
        del self.objects[name]

    def aio_remove(self, name):
        code = -errno.ENOENT if self.objects.pop(name, None) is None else 0
        return mock.Mock(**{"get_return_value.return_value": code})

    def list_objects(self):
        return [SimpleNamespace(key=name, locator_key=None) for name in self.objects]

    def execute(self, name, object_class, method, _arguments):
        self._get(name)
        self.calls.append((name, object_class, method))
        return 0, self.answers.get(method, bytes(10))

    def notify(self, name, _message, _timeout):
        self._get(name)

    def rm_xattr(self, _name, _attribute):
        raise Error("no attribute", errno.ENODATA)

    def get_omap_vals(self, reading, after, prefix, count):
        def select(keys):
            items = sorted(keys.items())
            return [it for it in items if it[0] > after and it[0].startswith(prefix)][:count]

        reading.results.append(select)
        return self._later(reading), 0

    def get_omap_vals_by_keys(self, reading, names):
        reading.results.append(lambda keys: [(key, keys[key]) for key in names if key in keys])
        return self._later(reading), 0

    def _later(self, reading):
        position = len(reading.results) - 1

        def items():
            yield from reading.found[position]

        return items()

    def operate_read_op(self, reading, name):
        keys = self._get(name)
        reading.found = [result(keys) for result in reading.results]

    def clear_omap(self, change):
        change.steps.append(dict.clear)

    def set_omap(self, change, names, values):
        change.steps.append(lambda keys: keys.update(zip(names, values, strict=True)))

    def remove_omap_keys(self, change, names):
        change.steps.append(lambda keys: [keys.pop(name, None) for name in names])

    def operate_write_op(self, change, name):
        if self.writes_fail_with and name.startswith("rbd_header."):
            raise self.writes_fail_with.pop()
        for step in change.steps:
            step(self.objects.setdefault(name, {}))

    def _get(self, name):
        if name not in self.objects:
            raise self._missing
        return self.objects[name]
