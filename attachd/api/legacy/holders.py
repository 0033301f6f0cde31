# SPDX-License-Identifier: Apache-2.0
"""What there is of a volume when one of the older calls comes; used by their handlers."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import webob

from attachd.api import detach_guard, override
from attachd.api.endpoint import EndpointDoc
from attachd.context import RequestContext
from attachd.db import holders, legacy
from attachd.objects import Volume
from attachd.states import AttachmentKind, AttachmentState

Row = dict[str, Any]

PATH = "/volumes/{volume_id}/action"

DOC = EndpointDoc(None, override.QUERY_PARAMETERS, (409, 504))
"""What clients are told of what takes an attachment away."""


class VolumeHolders(NamedTuple):
    """What there is of a volume, by kind; without secrets, oldest first.

    :ivar used: those of the attachments that count: not those that never came to be
    :ivar allowed_states: what the guard said, by the id of the attachment
    """

    attachments: Sequence[Row]
    used: Sequence[Row]
    connections: Sequence[Row]
    holds: Sequence[Row]
    allowed_states: Mapping[str, detach_guard.AllowedStates] = MappingProxyType({})

    def for_caller(self, ctx: RequestContext, volume: Volume) -> Self:
        """Narrow it to what was begun by whoever gives the volume back now.

        That is all of it where there can be one only, else what the caller has begun by the
        older calls.  Administrators who have not take back what somebody else has.
        """
        if not volume.multiattach:
            return self
        whose = ctx.user_id
        if ctx.is_admin and self.holds and not holders.of_user(self.holds, whose):
            whose = self.holds[0]["user_id"]
        legacy_ones = holders.of_kind(self.used, AttachmentKind.LEGACY)
        return self._replace(
            used=holders.of_user(legacy_ones, whose),
            connections=holders.of_user(self.connections, whose),
            holds=holders.of_user(self.holds, whose),
        )

    @property
    def hold_ids(self) -> list[str]:
        """Return the ids of the holds, the oldest first."""
        return [row["id"] for row in self.holds]

    def unused_by(self, user_id: str | None) -> list[str]:
        """Return the ids of the connections that a user opened and nobody has said the use of."""
        ext_version = holders.of_user(self.connections, user_id)
        return [row["id"] for row in ext_version if row["serves"] is None]

    def describe(self) -> str:
        """Name those that count with their states, ten at most."""
        pairs = [(holders.name(row), AttachmentState(row["state"]).wire) for row in self.used[:10]]
        return ", ".join(f"{name} ({state})" for name, state in pairs)

    @classmethod
    def checked(
        cls,
        ctx: RequestContext,
        request: webob.Request,
        volume_id: str,
        attachment_id: str | None = None,
    ) -> Self:
        """Look, once it is known that nobody minds when the volume is taken from them.

        :param attachment_id: as named by the caller; None: whichever the volume has
        :raises AttachmentInUse: a server uses the volume: Compute detaches it
        """
        # In this order: what comes after the guard has looked is not there.
        loaded = cls.load(volume_id)
        allowed_states = detach_guard.check_volume(ctx, request, volume_id, attachment_id)
        return loaded._replace(allowed_states=allowed_states)

    @classmethod
    def load(cls, volume_id: str) -> Self:
        """Look."""
        rows = legacy.rows(volume_id)
        attachments = holders.shown(rows)
        return cls(
            attachments,
            holders.counted(attachments),
            holders.of_kind(rows, AttachmentKind.CONNECTION),
            holders.of_kind(rows, AttachmentKind.HOLD),
        )
