# SPDX-License-Identifier: Apache-2.0
"""The API's calls for attachments, events and agents; used by the commands.

openstacksdk signs and sends the requests; it has no methods for attachd's own calls.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib import parse
import uuid

from openstack import connection, exceptions

from attachd.client.service import Sender, readable_errors

ATTACHMENTS = "3.44"
"""The microversion that has all calls for attachments."""
MODE = "3.54"
"""The microversion that introduced a mode at creation."""
ATTACHD_1_0 = {"OpenStack-API-Version": "volume 3.71, attachd 1.0"}
"""Requests attachd's own fields."""
ATTACHD_1_1 = {"OpenStack-API-Version": "volume 3.71, attachd 1.1"}
"""Requests what attachd 1.1 has: fences and drains of hosts, attachments that replace others or
move, and the condition of attachments."""
ATTACHD_IF_ANY = {"OpenStack-API-Version": f"volume {ATTACHMENTS}, attachd 1.1"}
"""Requests attachd's own behaviour where there is one; Cinder ignores what is not its own."""

UNLIMITED = -1
"""The limit of a quota that permits any number."""

_SLACK = 30
_ATTACHD_FILTERS = frozenset({"agent", "created_at", "updated_at", "deleted"})
_NEEDS_ATTACHD_1_0 = frozenset({"expires_in", "host"})
_NEEDS_ATTACHD_1_1 = frozenset({"instead_of", "move_from"})

Attachment = dict[str, Any]
Agent = dict[str, Any]
Host = dict[str, Any]
Event = dict[str, Any]


