# SPDX-License-Identifier: Apache-2.0
"""Deletion of volumes and snapshots, which goes on in attachd when the caller has given up."""

import http

from attachd.platforms import waiting
from attachd.platforms.calls import CallError, ErrorCode
from attachd.platforms.errors import StorageError
from attachd.platforms.resources import Resources, T


def delete(resources: Resources[T], resource_id: str) -> None:
    """Delete a resource, and wait until it is gone; one that is gone is a success.

    :param resources: those of its kind
    :raises CallError: UNAVAILABLE: it could not be deleted; ABORTED: the caller does not wait so
        long; or as the API refuses it
    """
    resource = resources.get(resource_id)
    if resource is not None and resource.status != "deleting":
        resource = _request(resources, resource)
    if resource is not None:
        resource = waiting.wait_while(resources, resource, {"deleting"}, "being deleted")
    if resource is not None:
        reason = resources.find_failure(resource.id)
        raise CallError(
            ErrorCode.UNAVAILABLE,
            f"{resources.describe(resource.id)} could not be deleted, and is {resource.status}: "
            f"{reason}",
        )


def _request(resources: Resources[T], resource: T) -> T | None:
    """Have a resource deleted; return it as it is then, or None if it is gone."""
    try:
        resources.delete(resource.id)
    except StorageError as error:
        if error.status != http.HTTPStatus.NOT_FOUND:
            raise
    return resources.get(resource.id)
