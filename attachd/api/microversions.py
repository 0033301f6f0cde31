# SPDX-License-Identifier: Apache-2.0
"""The table of microversions, and their negotiation.

A handler compares the requested version with a name of the table::

    if version >= mv.ATTACHMENT_CREATE_MODE_ARG:
        ...

The versions of the Block Storage API are those of Cinder, so that its clients work unchanged.
attachd's own API has versions of its own, requested in the same header beside the others:
``OpenStack-API-Version: volume 3.71, attachd 1.0``.  A handler that differs by it
reads ``ctx.attachd_version``.

Source: the Block Storage API's REST API version history; the microversion specification of the
OpenStack API working group.
"""

import functools
import re
from typing import NamedTuple

from attachd import exception

HEADER = "OpenStack-API-Version"
SERVICE = "volume"
ATTACHD_SERVICE = "attachd"
UPDATED = "2023-08-31T00:00:00Z"
"""Time of the latest version of the Block Storage API."""

_NUMBER = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})", re.ASCII)


class Version(NamedTuple):
    """A microversion; compares by numbers: 3.9 < 3.10."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class RequestedVersions(NamedTuple):
    """The versions that one request asks for.

    :ivar attachd_version: of attachd's own API; None: the response has nothing of it
    """

    volume: Version
    attachd_version: Version | None = None

    def header(self) -> str:
        """Return the version header of the response."""
        plain = f"{SERVICE} {self.volume}"
        return (
            plain
            if self.attachd_version is None
            else f"{plain}, {ATTACHD_SERVICE} {self.attachd_version}"
        )


_sentences: dict[Version, str] = {}
_attachd_sentences: dict[Version, str] = {}


def _row(minor: int, sentence: str) -> Version:
    version = Version(3, minor)
    assert minor == len(_sentences), f"{version} is out of order"
    _sentences[version] = sentence
    return version


def _attachd_row(major: int, minor: int, sentence: str) -> Version:
    version = Version(major, minor)
    _attachd_sentences[version] = sentence
    return version


BASE = _row(0, "The API before microversions.")
UPLOAD_IMAGE_PARAMS = _row(1, "Uploading to an image takes visibility and protected.")
VOLUME_LIST_BOOTABLE = _row(2, "Volumes can be filtered by bootable, true or false.")
MESSAGES = _row(3, "Messages show users what went wrong in the background.")
VOLUME_LIST_GLANCE_METADATA = _row(4, "Volumes can be filtered by image metadata.")
MESSAGES_PAGINATION = _row(5, "Messages come in pages.")
CG_UPDATE_BLANK_PROPERTIES = _row(6, "Consistency groups may lose name and description.")
CLUSTER_SUPPORT = _row(7, "Clusters of managers; services show theirs.")
MANAGE_EXISTING_LIST = _row(8, "What a backend has and could be managed can be listed.")
BACKUP_UPDATE = _row(9, "Backups can be renamed.")
VOLUME_LIST_GROUP = _row(10, "Volumes can be filtered by group.")
GROUP_TYPE = _row(11, "Group types.")
VOLUME_SUMMARY = _row(12, "A summary counts and sums up volumes.")
GROUP_VOLUME = _row(13, "Groups of volumes; a volume shows its group_id.")
GROUP_SNAPSHOTS = _row(14, "Snapshots of groups.")
ETAGS = _row(15, "Metadata answers carry an ETag.")
VOLUME_MIGRATE_CLUSTER = _row(16, "A volume can be migrated to a cluster.")
MANAGE_EXISTING_CLUSTER = _row(17, "What could be managed can be listed by cluster.")
BACKUP_PROJECT = _row(18, "A backup shows its project.")
GROUP_SNAPSHOT_RESET_STATUS = _row(19, "The status of a group's snapshot can be reset.")
GROUP_VOLUME_RESET_STATUS = _row(20, "The status of a group can be reset.")
VOLUME_DETAIL_PROVIDER_ID = _row(21, "Admins see a volume's provider_id.")
SNAPSHOT_LIST_METADATA_FILTER = _row(22, "Snapshots can be filtered by metadata.")
VOLUME_DELETE_FORCE = _row(23, "Deleting a volume takes force.")
WORKERS_CLEANUP = _row(24, "Admins can have unfinished work cleaned up.")
GROUP_VOLUME_LIST = _row(25, "A group lists its volumes.")
REPLICATION_CLUSTER = _row(26, "A cluster can fail over; clusters have more filters.")
NEW_ATTACH = _row(27, "Attachments: reserve, connect, look at, delete.")
POOL_FILTER = _row(28, "Pools can be filtered.")
GROUP_SNAPSHOT_PAGINATION = _row(29, "Group snapshots come in pages.")
SNAPSHOT_SORT = _row(30, "Snapshots can be sorted by name.")
RESOURCE_FILTER = _row(31, "An unknown filter of a list is refused.")
LOG_LEVEL = _row(32, "Admins read and set log levels.")
RESOURCE_FILTER_CONFIG = _row(33, "The filters of each list can be asked for.")
LIKE_FILTER = _row(34, "A filter key~=value matches a part of the value.")
POOL_TYPE_FILTER = _row(35, "Pools can be filtered by volume type.")
VOLUME_SUMMARY_METADATA = _row(36, "The summary of volumes shows their metadata.")
BACKUP_SORT_NAME = _row(37, "Backups can be sorted by name.")
GROUP_REPLICATION = _row(38, "Groups can be replicated.")
LIMITS_ADMIN_FILTER = _row(39, "Admins read another project's limits.")
VOLUME_REVERT = _row(40, "A volume can go back to its latest snapshot.")
SNAPSHOT_LIST_USER_ID = _row(41, "A snapshot shows its user.")
VOLUME_EXTEND_INUSE = _row(42, "A volume can grow while it is in use.")
BACKUP_METADATA = _row(43, "Backups have metadata.")
NEW_ATTACH_COMPLETION = _row(44, "An attachment is completed by its user.")
SUPPORT_COUNT_INFO = _row(45, "Lists show their full count when asked.")
SUPPORT_NOVA_IMAGE = _row(46, "A volume can be made of an image without data.")
VOLUME_CREATE_FROM_BACKUP = _row(47, "A volume can be made of a backup.")
VOLUME_SHARED_TARGETS_AND_SERVICE_FIELDS = _row(
    48, "A volume shows shared_targets and service_uuid."
)
BACKEND_STATE_REPORT = _row(49, "Services show their backend's state.")
MULTIATTACH_VOLUMES = _row(50, "Volumes can be attached several times at once.")
BACKUP_AZ = _row(51, "A backup can be made in another availability zone.")
SUPPORT_VOLUME_TYPE_FILTER = _row(52, "Volume types can be filtered by extra specs.")
SUPPORT_VOLUME_SCHEMA_CHANGES = _row(
    53, "Creating and updating a volume refuse fields that are unknown."
)
ATTACHMENT_CREATE_MODE_ARG = _row(54, "Creating an attachment takes a mode, rw or ro.")
TRANSFER_WITH_SNAPSHOTS = _row(55, "A transfer may include snapshots.")
BACKUP_PROJECT_USER_ID = _row(56, "A backup shows its user.")
TRANSFER_WITH_HISTORY = _row(57, "A transfer shows both projects and whether it was accepted.")
GROUP_GROUPSNAPSHOT_PROJECT_ID = _row(58, "Groups and their snapshots show their project.")
SUPPORT_TRANSFER_PAGINATION = _row(59, "Transfers come in pages.")
VOLUME_TIME_COMPARISON_FILTER = _row(60, "Volumes can be filtered by comparing times.")
VOLUME_CLUSTER_NAME = _row(61, "Admins see a volume's cluster_name.")
DEFAULT_TYPE_OVERRIDES = _row(62, "A project can have a default volume type of its own.")
VOLUME_TYPE_ID_IN_VOLUME_DETAIL = _row(63, "A volume shows its volume_type_id.")
ENCRYPTION_KEY_ID_IN_DETAILS = _row(64, "A volume shows its encryption_key_id.")
USE_QUOTA = _row(65, "A volume shows consumes_quota, and can be filtered by it.")
SNAPSHOT_IN_USE = _row(66, "Snapshots of a volume in use need no force.")
PROJECT_ID_OPTIONAL_IN_URL = _row(67, "URLs need no project id.")
SUPPORT_REIMAGE_VOLUME = _row(68, "A volume can get the content of another image.")
SHARED_TARGETS_TRISTATE = _row(69, "shared_targets may be null.")
TRANSFER_ENCRYPTED_VOLUME = _row(70, "Encrypted volumes can be transferred.")
EXTEND_VOLUME_COMPLETION = _row(71, "The user of a volume that is extended confirms the new size.")

MINIMUM = BASE
LATEST = next(reversed(_sentences))

ATTACHD_1_0 = _attachd_row(
    1,
    0,
    "Attachments show their host and what shares their connection, volumes show all their "
    "attachments, errors have codes, and an administrator may delete an attachment although "
    "Compute uses it, or by force.",
)
ATTACHD_1_1 = _attachd_row(
    1,
    1,
    "Hosts can be fenced with proof, or drained, attachments replace others, move to other hosts, "
    "and show their condition.",
)
ATTACHD_LATEST = next(reversed(_attachd_sentences))


def versions() -> dict[Version, str]:
    """Return all Block Storage API versions, oldest first, each with what it has brought."""
    return dict(_sentences)


def attachd_versions() -> list[Version]:
    """Return all versions of attachd's own API, oldest first."""
    return list(_attachd_sentences)


