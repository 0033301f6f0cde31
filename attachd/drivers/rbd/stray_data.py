# SPDX-License-Identifier: Apache-2.0
"""Data objects of no image, or beyond the end of a volume; for audits of the driver rbd.

The key of an attachment writes any number of objects whose names begin like those of its image.
"""

from collections.abc import Iterator, Mapping
import re
import shlex
from typing import Any, Final

from attachd.ceph import bindings, object_names
from attachd.drivers import base
from attachd.drivers.rbd import objects

# Those of images with a pool of their own for data have one more number.
_DATA: Final = re.compile(r"rbd_data\.([0-9a-zA-Z]+)\.([0-9a-f]{16})")
_IN_OTHER_POOL: Final = re.compile(r"rbd_data\.[0-9]+\.[0-9a-zA-Z]+\.[0-9a-f]{16}")
_ANY: Final = re.compile(r"rbd_data\.([0-9a-zA-Z]+)\..*", re.DOTALL)
"""Also names that no client of an image uses: a host can hide data there."""
_NO_NUMBER: Final = 2**64 - 1


def find(pool: Any, name: str, counts: Mapping[str, int]) -> Iterator[base.Orphan]:
    """Go through all objects of a pool.

    :param name: of the pool
    :param counts: how many data objects the images of volumes have at most, by the ids of images
    """
    last, located = _find_last(pool)
    for key, example in sorted(located.items()):
        yield base.Orphan(
            f"objects with the locator {key} in pool {name}, such as {example}",
            "A host whose key permits names that begin so has written them, under any name: no "
            "client of an image uses a locator. List them with 'rados ls', and remove each with "
            f"'rados --object-locator {shlex.quote(key)} rm NAME'.",
        )
    # After the objects: an image that is new by now has none among them.
    known = {*objects.list_ids(pool).values(), *_list_trash(pool)}
    for image_id, number in sorted(last.items()):
        prefix = f"{object_names.data_prefix(image_id)}."
        if image_id not in known:
            yield base.Orphan(
                f"data of no image, objects {prefix}* in pool {name}",
                "A host has written it after the end of its access or beyond the end of its "
                "image, or a deletion is in progress. Remove the objects with 'rados rm'.",
            )
        elif number >= counts.get(image_id, number + 1):
            yield base.Orphan(
                f"data beyond the end of an image, objects {prefix}* in pool {name}, up to "
                f"{number:016x}",
                f"A host with access has written it. Remove the objects from "
                f"{prefix}{counts[image_id]:016x} on with 'rados rm'.",
            )


def _find_last(pool: Any) -> tuple[dict[str, int], dict[str, str]]:
    """Return the largest number of a data object of each image, and objects with a locator.

    :returns: numbers by the ids of images; one name of an object for each locator
    """
    last: dict[str, int] = {}
    located: dict[str, str] = {}
    for item in pool.list_objects():
        if item.locator_key:
            # Its name says nothing: the cluster checks the locator in place of it.
            located[item.locator_key] = item.key
            continue
        if _IN_OTHER_POOL.fullmatch(item.key) or not (found := _ANY.fullmatch(item.key)):
            continue
        numbered = _DATA.fullmatch(item.key)
        number = int(numbered[2], 16) if numbered else _NO_NUMBER
        last[found[1]] = max(last.get(found[1], 0), number)
    return last, located


def _list_trash(pool: Any) -> set[str]:
    """Return the ids of images that ``rbd trash`` keeps."""
    return {image["id"] for image in bindings.load().rbd.RBD().trash_list(pool)}
