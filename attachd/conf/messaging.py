# SPDX-License-Identifier: Apache-2.0
"""Defaults of oslo.messaging's options; set before its first transport is made."""

from collections.abc import Mapping
from typing import Final

from oslo_config import cfg
from oslo_messaging import opts

RABBIT: Final = "oslo_messaging_rabbit"
NOTIFICATIONS: Final = "oslo_messaging_notifications"

BROKERS: Final = frozenset({"rabbit", "kombu"})
"""Schemes of URLs with a broker, which may lose exchanges and queues."""

RABBIT_DEFAULTS: Final[Mapping[str, int]] = {
    # A broker that is silent for this long counts as lost, and so does a message to it.
    "heartbeat_timeout_threshold": 20,
    # A consumer reconnects at the latest this long after the broker is back.  Until then no
    # answer arrives, so a manager tries to send its answers for some time longer.
    "rabbit_interval_max": 5,
    "kombu_missing_consumer_retry_timeout": 30,
}
"""Defaults of [oslo_messaging_rabbit] other than those of oslo.messaging, in seconds."""


def list_opts() -> list[tuple[str | None, list[cfg.Opt]]]:
    """Return the options of oslo.messaging with attachd's defaults, for sample configurations."""
    groups: list[tuple[str | None, list[cfg.Opt]]] = opts.list_opts()
    cfg.set_defaults(dict(groups)[RABBIT], **RABBIT_DEFAULTS)
    return groups


def register() -> None:
    """Register the options, with attachd's defaults; oslo.messaging may register them again."""
    groups = dict(opts.list_opts())
    for name in (RABBIT, NOTIFICATIONS):
        cfg.CONF.register_opts(groups[name], group=name)
    for name, value in RABBIT_DEFAULTS.items():
        cfg.CONF.set_default(name, value, group=RABBIT)
