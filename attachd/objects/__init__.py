# SPDX-License-Identifier: Apache-2.0
"""The objects that cross RPC, Volume and Attachment: their fields, versions and serialization.

The API loads them, the manager uses and returns them.
"""

from attachd.objects.attachment import (
    Attachment,
    NewAttachment,
    connection_data,
    flat_connection,
    redact,
    service_uuid,
)
from attachd.objects.base import AttachdObject, JsonField, Registry, scope
from attachd.objects.serializer import (
    RESERVED_PREFIX,
    Manifest,
    Serializer,
    find_reserved_key,
    format_manifest,
    manifest_of_contract,
    newest_manifest,
    parse_manifest,
)
from attachd.objects.volume import Volume, backend_of

__all__ = [
    "RESERVED_PREFIX",
    "AttachdObject",
    "Attachment",
    "JsonField",
    "Manifest",
    "NewAttachment",
    "Registry",
    "Serializer",
    "Volume",
    "backend_of",
    "connection_data",
    "find_reserved_key",
    "flat_connection",
    "format_manifest",
    "manifest_of_contract",
    "newest_manifest",
    "parse_manifest",
    "redact",
    "scope",
    "service_uuid",
]
