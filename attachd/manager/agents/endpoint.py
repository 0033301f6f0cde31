# SPDX-License-Identifier: Apache-2.0
"""What managers answer to the agents of hosts: the server half of agent_manager_api; for desk.py.

Only who shows the key of a host hears what is due there, and says how that went.  What they say
changes attachments of that host alone.
"""

from typing import Any

from oslo_log import log
import oslo_messaging as messaging

from attachd import exception
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db import agent_moves, agent_removal, agents
from attachd.manager.agents import desired_state, report_schema
from attachd.manager.rpc_decorators import answering
from attachd.rpc import agent_manager_api

LOG = log.getLogger(__name__)


class Registry:
    """The calls of agents; AttachdErrors are answers."""

    target = messaging.Target(version=agent_manager_api.VERSION)

    @answering
    def report(
        self, _context: RequestContext, host: str, key: str, report: agent_manager_api.Report
    ) -> list[agent_manager_api.DesiredState]:
        """See agent_manager_api.report()."""
        report_schema.check_proof(host, key)
        report_schema.check(report)
        _let_in(host, key)
        stored: dict[str, Any] = {**report, "way": report["connector_type"]}
        del stored["connector_type"]
        agents.report(host, stored)
        return desired_state.due(host)

    @answering
    def desired_state(
        self, _context: RequestContext, host: str, key: str, attachment_id: str
    ) -> agent_manager_api.DesiredState | None:
        """See agent_manager_api.desired_state()."""
        _check(host, key, attachment_id=attachment_id)
        return next(iter(desired_state.due(host, attachment_id)), None)

    @answering
    def connected(
        self,
        _context: RequestContext,
        host: str,
        key: str,
        attachment_id: str,
        generation: int,
        device: str,
    ) -> None:
        """See agent_manager_api.connected()."""
        _check(host, key, attachment_id=attachment_id, generation=generation, device=device)
        desired_state.completed(attachment_id, host, generation, device)

    @answering
    def connect_failed(
        self,
        _context: RequestContext,
        host: str,
        key: str,
        attachment_id: str,
        generation: int,
        error: str,
    ) -> None:
        """See agent_manager_api.connect_failed()."""
        _check(host, key, attachment_id=attachment_id, generation=generation, error=error)
        agent_moves.note_failure(attachment_id, host, generation, error)

    @answering
    def disconnected(
        self, context: RequestContext, host: str, key: str, attachment_id: str, generation: int
    ) -> None:
        """See agent_manager_api.disconnected()."""
        _check(host, key, attachment_id=attachment_id, generation=generation)
        desired_state.released(context, attachment_id, host, generation)

    @answering
    def detach_refused(
        self,
        _context: RequestContext,
        host: str,
        key: str,
        attachment_id: str,
        generation: int,
        error: str,
    ) -> None:
        """See agent_manager_api.detach_refused()."""
        _check(host, key, attachment_id=attachment_id, generation=generation, error=error)
        agent_moves.keep(attachment_id, host, generation, error)


def _check(host: str, key: str, **said: object) -> None:
    """Let the agent of a host say something that makes sense.

    :raises InvalidInput: it does not
    :raises Forbidden: another one is the agent, by its key
    :raises AgentNotFound: nobody knows the host
    """
    report_schema.check_proof(host, key)
    report_schema.check_said(**said)
    agents.check(host, key)


def _let_in(host: str, key: str) -> None:
    """Find out whether somebody may be the agent of a host; the first one who says so may.

    Not where the host has attachments: their secrets are for whoever had the forgotten key, or
    whom an administrator gives a new one.

    :raises Forbidden: another one is, or nobody knows the host and new ones are not let in
    """
    try:
        agents.check(host, key)
    except exception.AgentNotFound:
        if why := _why_not_new(host):
            raise exception.Forbidden(
                f"No agent of host {host} is known, and {why}. An administrator makes it known, "
                f"with its key: attachd-manage agent add {host}"
            ) from None
        if agents.add(host, key):
            LOG.info("Host %s has an agent from now on", host)
        agents.check(host, key)  # somebody else may have been faster


def _why_not_new(host: str) -> str:
    """Tell why nobody becomes the agent of an unknown host by saying so; "" if one may."""
    if not CONF.agent.allow_new:
        return "new ones are not let in ([agent] allow_new)"
    if agent_removal.attachments_of(host):
        return "it has attachments, which a new one is not trusted with"
    return ""
