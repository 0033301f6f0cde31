# SPDX-License-Identifier: Apache-2.0
"""Log levels of this process, by logger; changed at run time by the API and by managers."""

from collections.abc import Iterator
import logging
from typing import Final

from oslo_log import log

LEVELS: Final = ("INFO", "WARNING", "ERROR", "DEBUG")


def change(prefix: str, level: str) -> None:
    """Set the level of loggers until the process ends.

    :param prefix: of their names; empty: all of attachd's and of OpenStack's libraries
    :param level: one of LEVELS
    """
    for logger in _loggers(prefix):
        logger.setLevel(level)


def current(prefix: str) -> dict[str, str]:
    """Return the levels by the names of loggers.

    :param prefix: as of change()
    """
    return {
        logger.name: logging.getLevelName(logger.getEffectiveLevel())
        for logger in _loggers(prefix)
    }


def _loggers(prefix: str) -> Iterator[logging.Logger]:
    # Libraries without oslo.log may log secrets: they have to be named explicitly.
    listed = log.get_loggers()
    for name, logger in sorted(logging.root.manager.loggerDict.items()):
        selected = name.startswith(prefix) if prefix else name in listed
        if selected and isinstance(logger, logging.Logger):
            yield logger
