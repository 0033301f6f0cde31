# SPDX-License-Identifier: Apache-2.0
"""The header of an image, read without librbd, and compared with what is stored of it.

Hosts need ``w`` for the header of their image, and can write what they like into it: where the
data is, from which file or address it is to be imported, which options a client takes.  librbd and
QEMU believe it.  So the keys are stored in the database when an image becomes a volume, while no
host has access, and before each open the header must have these keys with these values, and no
others: see :func:`find_changes`.

What is stored, :class:`Stored`, is the driver's own data of the volume and part of the connection
info, as ``data["image"]``: agents compare it in the same way, with the key of their attachment,
before they open the image.

Source: Ceph's sources, cls/rbd/cls_rbd.cc.
"""

from collections.abc import Collection, Iterator, Mapping
import contextlib
import dataclasses
import errno
import re
import struct
from typing import Any, Final, TypedDict

from attachd.ceph import bindings, object_names

MAX_KEYS: Final = 256
"""A header with as many keys is refused: some keys of the image, and one for each copy."""

_PAGE: Final = 4
"""Keys that are read at once: an OSD limits neither their length nor that of values.

A host can write 90 MB at once (osd_max_write_size), and as much again.
"""
_MAX_KEY_LENGTH: Final = 128
_MAX_VALUE_LENGTH: Final = 4096

LATEST: Final = "snap_seq"
"""The id of the latest snapshot, also of one that was removed."""

CHANGING: Final = frozenset({"access_timestamp", "modify_timestamp", "flags", LATEST})
"""Keys that clients write: their values do not say where data is.  So do not the snapshots."""

SIZE: Final = "size"
UNFINISHED: Final = "attachd_unfinished"
"""A key of a header that was written anew and lacks its snapshots."""
_SNAPSHOT: Final = re.compile("snapshot_([0-9a-f]{16})")
MAP_INVALID: Final = 3
"""The flags of an object map that is not used until it is built again, and of the fast diff."""
_NUMBER: Final = struct.Struct("<Q")
_KNOWN: Final = frozenset(
    {"create_timestamp", "features", "object_prefix", "order", "stripe_count", "stripe_unit"}
)
"""Keys of an image whose objects the users of attachments reach."""
FEATURES: Final = 0b111111
"""The features of images whose objects the users of attachments reach: layering, striping,
exclusive-lock, object-map, fast-diff, deep-flatten.  Source: include/rbd/features.h."""
LOCK: Final = "lock.rbd_lock"
"""The attribute with the lock of writers."""
_LOCK_NAME: Final = object_names.encode(LOCK.removeprefix("lock."))
_LOCK_REQUEST: Final = struct.Struct("<BBI")
_CLIENT: Final = 8
_HEADER_BYTES: Final = 6
"""Before the content of what object classes encode: two versions, and the length."""
_UNREADABLE: Final = "(keys that are no text, too long or too many)"
_ORDERS: Final = range(12, 27)
_SNAPSHOT_START: Final = struct.Struct("<6xQ2xII")
"""The id of a snapshot, the length of its namespace, and the kind, which begins this."""
_KIND_BYTES: Final = 4
_LENGTH: Final = struct.Struct("<I")
_SNAPSHOT_END: Final = struct.Struct("<QQI")


class Stored(TypedDict):
    """What is stored of an image.

    :ivar id: by which the names of its objects are known
    :ivar header: the keys of its header that stay the same, with the values as hexadecimal
        digits; without the size and without CHANGING
    """

    id: str
    header: dict[str, str]


def read(pool: Any, image_id: str) -> dict[str, bytes]:
    """Return the keys of a header, those with a meaning with their values; none: it is missing.

    The values are asked for by their keys.  In a list of all a key that has a zero byte in it is
    cut off there, and could pass for another one.
    """
    return read_with_lockers(pool, image_id)[0]


def read_with_lockers(pool: Any, image_id: str) -> tuple[dict[str, bytes], int | None]:
    """Return what :func:`read` and :func:`count_lockers` do, with one call less."""
    names = _list_keys(pool, image_id)
    known = _read_values(pool, image_id, [name for name in names if _is_known(name)])
    lockers = count_lockers(pool, image_id) if names else 0
    if lockers is None:
        names.append(LOCK)
    return dict.fromkeys(names, b"") | known, lockers


