# SPDX-License-Identifier: Apache-2.0
"""The objects of images, listed, renamed and removed without librbd; for the rbd driver.

librbd opens an image as its header says, and hosts write headers.  The functions here go by what
hosts cannot write: the directory of a pool, the object with the id of an image, and the names of
objects that follow from this id.

Source: Ceph's sources, include/rbd_types.h and cls/rbd/cls_rbd.cc.
"""

from collections.abc import Iterable, Iterator, Mapping
from concurrent import futures
import contextlib
import errno
from typing import Any, Final

from attachd.ceph import bindings, object_names
from attachd.drivers import base

DIRECTORY: Final = "rbd_directory"
_BATCH: Final = 64
"""Objects that are removed at the same time."""
_ROLLED_BACK_AT_ONCE: Final = 8
_PAGE: Final = 1000
"""Keys of one request: an OSD returns 1024 at most (osd_max_omap_entries_per_request)."""


def list_ids(pool: Any) -> dict[str, str]:
    """Return the ids of all images of a pool, by their names."""
    return {image["name"]: image["id"] for image in bindings.load().rbd.RBD().list2(pool)}


def read_id(pool: Any, name: str) -> str:
    """Return the id in the object of a name; "": there is none."""
    try:
        return str(pool.read(_id_name(name))[4:].decode())
    except bindings.load().rados.ObjectNotFound:
        return ""


def exists(pool: Any, name: str) -> bool:
    """Return whether there is an image of a name, complete or not."""
    try:
        pool.stat(_id_name(name))
    except bindings.load().rados.ObjectNotFound:
        return False
    return True


def find_similar(ids: Mapping[str, str], name: str) -> str:
    """Return another image the names of whose objects begin like those of an image; "": none.

    Capabilities give access to the objects whose names begin with that of the header.
    """
    own = ids.get(name, "")
    for other, other_id in ids.items():
        # The first format of images has no ids.
        shorter, longer = sorted((own, other_id), key=len)
        if other != name and shorter and longer.startswith(shorter):
            return other
    return ""


def rename(pool: Any, source: str, target: str) -> None:
    """Rename an image, if it exists; also one whose renaming was interrupted.

    As librbd does it: first the id is stored under the new name, then the directory is changed,
    and then the id under the old name is removed.

    Source: librbd/operation/RenameRequest.h.
    """
    ids = list_ids(pool)
    if target in ids and source not in ids and read_id(pool, source) == ids[target]:
        remove_id(pool, source)
    if source not in ids or target in ids:
        return
    base.check_still_owner()
    pool.write_full(_id_name(target), object_names.encode(ids[source]))
    arguments = (
        object_names.encode(source)
        + object_names.encode(target)
        + object_names.encode(ids[source])
    )
    base.check_still_owner()
    pool.execute(DIRECTORY, "rbd", "dir_rename_image", arguments)
    remove_id(pool, source)


def remove_names(pool: Any, name: str) -> None:
    """Remove an image without its data: its header, object map, name and id."""
    lib = bindings.load()
    image_id = read_id(pool, name) or list_ids(pool).get(name, "")
    if not image_id:
        return
    _remove_all(pool, [f"rbd_object_map.{image_id}", object_names.header_name(image_id)])
    base.check_still_owner()
    with contextlib.suppress(lib.rados.ObjectNotFound):
        pool.execute(
            DIRECTORY,
            "rbd",
            "dir_remove_image",
            object_names.encode(name) + object_names.encode(image_id),
        )
    remove_id(pool, name)


def remove_id(pool: Any, name: str) -> None:
    """Remove the object with the id of an image."""
    base.check_still_owner()
    with contextlib.suppress(bindings.load().rados.ObjectNotFound):
        pool.remove_object(_id_name(name))


def remove_data(pool: Any, image_id: str, count: int | None) -> None:
    """Remove the data of an image.

    :param count: of its objects; None: not known, so that all objects of the pool are listed
    """
    prefix = f"{object_names.data_prefix(image_id)}."
    numbered = (f"{prefix}{number:016x}" for number in range(count or 0))
    _remove_all(pool, list_objects(pool, prefix) if count is None else numbered)


def roll_back(pool: Any, image_id: str, count: int, snapshot: int) -> None:
    """Give the data objects of an image what they have in a snapshot, some at the same time.

    :param pool: with the snapshots of the image for writing
    :param count: of the objects
    """
    prefix, lib = f"{object_names.data_prefix(image_id)}.", bindings.load()

    def give(number: int) -> None:
        with contextlib.suppress(lib.rados.ObjectNotFound):
            pool.rollback_self_managed_snap(f"{prefix}{number:016x}", snapshot)

    with futures.ThreadPoolExecutor(_ROLLED_BACK_AT_ONCE) as threads:
        for begin in range(0, count, _BATCH):
            base.check_still_owner()
            list(threads.map(give, range(begin, min(begin + _BATCH, count))))


def list_objects(pool: Any, prefix: str) -> Iterator[str]:
    """Go through the objects of a pool whose names begin with a prefix, without a locator."""
    found = (item for item in pool.list_objects() if not item.locator_key)
    return (item.key for item in found if item.key.startswith(prefix))


def read_omap(pool: Any, name: str, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Read keys with a prefix, and their values; none if there is no such object."""
    rados, last = bindings.load().rados, ""
    while True:
        with rados.ReadOpCtx() as reading:
            found, _ = pool.get_omap_vals(reading, last, prefix, _PAGE)
            try:
                pool.operate_read_op(reading, name)
            except rados.ObjectNotFound:
                return
            page = list(found)
        yield from page
        if len(page) < _PAGE:
            return
        last = page[-1][0]


def _remove_all(pool: Any, names: Iterable[str]) -> None:
    """Remove objects, those that exist, some of them at the same time."""
    batch: list[str] = []
    for name in names:
        batch.append(name)
        if len(batch) == _BATCH:
            _remove_batch(pool, batch)
            batch = []
    _remove_batch(pool, batch)


def _remove_batch(pool: Any, names: list[str]) -> None:
    if not names:
        return
    base.check_still_owner()
    requests = [pool.aio_remove(name) for name in names]
    for request in requests:
        request.wait_for_complete()
    for name, request in zip(names, requests, strict=True):
        code = -request.get_return_value()
        if code not in {0, errno.ENOENT}:
            raise bindings.load().rados.OSError(f"object {name} could not be removed", errno=code)


def _id_name(name: str) -> str:
    return f"rbd_id.{name}"
