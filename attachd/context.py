# SPDX-License-Identifier: Apache-2.0
"""Request context: identity and roles of the caller, from the API to the manager."""

from collections.abc import Callable, Mapping
from typing import Any

from oslo_context import context as oslo_context

Authorizer = Callable[["RequestContext", str, Mapping[str, Any]], None]
"""Raises exception.Forbidden unless the rule allows the caller to act on the target."""


def _no_authorizer(_context: "RequestContext", rule: str, _target: Mapping[str, Any]) -> None:
    raise RuntimeError(f"{rule} was checked outside of the API, where policy is enforced")


class RequestContext(oslo_context.RequestContext):
    """Identity, roles and request id; crosses RPC as a small dict.

    :ivar policy_cache: decisions of policy in this request; used only by the policy module
    :ivar attachd_version: the requested version of attachd's own API; None: its fields are not
        shown
    :ivar by_service: whether the request carries the token of a service
    """

    def __init__(
        self,
        *args: Any,
        authorizer: Authorizer = _no_authorizer,
        by_service: bool = False,
        **kw: Any,
    ) -> None:
        super().__init__(*args, **kw)
        self.by_service = by_service
        self._authorizer = authorizer
        self.policy_cache: Any = None
        self.attachd_version: tuple[int, int] | None = None

    def authorize(self, rule: str, target: Any = None) -> None:
        """Check that policy allows the caller ``rule`` on ``target``.

        :param target: an object with ``project_id`` and ``user_id``; None: the caller's own
            project
        :raises Forbidden: naming the rule
        """
        owner = self if target is None else target
        self._authorizer(self, rule, {"project_id": owner.project_id, "user_id": owner.user_id})

    @classmethod
    def from_dict(cls, values: dict[str, Any], **kwargs: Any) -> "RequestContext":
        """Rebuild a context from the result of :meth:`to_dict`, on the other side of RPC."""
        kwargs.setdefault("by_service", values.get("by_service", False))
        return super().from_dict(values, **kwargs)


class _ServiceContext(RequestContext):
    """Context of attachd itself, as a type of its own."""


def get_admin_context() -> RequestContext:
    """Return the context of attachd itself, for work that no user has requested.

    In a thread that processes a request it has the ids of that request.
    """
    made = _ServiceContext(is_admin=True, overwrite=False)
    current = oslo_context.get_current()
    if current is not None and not isinstance(current, _ServiceContext):
        made.request_id = current.request_id
        made.global_request_id = current.global_request_id
    return made
