# SPDX-License-Identifier: Apache-2.0
"""Resources and actions of the Block Storage API that this service does not support.

A list of an unsupported resource that users own is empty, so that dashboards and clients that
read all resources of a project continue.  Every other request to an unsupported resource gets a
404 of the API with a sentence that says why: by every method, at and below its URL, in the
requested microversion.  An unsupported action gets a 400,
after policy and the existence of the volume were checked, so that it discloses nothing else.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn

from attachd import exception
from attachd.api import microversions as mv
from attachd.api import paging
from attachd.api.endpoint import Endpoint, action
from attachd.api.volumes import load, policy
from attachd.context import RequestContext

Body = dict[str, Any]

ACTION_PATH: Final = "/volumes/{volume_id}/action"

UNSUPPORTED_RESOURCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "/backups": "backups",
        "/groups": "groups of volumes",
        "/group_types": "group types",
        "/group_snapshots": "snapshots of groups",
        "/consistencygroups": "consistency groups",
        "/cgsnapshots": "snapshots of consistency groups",
    }
)
"""The resources, in the plural, by their URL."""


class EmptyCollection(NamedTuple):
    """A list without elements.

    :ivar key: of the list in the answer
    :ivar details: whether ``/detail`` below the URL answers likewise
    :ivar counted: whether ``with_count`` adds the count
    """

    key: str
    since: mv.Version = mv.MINIMUM
    details: bool = True
    counted: bool = False


EMPTY_COLLECTIONS: Final[Mapping[str, EmptyCollection]] = MappingProxyType(
    {
        "/backups": EmptyCollection("backups", counted=True),
        "/groups": EmptyCollection("groups", mv.GROUP_VOLUME),
        "/group_types": EmptyCollection("group_types", mv.GROUP_TYPE, details=False),
        "/group_snapshots": EmptyCollection("group_snapshots", mv.GROUP_SNAPSHOTS),
        "/consistencygroups": EmptyCollection("consistencygroups"),
        "/cgsnapshots": EmptyCollection("cgsnapshots"),
    }
)
"""The lists of the resources that users own, by their URL."""


class UnsupportedAction(NamedTuple):
    """An action on a volume.

    :ivar reason: why it is not supported, and what to do instead
    """

    name: str
    policy: str
    reason: str
    since: mv.Version = mv.BASE


UNSUPPORTED_ACTIONS: Final = (
    UnsupportedAction(
        "os-migrate_volume",
        policy.MIGRATE,
        "Volumes are not migrated by this service: create a volume at the other backend and "
        "copy the data.",
    ),
    UnsupportedAction(
        "os-migrate_volume_completion",
        policy.MIGRATE_COMPLETION,
        "Volumes are not migrated by this service: there is nothing to complete.",
    ),
)


def list_endpoints() -> list[Endpoint]:
    """Return the endpoints that answer at and below the URL of each unsupported resource."""
    return [
        Endpoint("*", path, mv.MINIMUM, mv.LATEST, None, None, 404, _not_found(name), ())
        for path, name in UNSUPPORTED_RESOURCES.items()
    ]


def list_empty_collections() -> list[Endpoint]:
    """Return the endpoints of the empty lists."""
    return [
        Endpoint(
            *("GET", url, collection.since, mv.LATEST, None, None, 200),
            _empty(collection),
            ("query", "version"),
        )
        for path, collection in EMPTY_COLLECTIONS.items()
        for url in ([path, f"{path}/detail"] if collection.details else [path])
    ]


def _empty(collection: EmptyCollection) -> Callable[[Mapping[str, str], mv.Version], Body]:
    def index(query: Mapping[str, str], version: mv.Version) -> Body:
        answer: Body = {collection.key: []}
        if collection.counted and paging.pop_with_count(dict(query), version):
            answer["count"] = 0
        return answer

    return index


def _not_found(resources: str) -> Callable[[], NoReturn]:
    def refuse() -> NoReturn:
        raise exception.ResourceUnsupported(things=resources)

    return refuse


def _refused(unsupported: UnsupportedAction) -> Callable[[RequestContext, str], NoReturn]:
    def refuse(ctx: RequestContext, volume_id: str) -> NoReturn:
        """Answer 400, with the reason."""
        load.get(ctx, volume_id, unsupported.policy)
        raise exception.BadRequest(
            reason=f"{unsupported.name} is not supported. {unsupported.reason}"
        )

    return refuse


for _action in UNSUPPORTED_ACTIONS:
    action(ACTION_PATH, _action.name, since=_action.since, policy=_action.policy)(
        _refused(_action)
    )
