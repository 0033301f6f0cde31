# SPDX-License-Identifier: Apache-2.0
"""Whether all managers speak what this code speaks; checks of attachd-status."""

from oslo_upgradecheck import upgradecheck

from attachd import exception
from attachd.conf import CONF
from attachd.conf.upgrade_levels import AUTO
from attachd.db.cluster import services
from attachd.rpc import manager_api, version_pins

Code = upgradecheck.Code
Result = upgradecheck.Result


def managers(_checks: object) -> Result:
    """Whether managers of a former release are still at work."""
    try:
        spoken = services.versions()
    except exception.AttachdError:
        return Result(Code.SUCCESS, "Not looked at: the database does not answer.")
    older = [
        f"{host} ({each.contract or 'not told'})"
        for host, each in sorted(spoken.items())
        if each.alive and _is_former(each.contract)
    ]
    if not older:
        return Result(Code.SUCCESS)
    return Result(
        Code.WARNING,
        f"This code speaks version {manager_api.VERSION} of the RPC contract, and these managers "
        f"an older one: {', '.join(older)}. Until they are upgraded, [upgrade_levels] "
        "attachd_manager must not be newer than any of them; auto knows of those that tell.",
    )


def pin(_checks: object) -> Result:
    """Whether a pin has been left from the last upgrade."""
    pinned = CONF.upgrade_levels.attachd_manager
    if pinned == AUTO or not version_pins.is_older(pinned, manager_api.VERSION):
        return Result(Code.SUCCESS)
    return Result(
        Code.WARNING,
        f"[upgrade_levels] attachd_manager is {pinned}, and this code speaks "
        f"{manager_api.VERSION}. Set it to auto, or remove it, when all managers are upgraded.",
    )


def _is_former(contract: str | None) -> bool:
    return contract is None or version_pins.is_older(contract, manager_api.VERSION)
