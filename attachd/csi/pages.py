# SPDX-License-Identifier: Apache-2.0
"""Pages of lists: a token is the id of the last volume or snapshot of the page before."""

from attachd.platforms.calls import CallError, ErrorCode
from attachd.platforms.errors import StorageError
from attachd.platforms.resources import Page, Resources, T, is_id


def check_max_entries(max_entries: int) -> None:
    """Check the number of entries that a caller wants at most; raises CallError."""
    if max_entries < 0:
        raise CallError(ErrorCode.INVALID_ARGUMENT, "The field max_entries must not be negative.")


def read(resources: Resources[T], max_entries: int, token: str, **filters: str) -> Page[T]:
    """Return a page of volumes or snapshots.

    :param max_entries: 0: as many as the API returns at once
    :param token: "": the first page
    :param filters: of the API
    :raises CallError: ABORTED: there is nothing of the token; INVALID_ARGUMENT
    """
    check_max_entries(max_entries)
    wrong = CallError(
        ErrorCode.ABORTED, f"The token {token} is not valid. Start again without one."
    )
    if token and not is_id(token):
        raise wrong
    try:
        return resources.page(max_entries, token or None, **filters)
    except StorageError as error:
        raise (wrong if error.reason == "marker_not_found" else error) from error