def _list_keys(pool: Any, image_id: str) -> list[str]:
    """Return the keys of a header, up to the first with which no image is used."""
    names: list[str] = []
    while True:
        try:
            page = _list_page(pool, image_id, names[-1] if names else "")
        except UnicodeDecodeError:
            return [*names, _UNREADABLE]
        for name, length in page:
            is_next = not names or name > names[-1]  # A zero byte cuts it off.
            if not is_next or len(name) > _MAX_KEY_LENGTH or length > _MAX_VALUE_LENGTH:
                return [*names, name[:_MAX_KEY_LENGTH], _UNREADABLE]
            names.append(name)
        if len(page) < _PAGE:
            return names
        if len(names) >= MAX_KEYS:
            return [*names, _UNREADABLE]


def _list_page(pool: Any, image_id: str, last: str) -> list[tuple[str, int]]:
    """Return some keys of a header, with the lengths of their values."""
    rados = bindings.load().rados
    with rados.ReadOpCtx() as reading:
        found, _ = pool.get_omap_vals(reading, last, "", _PAGE)
        try:
            pool.operate_read_op(reading, object_names.header_name(image_id))
        except rados.ObjectNotFound:
            return []
        return [(name, len(value or b"")) for name, value in found]


def _read_values(pool: Any, image_id: str, names: Collection[str]) -> dict[str, bytes]:
    rados = bindings.load().rados
    with rados.ReadOpCtx() as reading:
        found, _ = pool.get_omap_vals_by_keys(reading, tuple(names))
        try:
            pool.operate_read_op(reading, object_names.header_name(image_id))
        except rados.ObjectNotFound:
            return {}
        return dict(found)


def describe(image_id: str, keys: Mapping[str, bytes]) -> Stored:
    """Return what is to be stored of a new image, to whose header no host has access."""
    stable = {key: value.hex() for key, value in sorted(keys.items()) if not _changes(key)}
    return Stored(id=image_id, header=stable)


def find_changes(
    stored: Stored, keys: Mapping[str, bytes], sizes: Collection[int]
) -> Iterator[str]:
    """Return the keys of a header that are not as they were stored.

    :param sizes: in bytes, one of which the image must have
    """
    expected = stored["header"]
    for key in sorted(expected.keys() | keys.keys()):
        if _is_damaged(key, keys) or (
            not _changes(key) and expected.get(key) != keys.get(key, b"").hex()
        ):
            yield key
    if size(keys) not in sizes:
        yield SIZE


def find_unusable(image_id: str, keys: Mapping[str, bytes]) -> str:
    """Return a key that makes an image unusable for hosts, or has its data elsewhere; "": none."""
    for key in sorted(keys):
        if not _changes(key) and key not in _KNOWN:
            return key
    if keys.get("object_prefix") != object_names.encode(object_names.data_prefix(image_id)):
        return "object_prefix"
    if features(keys) & ~FEATURES:
        return "features"
    return "" if order(keys) in _ORDERS else "order"


def size(keys: Mapping[str, bytes]) -> int:
    """Return the size in bytes that a header has, 0 if it has none."""
    return _number(keys.get(SIZE, b""))


def count_objects(keys: Mapping[str, bytes]) -> int:
    """Return how many data objects an image has at most, by its header."""
    return -(-size(keys) >> order(keys)) if order(keys) in _ORDERS else 0


def features(keys: Mapping[str, bytes]) -> int:
    """Return the features that a header has."""
    return _number(keys.get("features", b""))


def order(keys: Mapping[str, bytes]) -> int:
    """Return the order of the data objects, whose size is a power of two."""
    value = keys.get("order", b"")
    return value[0] if len(value) == 1 else 0


def values(stored: Stored) -> dict[str, bytes]:
    """Return the keys that are stored, as :func:`read` returns them."""
    return {key: bytes.fromhex(value) for key, value in stored["header"].items()}


def snapshots(keys: Mapping[str, bytes]) -> list[int]:
    """Return the ids of the snapshots that a header has."""
    found = (_SNAPSHOT.fullmatch(key) for key in keys)
    return [int(match[1], 16) for match in found if match]


