# SPDX-License-Identifier: Apache-2.0
"""Names of the objects of RBD images, and the encoding of texts for object classes.

Source: Ceph's sources, include/rbd_types.h and cls/rbd/cls_rbd.cc.
"""

import struct


def header_name(image_id: str) -> str:
    """Return the name of the object with the header of an image."""
    return f"rbd_header.{image_id}"


def data_prefix(image_id: str) -> str:
    """Return what the names of an image's data objects begin with; a dot and a number follow."""
    return f"rbd_data.{image_id}"


def encode(text: str) -> bytes:
    """Encode a text for an object class: its length in 4 bytes, and the text."""
    value = text.encode()
    return struct.pack("<I", len(value)) + value