@functools.lru_cache(maxsize=256)
def negotiate(header: str | None) -> RequestedVersions:
    """Parse the version header of a request; without one, the oldest version applies.

    :raises BadRequest: a version is malformed, or the header names no version of this service
    :raises NotAcceptable: the version does not exist
    """
    if header is None:
        return RequestedVersions(MINIMUM)
    requested = dict(_parts(header))
    if SERVICE not in requested and ATTACHD_SERVICE not in requested:
        raise exception.BadRequest(
            reason=f"The header {HEADER} names no version of this service: "
            f"{header[:100]!r}. Send for example '{SERVICE} {LATEST}'."
        )
    attachd_version = requested.get(ATTACHD_SERVICE)
    return RequestedVersions(
        _pick(requested.get(SERVICE, str(MINIMUM)), MINIMUM, LATEST, frozenset(_sentences)),
        None
        if attachd_version is None
        else _pick(attachd_version, ATTACHD_1_0, ATTACHD_LATEST, frozenset(_attachd_sentences)),
    )


def _parts(header: str) -> list[tuple[str, str]]:
    """Split ``volume 3.71, attachd 1.0``; the first entry of a service counts."""
    pairs = [part.split(None, 1) for part in header.split(",")]
    return [
        (pair[0].lower(), pair[1].strip() if len(pair) > 1 else "")
        for pair in reversed(pairs)
        if pair
    ]


def _pick(text: str, oldest: Version, latest: Version, known: frozenset[Version]) -> Version:
    if text == "latest":
        return latest
    number = _NUMBER.fullmatch(text)
    if number is None or number[1] == "0":
        raise exception.BadRequest(
            reason=f"API Version String {text[:100]} is of invalid format. "
            "Must be of format MajorNum.MinorNum."
        )
    version = Version(int(number[1]), int(number[2]))
    if version not in known:
        raise exception.NotAcceptable(version=version, oldest=oldest, latest=latest)
    return version