@dataclasses.dataclass(frozen=True)
class SnapshotEntry:
    """What a header says of a snapshot; hosts can write it.

    :ivar is_users: it was made by a user, and not by a group, a mirror or the trash
    :ivar children: its clones of the second format
    :ivar is_readable: False: a host has damaged it, and the rest is empty
    """

    name: str = ""
    size_bytes: int = 0
    is_users: bool = False
    is_protected: bool = False
    children: int = 0
    is_readable: bool = False


def read_snapshot(pool: Any, image_id: str, snapshot: int) -> SnapshotEntry | None:
    """Return what a header says of a snapshot; None: it does not have it.

    Source: Ceph's sources, cls/rbd/cls_rbd_types.h, SnapshotInfo; cls/rbd/cls_rbd.cc.
    """
    rados, header = bindings.load().rados, object_names.header_name(image_id)
    request = _NUMBER.pack(snapshot)
    try:
        _, answer = pool.execute(header, "rbd", "snapshot_get", request)
        _, status = pool.execute(header, "rbd", "get_protection_status", request)
        return _parse_snapshot(answer, is_protected=status != bytes(1))
    except rados.ObjectNotFound:
        return None
    except (rados.Error, struct.error, UnicodeDecodeError):
        return SnapshotEntry(name=f"{snapshot}")


def _parse_snapshot(answer: bytes, *, is_protected: bool) -> SnapshotEntry:
    _id, length, kind = _SNAPSHOT_START.unpack_from(answer)
    rest = answer[_SNAPSHOT_START.size - _KIND_BYTES + length :]
    (length,) = _LENGTH.unpack_from(rest)
    name, rest = rest[_LENGTH.size : _LENGTH.size + length], rest[_LENGTH.size + length :]
    size_bytes, _time, children = _SNAPSHOT_END.unpack_from(rest)
    return SnapshotEntry(name.decode(), size_bytes, kind == 0, is_protected, children, True)


def count_lockers(pool: Any, image_id: str) -> int | None:
    """Return how many clients have the lock of writers; None: a host has damaged it.

    Source: Ceph's sources, cls/lock/cls_lock_ops.h.
    """
    rados = bindings.load().rados
    request = _LOCK_REQUEST.pack(1, 1, len(_LOCK_NAME))
    try:
        _, answer = pool.execute(
            object_names.header_name(image_id), "lock", "get_info", request + _LOCK_NAME
        )
    except rados.ObjectNotFound:
        return 0
    except rados.Error as error:
        if getattr(error, "errno", None) == errno.EIO:
            return None
        raise
    return int.from_bytes(answer[_HEADER_BYTES : _HEADER_BYTES + 4], "little")


def break_lock(pool: Any, image_id: str, client_id: int, cookie: str) -> None:
    """Take the lock of writers from a client, if it has it.

    Source: Ceph's sources, cls/lock/cls_lock_ops.h; include/msgr.h, CEPH_ENTITY_TYPE_CLIENT.
    """
    rados = bindings.load().rados
    locker = struct.pack("<Bq", _CLIENT, client_id)
    content = _LOCK_NAME + locker + object_names.encode(cookie)
    with contextlib.suppress(rados.ObjectNotFound):
        pool.execute(
            object_names.header_name(image_id),
            "lock",
            "break_lock",
            _LOCK_REQUEST.pack(1, 1, len(content)) + content,
        )


def _is_known(key: str) -> bool:
    return key in _KNOWN or key in CHANGING or key == SIZE


def _changes(key: str) -> bool:
    return key in CHANGING or key == SIZE or bool(_SNAPSHOT.fullmatch(key))


def _is_damaged(key: str, keys: Mapping[str, bytes]) -> bool:
    """Return whether a key that clients write has a value with which none opens the image."""
    if key not in CHANGING or key not in keys:
        return False
    is_unknown = key == "flags" and _number(keys[key]) > MAP_INVALID
    return is_unknown or len(keys[key]) != _NUMBER.size


def _number(value: bytes) -> int:
    return int(_NUMBER.unpack(value)[0]) if len(value) == _NUMBER.size else 0
