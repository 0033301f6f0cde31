# SPDX-License-Identifier: Apache-2.0
"""Which versions of the objects belong to which contract; for service and upgrade_levels.

A manifest is a tuple of pairs, name and version of an object, sorted.
"""

from oslo_utils.versionutils import convert_version_to_tuple as number

from attachd.objects import base

Manifest = tuple[tuple[str, str], ...]

_RAISED = {"1.0": {"Attachment": "1.0", "Volume": "1.0"}}
"""With which versions of the contract (manager_api) came which of the objects."""


def of_contract(version: str) -> Manifest:
    """Return what whoever speaks this version of the contract surely knows."""
    known: dict[str, str] = {}
    for since, raised in _RAISED.items():
        if number(since) <= number(version):
            known |= raised
    return tuple(sorted(known.items()))


def newest() -> Manifest:
    """Return what this code knows."""
    classes = base.Registry.obj_classes()
    return tuple(sorted((name, found[0].VERSION) for name, found in classes.items()))


def to_text(manifest: Manifest) -> str:
    """Write a manifest as ``Attachment 1.2, Volume 1.2``."""
    return ", ".join(" ".join(pair) for pair in manifest)


def from_text(text: str) -> Manifest:
    """Read what :func:`to_text` wrote."""
    pairs = (each.partition(" ") for each in text.split(", "))
    return tuple((name, version) for name, _space, version in pairs)
