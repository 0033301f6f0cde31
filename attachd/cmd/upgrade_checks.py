# SPDX-License-Identifier: Apache-2.0
"""Checks of attachd-status: options, backends, message queue, clocks, secrets, managers and
credentials for Compute.
"""

from collections.abc import Iterator
import os
from pathlib import Path
import pwd

from oslo_config import cfg
import oslo_messaging as messaging
from oslo_upgradecheck import upgradecheck

from attachd import compute, conf, exception
from attachd.api import filter_register
from attachd.conf import CONF, checking
from attachd.conf.upgrade_levels import AUTO
from attachd.db.cluster import services
from attachd.db.engine import clock_skew
from attachd.db.secrets import encryption, rotation
from attachd.manager import backends, flow_runner
from attachd.rpc import manager_api, transport, versions

Code = upgradecheck.Code
Result = upgradecheck.Result


SECONDS_APART = 5.0
"""Difference of clocks that is a warning."""

_SHORTEST_HEARTBEAT = 5
"""Seconds; RabbitMQ advises against less."""


def options(_checks: object) -> Result:
    """Whether all names in the configuration are known, and all values valid."""
    try:
        checking.check_values(CONF)
    except cfg.Error as error:
        return Result(Code.FAILURE, str(error))
    found = [str(unknown_option) for unknown_option in checking.find_unknown_options(CONF)]
    return Result(Code.WARNING, " ".join(found)) if found else Result(Code.SUCCESS)


def listed(_checks: object) -> Result:
    """Whether each enabled backend has a group that names its driver."""
    names = CONF.enabled_backends
    if not names:
        return Result(
            Code.WARNING, "enabled_backends is empty: no manager can run with this file."
        )
    without = [name for name in names if not _driver_of(name)]
    if without:
        return Result(
            Code.FAILURE,
            "These of enabled_backends have no group of their name with a driver in it: "
            f"{', '.join(without)}.",
        )
    return Result(Code.SUCCESS)


def _driver_of(name: str) -> str | None:
    CONF.register_opt(conf.manager.DRIVER, group=name)
    driver: str | None = CONF[name].driver
    return driver


def storage(_checks: object) -> Result:
    """Whether each backend's own check succeeds: its tools, directories and daemons."""
    if not CONF.enabled_backends:
        return Result(Code.SUCCESS)
    if foreign := _not_ours():
        return Result(Code.WARNING, foreign)
    try:
        loaded = backends.load()
    except (cfg.Error, exception.AttachdError, OSError) as error:
        return Result(Code.FAILURE, str(error))
    complaints = {backend.name: _complaint(backend) for backend in loaded}
    wrong = [f"Backend {name}: {said}" for name, said in complaints.items() if said]
    return Result(Code.FAILURE, " ".join(wrong)) if wrong else Result(Code.SUCCESS)


def _complaint(backend: backends.Backend) -> str:
    try:
        backend.driver.setup()
    except Exception as error:  # noqa: BLE001  a driver may raise anything
        return flow_runner.reason(error)
    return ""


def _not_ours() -> str:
    """Return why a check of the backends would create files that their manager cannot use."""
    folder = Path(CONF.state_path)
    try:
        owner = folder.stat().st_uid
    except OSError as error:
        return f"The backends were not checked: {folder} is missing ({error.strerror})."
    if owner == os.geteuid():
        return ""
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = f"the user {owner}"
    return f"The backends were not checked: {folder} is {name}'s, so run this as {name}."


def queue(_checks: object) -> Result:
    """Whether the message queue is reliable."""
    try:
        url = checking.parse_transport_url(CONF)
        # Made, not used: this is what the options of RabbitMQ come with.
        transport.get_transport()
    except cfg.Error as error:
        return Result(Code.FAILURE, str(error))
    finally:
        transport.close()
    if url.transport in {"fake", "kombu+memory", "inprocess"}:
        return Result(
            Code.WARNING,
            f"[DEFAULT] transport_url is {url.transport}: no other process can be reached.",
        )
    if url.transport not in {"rabbit", "kombu"}:
        return Result(Code.WARNING, f"attachd is not tested with {url.transport}.")
    found = [*_of_servers(url), *_of_rabbit()]
    return Result(Code.WARNING, " ".join(found)) if found else Result(Code.SUCCESS)


def agents(_checks: object) -> Result:
    """Whether the account of a host can command the managers, or register other hosts."""
    try:
        if checking.is_virtual_host_shared(CONF):
            return Result(
                Code.FAILURE,
                "[agent] transport_url names the virtual host of [DEFAULT] transport_url, so a "
                "host that has been taken over can command the managers. Create another virtual "
                "host for agents, or set [agent] enabled = false if there are none.",
            )
    except cfg.Error as error:
        return Result(Code.FAILURE, str(error))
    if CONF.agent.enabled and CONF.agent.allow_new:
        return Result(
            Code.WARNING,
            "[agent] allow_new: each account of the virtual host of the agents can register any "
            "new name of a host. Set it to false, and use attachd-manage agent add.",
        )
    return Result(Code.SUCCESS)


