# SPDX-License-Identifier: Apache-2.0
"""The format of log lines: oslo.log's, without an error that the message has named already.

oslo.log adds the error that is being handled to each warning and error, so that a message with its
reason would say the reason twice.
"""

import logging
from typing import Any

from oslo_config import cfg
from oslo_log import formatters

OWN = "attachd"
"""The logger of this package: its messages have the reasons of failures."""


class Formatter(formatters.ContextFormatter):
    """Formats a line; the summary of an error is there once.

    With a traceback it is in the line unless the message has the text of the error.  Messages of
    other packages without a traceback keep it.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and the traceback below it."""
        text: str = super().format(record)
        summary = getattr(record, "error_summary", "")
        if summary and _is_said(record, summary):
            # The message comes first.
            return text.replace(f": {summary}", "", 1)
        return text


def _is_said(record: logging.LogRecord, summary: str) -> bool:
    if not record.exc_info:
        return record.name.partition(".")[0] == OWN
    _kind, _colon, reason = summary.partition(": ")
    message = record.getMessage()
    # A message for people leaves out the kind of an error: "Backend error: ".
    return bool(reason) and any(
        part in message for part in (reason, reason.partition(": ")[2]) if part
    )


def use(config: cfg.ConfigOpts, project: str, version: str) -> None:
    """Have the handlers of the root logger use it in place of oslo.log's own formatter."""
    settings: dict[str, Any] = {"project": project, "version": version, "config": config}
    for handler in logging.getLogger().handlers:
        former = handler.formatter
        if type(former) is formatters.ContextFormatter:
            handler.setFormatter(Formatter(datefmt=former.datefmt, **settings))
