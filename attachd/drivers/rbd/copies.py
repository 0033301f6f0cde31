# SPDX-License-Identifier: Apache-2.0
"""Copies of images to whose headers hosts have access; for the rbd driver.

A copy is made under a name of its own, "PREFIXcopy.ID", and is renamed when it is complete.  Its
source is not opened: a *view*, "PREFIXcopy.ID.source", is an image with a header of the manager's
own, which names the data objects of the source and one snapshot of them.  The copy is a clone of
the view, and flattened.  No host has access to the headers of both.

The snapshot is one of the pool.  The header of the source names it until the copy is complete, so
that clients write the data that follows to other objects.

A *record* named "PREFIXcopy.ID" says how far the copy is.  It is there before the header of the
source names the snapshot, and until this no longer does: a host that writes a header cannot write
records.

Snapshots of volumes are such views that stay, see snapshots.py.

A volume of an image of the Image service is made under the name "PREFIXcopy.ID.image".  The image
knows its clones: librbd removes an incomplete one, and no host had access to it.

Source: Ceph's sources, cls/rbd/cls_rbd.cc; librbd/operation/SnapshotCreateRequest.cc.
"""

from collections.abc import Iterator, Sequence
import contextlib
import dataclasses
import errno
import json
import struct
from typing import Any, Final

from attachd import exception
from attachd.ceph import bindings, image_header, object_names
from attachd.drivers import base
from attachd.drivers.rbd import objects

RECORDS: Final = "attachd_records"
"""The object whose keys are the names of the records of a pool."""

VIEW_SUFFIX: Final = ".source"
CLONE_SUFFIX: Final = ".image"
_NUMBER: Final = struct.Struct("<Q")
_LAYERING: Final = 1
_STRIPING: Final = 2
_NOTIFY_MS: Final = 5000
_ATTEMPTS: Final = 100
"""To be the latest of snapshots that are taken at the same time, of which one is each time."""
_NO_LIMIT: Final = 2**64


@dataclasses.dataclass(frozen=True)
class Record:
    """How far a copy is.

    :ivar source: the name of the image
    :ivar snapshot: the id of its snapshot
    :ivar cloned: the copy exists, and lacks only data; of a snapshot of a volume: it is complete
    :ivar lost: a host had removed the snapshot from the header, which was written anew since
    :ivar adopted: the driver has not made the snapshot; until the record is complete, it stays
        when the record is removed
    :ivar former: the record of the same snapshot, unmanaged, that this one replaces; "": none
    :ivar released: the snapshot is unmanaged: it is none of a volume, and stays
    """

    source: str
    source_id: str
    snapshot: int
    cloned: bool = False
    lost: bool = False
    adopted: bool = False
    former: str = ""
    released: bool = False


@dataclasses.dataclass(frozen=True)
class Source:
    """The image that is copied, as it is stored.

    :ivar name: of the image
    """

    name: str
    stored: image_header.Stored
    size_bytes: int


def read_record(pool: Any, copy: str) -> Record | None:
    """Return the record of a copy; None: there is none."""
    return next((record for name, record in read_records(pool, copy) if name == copy), None)


def read_records(pool: Any, beginning: str) -> Iterator[tuple[str, Record]]:
    """Read all records whose names have this beginning, in the order of the names."""
    for name, value in objects.read_omap(pool, RECORDS, beginning):
        yield name, Record(**json.loads(value))


def begin(pool: Any, copy: str, source: Source) -> Record:
    """Make the snapshot of the source, unless there is a record of one that is in its header.

    :raises BackendError: others take snapshots of it all the time
    """
    record = read_record(pool, copy)
    if record is None:
        return _take(pool, copy, source)
    if record.cloned:
        return record
    if is_lost(pool, record):
        _remove_snapshot(pool, record)
        return _take(pool, copy, source)
    _notify(pool, object_names.header_name(record.source_id))  # Killed before it was?
    return record