def _of_servers(url: messaging.TransportURL) -> Iterator[str]:
    guests = {host.hostname for host in url.hosts if host.username == "guest"}
    if guests - {"127.0.0.1", "::1", "localhost"}:
        yield "[DEFAULT] transport_url has the user guest, which RabbitMQ accepts locally only."
    if not url.virtual_host:
        yield (
            "[DEFAULT] transport_url names no virtual host: others in the default one can read "
            "and answer what is meant for attachd."
        )


def _of_rabbit() -> Iterator[str]:
    rabbit = CONF.oslo_messaging_rabbit
    if rabbit.rabbit_ha_queues:
        yield (
            "[oslo_messaging_rabbit] rabbit_ha_queues: mirrored queues are gone with RabbitMQ 4; "
            "use rabbit_quorum_queue."
        )
    if rabbit.rabbit_quorum_queue != rabbit.rabbit_transient_quorum_queue:
        yield (
            "[oslo_messaging_rabbit] rabbit_quorum_queue and rabbit_transient_quorum_queue "
            "differ: either calls or their answers are lost with a node."
        )
    if rabbit.heartbeat_timeout_threshold < _SHORTEST_HEARTBEAT:
        yield (
            f"[oslo_messaging_rabbit] heartbeat_timeout_threshold is "
            f"{rabbit.heartbeat_timeout_threshold} seconds: with less than {_SHORTEST_HEARTBEAT} "
            "a slow connection counts as a dead one, and with 0 a dead one is never noticed."
        )


def list_filters(_checks: object) -> Result:
    """Whether the file with the filters of lists is valid."""
    try:
        filter_register.load()
    except exception.ConfigurationError as error:
        return Result(Code.FAILURE, str(error))
    return Result(Code.SUCCESS)


def clock(_checks: object) -> Result:
    """Whether the clocks of this machine and the database agree."""
    try:
        ahead = clock_skew.database_offset()
    except exception.AttachdError:
        return Result(Code.SUCCESS, "Not checked: the database does not answer.")
    if abs(ahead) <= SECONDS_APART:
        return Result(Code.SUCCESS)
    where = "ahead of" if ahead > 0 else "behind"
    return Result(
        Code.WARNING,
        f"The database's clock is {abs(ahead):.0f} seconds {where} this machine's. Tokens may be "
        "refused, and times in logs differ.",
    )


def secrets(_checks: object) -> Result:
    """Whether there are keys, and each value is encrypted with one of them."""
    try:
        keys = encryption.keys()
    except exception.ConfigurationError as error:
        return Result(Code.FAILURE, str(error))
    known = set() if keys is None else set(keys.by_id)
    counts = _counts()
    if missing := sorted(set(counts) - known - {rotation.NO_KEY}):
        return Result(
            Code.FAILURE,
            f"Secrets in the database are encrypted with missing keys: "
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
            f"{plain} secrets in the database are not encrypted: run attachd-manage key rotate.",
        )
    return Result(Code.SUCCESS)


def _counts() -> dict[str, int]:
    """Return the number of values by key; none if the database fails."""
    try:
        return rotation.count_by_key()
    except exception.AttachdError:
        return {}  # the check of the database reports it


def managers(_checks: object) -> Result:
    """Whether managers of an older release are running."""
    try:
        spoken = services.versions()
    except exception.AttachdError:
        return Result(Code.SUCCESS, "Not checked: the database does not answer.")
    older = [
        f"{host} ({item.contract or 'unknown'})"
        for host, item in sorted(spoken.items())
        if item.alive and _is_former(item.contract)
    ]
    if not older:
        return Result(Code.SUCCESS)
    return Result(
        Code.WARNING,
        f"This code speaks version {manager_api.VERSION} of the RPC contract, and these managers "
        f"an older one: {', '.join(older)}. Until they are upgraded, [upgrade_levels] "
        "attachd_manager must not be newer than any of them; auto respects those that report it.",
    )


def pin(_checks: object) -> Result:
    """Whether a pin is left from the last upgrade."""
    pinned = CONF.upgrade_levels.attachd_manager
    if pinned == AUTO or not versions.is_older(pinned, manager_api.VERSION):
        return Result(Code.SUCCESS)
    return Result(
        Code.WARNING,
        f"[upgrade_levels] attachd_manager is {pinned}, and this code speaks "
        f"{manager_api.VERSION}. Set it to auto, or remove it, when all managers are upgraded.",
    )


def compute_events(_checks: object) -> Result:
    """Whether Compute can be notified of attached volumes that grow."""
    if not compute.has_credentials():
        return Result(
            Code.SUCCESS,
            "Compute is not notified when an attached volume grows: [nova] has no auth_type.",
        )
    try:
        compute.load_credentials()
    except exception.ConfigurationError as error:
        return Result(Code.FAILURE, str(error))
    return Result(Code.SUCCESS)


def _is_former(contract: str | None) -> bool:
    return contract is None or versions.is_older(contract, manager_api.VERSION)
