# SPDX-License-Identifier: Apache-2.0
"""Who asks: identity and roles of one request, from the HTTP hook to the manager."""

from collections.abc import Callable, Mapping
from typing import Any

from oslo_context import context as oslo_context

Authorizer = Callable[["RequestContext", str, Mapping[str, Any]], None]
"""Raises exception.Forbidden unless the rule allows the caller to act on the target."""


def _no_authorizer(_context: "RequestContext", rule: str, _target: Mapping[str, Any]) -> None:
    raise RuntimeError(f"{rule} was asked for outside of the API, where policy is enforced")


class RequestContext(oslo_context.RequestContext):
    """Identity, roles and request id; crosses RPC as a small dict.

    :ivar policy_cache: what policy has decided in this request; its own affair
    """

    def __init__(self, *args: Any, authorizer: Authorizer = _no_authorizer, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self._authorizer = authorizer
        self.policy_cache: Any = None

    def authorize(self, rule: str, target: Any = None) -> None:
        """Let the caller go on only if policy allows ``rule`` on ``target``.

        :param target: an object with ``project_id`` and ``user_id``, or None for the caller's
            own project
        :raises Forbidden: naming the rule
        """
        owner = self if target is None else target
        self._authorizer(self, rule, {"project_id": owner.project_id, "user_id": owner.user_id})

    @classmethod
    def from_dict(cls, values: dict[str, Any], **kwargs: Any) -> "RequestContext":
        """Rebuild what :meth:`to_dict` made on the other side of RPC."""
        return super().from_dict(values, **kwargs)


class _ServiceContext(RequestContext):
    """That of attachd itself; tells them apart from those of requests."""


def get_admin_context() -> RequestContext:
    """Return the context of attachd itself, for what no user asked for.

    If this thread works on a request it has that one's ids, so that both are found by them.
    """
    made = _ServiceContext(is_admin=True, overwrite=False)
    current = oslo_context.get_current()
    if current is not None and not isinstance(current, _ServiceContext):
        made.request_id = current.request_id
        made.global_request_id = current.global_request_id
    return made