def _take(pool: Any, copy: str, source: Source) -> Record:
    """Make a snapshot and name it in the header of the source, of which it is the latest.

    Clients fail if a header has a later snapshot than it says.  So of two that are taken at the
    same time, the one that comes too late is taken again, as librbd does.
    """
    image_id, latest = source.stored["id"], b""
    for _ in range(_ATTEMPTS):
        base.check_still_owner()
        record = Record(source.name, image_id, pool.create_self_managed_snap())
        _write_record(pool, copy, record)
        if int.from_bytes(latest, "little") > record.snapshot:
            # When it was read the pool had given out no such id: a host has written it.
            _set_latest(pool, image_id, latest, record.snapshot)
        if _add_snapshot(pool, image_id, copy, record.snapshot):
            _notify(pool, object_names.header_name(image_id))
            return record
        latest = _latest(pool, image_id)
        _remove_snapshot(pool, record)
    raise exception.BackendError(
        f"Image {source.name}: {_ATTEMPTS} times another snapshot was taken at the same time. "
        "Try again."
    )


def _set_latest(pool: Any, image_id: str, latest: bytes, limit: int = _NO_LIMIT) -> bool:
    """Have a header say which of its snapshots is the latest.

    :param latest: what it says
    :param limit: its snapshots from this id on do not count: a host has written them
    :returns: whether it still said so, and was not changed meanwhile
    """
    header, lib = object_names.header_name(image_id), bindings.load()
    pool.stat(header)
    version = pool.get_last_version()
    keys = image_header.read(pool, image_id)
    if keys.get(image_header.LATEST, b"") != latest:
        return False
    found = max((item for item in image_header.snapshots(keys) if item < limit), default=0)
    with lib.rados.WriteOpCtx() as change:
        change.assert_version(version)
        pool.set_omap(change, (image_header.LATEST,), (_NUMBER.pack(found),))
        base.check_still_owner()
        try:
            pool.operate_write_op(change, header)
        except lib.rados.Error as error:
            if getattr(error, "errno", None) not in {errno.ERANGE, errno.EOVERFLOW}:
                raise
            return False
    return True


def branch(pool: Any, copy: str, source: Source, record: Record) -> None:
    """Make the copy, which shares the data of the snapshot, unless it exists."""
    if record.cloned:
        return
    objects.remove_names(pool, copy)  # A process was killed while it made it.
    make_view(pool, copy, source, record)
    clone_view(pool, copy, copy, source.stored)
    _replace_record(pool, copy, record, cloned=True)


def keep(pool: Any, name: str, source: Source, record: Record) -> None:
    """Make the view of a snapshot of a volume, with which it is complete."""
    make_view(pool, name, source, record)
    complete(pool, name, record)


def complete(pool: Any, name: str, record: Record) -> Record:
    """Note that a snapshot of a volume is complete."""
    return _replace_record(pool, name, record, cloned=True)


def adopt(pool: Any, name: str, source: Source, snapshot: int, former: str) -> Record:
    """Write the record of a snapshot that is in the header of the source.

    :param former: its record, if it was unmanaged
    """
    record = Record(source.name, source.stored["id"], snapshot, adopted=True, former=former)
    _write_record(pool, name, record)
    return record


def finish_adoption(pool: Any, name: str, record: Record) -> None:
    """Give a snapshot the name of its record in the header, and remove its former record."""
    if record.released:
        _replace_record(pool, name, record, released=False)
    if not record.adopted:
        return
    entry = image_header.read_snapshot(pool, record.source_id, record.snapshot)
    if entry and entry.name != name:
        source = object_names.header_name(record.source_id)
        base.check_still_owner()
        # A host may have given the name to another one: it is for people alone.
        with contextlib.suppress(bindings.load().rados.Error):
            arguments = _NUMBER.pack(record.snapshot) + object_names.encode(name)
            pool.execute(source, "rbd", "snapshot_rename", arguments)
            _notify(pool, source)
    _drop_former(pool, record)


def release(pool: Any, name: str) -> None:
    """Note that a snapshot is unmanaged; remove the record of an incomplete one."""
    record = read_record(pool, name)
    if record is None or record.released:
        return
    if record.cloned:
        _drop_former(pool, record)
        _replace_record(pool, name, record, released=True, adopted=False, former="")
    elif record.adopted:
        drop(pool, name)
    else:
        forget(pool, name)


def forget_released(pool: Any, name: str, record: Record) -> None:
    """Remove a snapshot that is unmanaged, as :func:`forget` does with others."""
    _replace_record(pool, name, record, released=False)
    forget(pool, name)


def _drop_former(pool: Any, record: Record) -> None:
    former = read_record(pool, record.former) if record.former else None
    if former and former.released and former.snapshot == record.snapshot:
        drop(pool, record.former)


