# SPDX-License-Identifier: Apache-2.0
"""Whether secrets are sealed in the database, and can be opened; a check of attachd-status."""

from oslo_upgradecheck import upgradecheck

from attachd import exception
from attachd.db.secrets import encryption, rotation

Code = upgradecheck.Code
Result = upgradecheck.Result


def secrets(_checks: object) -> Result:
    """Whether there are keys, and each value is sealed with one of them."""
    try:
        keys = encryption.keys()
    except exception.ConfigurationError as error:
        return Result(Code.FAILURE, str(error))
    known = set() if keys is None else set(keys.by_id)
    counts = _counts()
    if missing := sorted(set(counts) - known - {rotation.NO_KEY}):
        return Result(
            Code.FAILURE,
            f"Secrets in the database are sealed with keys that are not there: "
            f"{', '.join(missing)}. Put them into the file of [secrets] key_file.",
        )
    if keys is None:
        return Result(
            Code.WARNING,
            f"{encryption.NOT_ENCRYPTED} When no process of a former release is left, make a "
            "file with attachd-manage key create.",
        )
    if plain := counts.get(rotation.NO_KEY):
        return Result(
            Code.WARNING,
            f"{plain} secrets in the database are not sealed: run attachd-manage key rotate.",
        )
    return Result(Code.SUCCESS)


def _counts() -> dict[str, int]:
    """Return how many values there are by key; none where that cannot be found out."""
    try:
        return rotation.count_by_key()
    except exception.AttachdError:
        return {}  # what is wrong is told by the check of the database