class BlockStorage:
    """The Block Storage API of a cloud; all errors are openstack.exceptions.SDKException."""

    def __init__(self, cloud: connection.Connection) -> None:
        self._sender = Sender(cloud)
        self._proxy = self._sender.proxy

    def volume_id(self, name_or_id: str, *, all_projects: bool = False) -> str:
        """Return the id of a volume.

        :raises NotFoundException: there is none
        :raises DuplicateResource: there are several of this name
        """
        with readable_errors():
            found = self._proxy.find_volume(name_or_id, all_projects=all_projects)
        if found is None:
            raise exceptions.NotFoundException(f"There is no volume {name_or_id}.")
        return str(found.id)

    def create(self, requested: Mapping[str, Any]) -> Attachment:
        """Reserve a volume, and connect it if there is a connector or a host with an agent.

        :param requested: ``attachment`` of the body
        """
        asked: dict[str, Any] = {"microversion": MODE if "mode" in requested else ATTACHMENTS}
        # With a key, what is sent again after a broken connection is the same attachment.
        headers = {"Idempotency-Key": f'"{uuid.uuid4()}"'}
        if _NEEDS_ATTACHD_1_1 & requested.keys():
            asked, headers = {}, headers | ATTACHD_1_1
        elif _NEEDS_ATTACHD_1_0 & requested.keys():
            asked, headers = {}, headers | ATTACHD_1_0
        body = {"attachment": dict(requested)}
        return self._one("POST", "/attachments", json=body, headers=headers, **asked)

    def attach_set(self, requested: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Attach volumes on a host by its agent; return the result of each.

        :param requested: ``attach_set`` of the body
        """
        headers = ATTACHD_1_1 | {"Idempotency-Key": f'"{uuid.uuid4()}"'}
        return self._act_on_set({"attach_set": dict(requested)}, headers)

    def detach_set(self, attachment_ids: Sequence[str]) -> list[dict[str, Any]]:
        """Delete attachments at the same time; return the result of each."""
        return self._act_on_set({"detach_set": {"attachments": [*attachment_ids]}}, ATTACHD_1_1)

    def _act_on_set(
        self, body: Mapping[str, Any], headers: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        answer = self._ask("POST", "/attachments/action", json=body, headers=headers)
        results: list[dict[str, Any]] = answer["results"]
        return results

    def dry_run(self, requested: Mapping[str, Any]) -> dict[str, Any]:
        """Return whether :meth:`create` could do the same now, and why not; nothing is changed."""
        body = {"attachment": dict(requested)}
        headers = ATTACHD_1_1 if _NEEDS_ATTACHD_1_1 & requested.keys() else ATTACHD_1_0
        found: dict[str, Any] = self._ask(
            "POST", "/attachments", json=body, headers=headers, params={"dry_run": "true"}
        )["dry_run"]
        return found

    def update(self, attachment_id: str, connector: Mapping[str, Any]) -> Attachment:
        """Connect the host of a connector."""
        body = {"attachment": {"connector": dict(connector)}}
        path = _path("attachments", attachment_id)
        return self._one("PUT", path, json=body, microversion=ATTACHMENTS)

    def complete(self, attachment_id: str) -> None:
        """Report that the host uses the volume; attachd refuses it if no host has access."""
        path = _path("attachments", attachment_id, "action")
        self._ask("POST", path, json={"os-complete": None}, headers=ATTACHD_IF_ANY)

    def finish_move(self, attachment_id: str) -> Attachment:
        """End the access of the attachment that this one takes over from."""
        path = _path("attachments", attachment_id, "action")
        return self._one("POST", path, json={"finish_move": {}}, headers=ATTACHD_1_1)

    def delete(self, attachment_id: str, query: Mapping[str, str] | None = None) -> None:
        """Revoke the host's access and delete the attachment.

        :param query: ``force`` and ``override_reason`` of attachd
        """
        asked: dict[str, Any] = {"microversion": ATTACHMENTS}
        if query:
            asked = {"headers": ATTACHD_1_0, "params": dict(query)}
        self._ask("DELETE", _path("attachments", attachment_id), **asked)

    def show(self, attachment_id: str) -> Attachment:
        """Return an attachment, with the secrets of its connection and the fields of attachd."""
        return self._one("GET", _path("attachments", attachment_id), headers=ATTACHD_IF_ANY)

    def attachments(self, query: Mapping[str, str], *, detail: bool = False) -> list[Attachment]:
        """Return attachments, newest first; or deleted ones, if the query asks for those.

        :param query: filters, and ``limit`` and ``marker``; without a limit all are read
        :param detail: with the mode, the time and the condition
        """
        path = "/attachments/detail" if detail else "/attachments"
        found: list[Attachment] = []
        asked = dict(query)
        settings: dict[str, Any] = {"microversion": ATTACHMENTS}
        if detail:
            settings = {"headers": ATTACHD_IF_ANY}
        if _ATTACHD_FILTERS & query.keys():
            settings = {"headers": ATTACHD_1_1}
        while True:
            answer = self._ask("GET", path, params=asked, **settings)
            page = answer["attachments"]
            found += page
            # Without attachd 1.0 only an empty page says that there are no more.
            if "limit" in query or not page:
                return found
            asked["marker"] = page[-1]["id"]

    def timeline(self, attachment_id: str) -> list[Event]:
        """Return the events of an attachment, oldest first."""
        path = _path("attachments", attachment_id, "timeline")
        found: list[Event] = self._ask("GET", path, headers=ATTACHD_1_0)["timeline"]
        return found

    def events(self, query: Mapping[str, str], wait: int = 0) -> tuple[list[Event], int]:
        """Return events of attachments.

        :param query: filters, and ``since`` and ``wait``
        :param wait: seconds that the answer may take
        :returns: the events, and the revision to continue from
        """
        # A cached answer would have no new events.
        settings: dict[str, Any] = {"timeout": wait + _SLACK, "skip_cache": True}
        try:
            body = self._ask("GET", "/events", params=dict(query), headers=ATTACHD_1_0, **settings)
        except exceptions.NotFoundException as error:
            raise exceptions.SDKException(f"This service has no events: {error}") from error
        return body["events"], int(body["revision"])

    def agents(self) -> list[Agent]:
        """Return all agents."""
        return _read_pages(self._ask, "/agents", "agents", ATTACHD_1_0)

    def agent(self, host: str) -> Agent:
        """Return the agent of a host."""
        agent: Agent = self._ask("GET", _path("agents", host), headers=ATTACHD_1_0)["agent"]
        return agent

    def delete_agent(self, host: str) -> None:
        """Delete the agent of a host without attachments."""
        self._ask("DELETE", _path("agents", host), headers=ATTACHD_1_0)

    def _one(self, method: str, path: str, **request: Any) -> Attachment:
        attachment: Attachment = self._ask(method, path, **request)["attachment"]
        return attachment

    def _ask(self, method: str, path: str, **request: Any) -> Any:
        return self._sender.send(method, path, **request)


class Quotas(BlockStorage):
    """The calls for the quota of attachments."""

    def attachment_quota(self, project_id: str) -> dict[str, Any]:
        """Return ``limit`` and ``in_use`` of the attachments of a project."""
        path = _path("os-quota-sets", project_id)
        answer = self._ask("GET", path, headers=ATTACHD_1_0, params={"usage": "true"})
        found: dict[str, Any] | None = answer["quota_set"].get("attachments")
        if found is None:
            raise exceptions.SDKException("This service has no quota of attachments.")
        return {"limit": found["limit"], "in_use": found["in_use"]}

    def set_attachment_quota(self, project_id: str, limit: int, *, force: bool) -> None:
        """Set the limit of the attachments of a project.

        :param limit: -1: any number
        :param force: also below what it has
        """
        body = {"quota_set": {"attachments": limit, "force": force}}
        path = _path("os-quota-sets", project_id)
        self._ask("PUT", path, json=body, headers=ATTACHD_1_0)


class HostControl(BlockStorage):
    """The calls that fence and drain hosts."""

    def hosts(self) -> list[Host]:
        """Return all hosts that are fenced or drained."""
        return _read_pages(self._ask, "/hosts", "hosts", ATTACHD_1_1)

    def host(self, name: str) -> Host:
        """Return a host, and whether it is fenced or drained."""
        host: Host = self._ask("GET", _path("hosts", name), headers=ATTACHD_1_1)["host"]
        return host

    def fence(self, name: str, reason: str, lift: str) -> list[dict[str, Any]]:
        """Fence a host; return its attachments, each with the result.

        :param lift: "auto": a new start of the host lifts the fence; or "manual"
        """
        body = {"fence": {"reason": reason, "lift": lift}}
        fence = self._ask("POST", _path("hosts", name, "fence"), json=body, headers=ATTACHD_1_1)
        fenced: list[dict[str, Any]] = fence["fence"]["attachments"]
        return fenced

    def unfence(self, name: str) -> None:
        """Lift the fence of a host."""
        path = _path("hosts", name, "unfence")
        self._ask("POST", path, json={"unfence": None}, headers=ATTACHD_1_1)

    def drain(self, name: str, requested: Mapping[str, Any]) -> Host:
        """Take a host out of service; return it, with the progress.

        :param requested: ``drain`` of the body
        """
        path = _path("hosts", name, "drain")
        body = {"drain": dict(requested)}
        host: Host = self._ask("POST", path, json=body, headers=ATTACHD_1_1)["host"]
        return host

    def resume(self, name: str) -> None:
        """Put a host back into service."""
        path = _path("hosts", name, "resume")
        self._ask("POST", path, json={"resume": None}, headers=ATTACHD_1_1)


def _read_pages(
    ask: Callable[..., Any], path: str, key: str, headers: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return all items of a list that is sorted by hosts."""
    found: list[dict[str, Any]] = []
    query: dict[str, str] = {}
    while True:
        answer = ask("GET", path, params=query, headers=headers)
        found += answer[key]
        if not answer.get(f"{key}_links"):
            return found
        query = {"marker": found[-1]["host"]}


def _path(*parts: str) -> str:
    """Return the path with quoted parts, as users may type any character."""
    return "".join(f"/{parse.quote(part, safe='')}" for part in parts)