def drop(pool: Any, name: str) -> None:
    """Remove the view and the record of a snapshot, which stays."""
    objects.remove_names(pool, f"{name}{VIEW_SUFFIX}")
    rados = bindings.load().rados
    with rados.WriteOpCtx() as change, contextlib.suppress(rados.ObjectNotFound):
        pool.remove_omap_keys(change, (name,))
        base.check_still_owner()
        pool.operate_write_op(change, RECORDS)


def clone_view(pool: Any, snapshot: str, copy: str, stored: image_header.Stored) -> None:
    """Make an image that shares the data of a view.

    :param snapshot: the name of the view without its suffix, and of its snapshot
    :param stored: of the source
    """
    values = image_header.values(stored)
    base.check_still_owner()
    bindings.load().rbd.RBD().clone(
        *(pool, f"{snapshot}{VIEW_SUFFIX}", snapshot, pool, copy),
        features=image_header.features(values) | _LAYERING,
        order=image_header.order(values),
    )
    check_id(pool, copy)


def note_lost(pool: Any, name: str, record: Record) -> None:
    """Note that the header of the source had lost a snapshot, before it is added again."""
    _replace_record(pool, name, record, lost=True)


def is_lost(pool: Any, record: Record) -> bool:
    """Return whether a host has removed the snapshot from the header of the source."""
    keys = image_header.read(pool, record.source_id)
    return record.lost or record.snapshot not in image_header.snapshots(keys)


def check_snapshot(pool: Any, volume_id: str, record: Record) -> None:
    """Refuse a copy whose source has lost the snapshot meanwhile: it is not of one moment.

    :param volume_id: of the source
    """
    if is_lost(pool, record):
        raise exception.BackendError(
            f"Volume {volume_id}: a host has removed the snapshot {record.snapshot} from the "
            f"header of image {record.source} while it was copied. Detach the volume, and copy "
            "it again."
        )


def forget(pool: Any, copy: str) -> None:
    """Remove the snapshot of a copy that is complete or gone, the view, and the record.

    One that is unmanaged stays.
    """
    record, lib = read_record(pool, copy), bindings.load()
    if record is None or record.released:
        return
    if record.adopted and not record.cloned:
        drop(pool, copy)
        return
    _drop_former(pool, record)
    _remove_snapshot(pool, record)
    if record.adopted:
        # Other clients than the driver make an object map for a snapshot.
        object_map = f"rbd_object_map.{record.source_id}.{record.snapshot:016x}"
        base.check_still_owner()
        with contextlib.suppress(lib.rados.ObjectNotFound):
            pool.remove_object(object_map)
    drop(pool, copy)


def _remove_snapshot(pool: Any, record: Record) -> None:
    """Remove a snapshot from the header of the source, and from the pool."""
    source, lib = object_names.header_name(record.source_id), bindings.load()
    base.check_still_owner()
    # Without the header there is no such snapshot; whatever a host has put there in its place
    # is left to it.
    with contextlib.suppress(lib.rados.Error):
        pool.execute(source, "rbd", "snapshot_remove", _NUMBER.pack(record.snapshot))
        _notify(pool, source)
    base.check_still_owner()
    with contextlib.suppress(lib.rados.ObjectNotFound):
        pool.remove_self_managed_snap(record.snapshot)


def remove(pool: Any, copy: str) -> None:
    """Remove an incomplete copy, to whose header no host had access, and what it needed."""
    if image_id := objects.read_id(pool, copy):
        keys = image_header.read(pool, image_id)
        objects.remove_data(pool, image_id, image_header.count_objects(keys))
    objects.remove_names(pool, copy)
    forget(pool, copy)


def clone_foreign(pool: Any, clone: str, parents: Any, parent: tuple[str, str]) -> None:
    """Make an image that shares the data of an image of another service.

    :param parents: the pool of the other image
    :param parent: its name, and its snapshot
    """
    lib = bindings.load().rbd
    base.check_still_owner()
    try:
        lib.RBD().clone(parents, *parent, pool, clone)
    except lib.ImageNotFound as error:
        raise exception.BackendError(
            f"Image {parent[0]} was deleted before a volume was made of it.", final=True
        ) from error
    check_id(pool, clone)


def remove_foreign(pool: Any, clone: str) -> None:
    """Remove an incomplete clone of an image of another service, which is told."""
    if not objects.exists(pool, clone):
        return
    base.check_still_owner()
    with contextlib.suppress(bindings.load().rbd.ImageNotFound):  # It has no header yet.
        bindings.load().rbd.RBD().remove(pool, clone)
    objects.remove_names(pool, clone)
    objects.remove_id(pool, clone)


def add_again(pool: Any, image_id: str, found: Sequence[tuple[str, Record]]) -> None:
    """Name snapshots in a header that was written anew, which no client has open.

    :param found: the names of the records, and the records, by the ids of the snapshots
    """
    is_late = False
    present = image_header.snapshots(image_header.read(pool, image_id))
    for name, record in found:
        if record.snapshot in present:
            continue
        while not _add_snapshot(pool, image_id, name, record.snapshot):
            # Another one was taken meanwhile.
            is_late = True
            _set_latest(pool, image_id, _latest(pool, image_id), 0)
    while is_late:
        is_late = not _set_latest(pool, image_id, _latest(pool, image_id))
    if found:
        _notify(pool, object_names.header_name(image_id))


def _latest(pool: Any, image_id: str) -> bytes:
    """Return what a header says of its latest snapshot."""
    return image_header.read(pool, image_id).get(image_header.LATEST, b"")


def check_id(pool: Any, name: str) -> None:
    """Remove a new image if the names of its objects begin like those of another one.

    Capabilities give access to the objects whose names begin with that of the header.
    """
    if other := objects.find_similar(objects.list_ids(pool), name):
        objects.remove_names(pool, name)
        raise exception.BackendError(
            f"The ids of two images, {name} and {other}, cannot be told apart. Try again.",
            final=True,
        )


def make_view(pool: Any, snapshot: str, source: Source, record: Record) -> None:
    """Make an image that has the data of the source for its own."""
    view, stored = f"{snapshot}{VIEW_SUFFIX}", image_header.values(source.stored)
    objects.remove_names(pool, view)  # A process was killed while it made it.
    striping = {
        name: _NUMBER.unpack(stored[name])[0]
        for name in ("stripe_unit", "stripe_count")
        if name in stored
    }
    base.check_still_owner()
    bindings.load().rbd.RBD().create(
        *(pool, view, source.size_bytes, image_header.order(stored)),
        old_format=False,
        features=_LAYERING | (_STRIPING if striping else 0),
        **striping,
    )
    check_id(pool, view)
    image_id = objects.read_id(pool, view)
    with bindings.load().rados.WriteOpCtx() as change:
        prefix = object_names.encode(object_names.data_prefix(record.source_id))
        pool.set_omap(change, ("object_prefix",), (prefix,))
        base.check_still_owner()
        pool.operate_write_op(change, object_names.header_name(image_id))
    _add_snapshot(pool, image_id, snapshot, record.snapshot)


def _add_snapshot(pool: Any, image_id: str, name: str, snapshot: int) -> bool:
    """Name a snapshot in a header, unless it does; return False if it names a later one."""
    base.check_still_owner()
    arguments = object_names.encode(name) + _NUMBER.pack(snapshot)
    try:
        pool.execute(object_names.header_name(image_id), "rbd", "snapshot_add", arguments)
    except bindings.load().rados.Error as error:
        code = getattr(error, "errno", None)
        if code == errno.ESTALE:
            return False
        # Another process may have written the header anew, with all snapshots that have records.
        present = image_header.snapshots(image_header.read(pool, image_id))
        if code != errno.EEXIST or snapshot not in present:
            raise
    return True


def _notify(pool: Any, target: str) -> None:
    """Have all clients of an image read its header; one that hangs reads it when it wakes up.

    Source: librbd/ImageWatcher.cc and the kernel's rbd.c: a message without a text is an update.
    """
    with contextlib.suppress(bindings.load().rados.TimedOut):
        pool.notify(target, "", _NOTIFY_MS)


def _replace_record(pool: Any, name: str, record: Record, **changes: Any) -> Record:
    changed = dataclasses.replace(record, **changes)
    _write_record(pool, name, changed)
    return changed


def _write_record(pool: Any, copy: str, record: Record) -> None:
    with bindings.load().rados.WriteOpCtx() as change:
        pool.set_omap(change, (copy,), (json.dumps(dataclasses.asdict(record)).encode(),))
        base.check_still_owner()
        pool.operate_write_op(change, RECORDS)
