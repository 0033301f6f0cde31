# SPDX-License-Identifier: Apache-2.0
"""The rows that hold a volume when one of the older calls arrives."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Self

import webob

from attachd.api import detach_guard, override
from attachd.api.endpoint import EndpointDoc
from attachd.context import RequestContext
from attachd.db.attachments import attachment_rows, legacy
from attachd.db.row_types import AttachmentRow
from attachd.objects import Volume
from attachd.states import AttachmentKind, AttachmentState

PATH = "/volumes/{volume_id}/action"

DOC = EndpointDoc(
    None, override.QUERY_PARAMETERS, (409, 429, 504), frozenset(override.QUERY_PARAMETERS)
)
"""The documentation of the actions that remove an attachment."""


class VolumeHolders(NamedTuple):
    """The rows that hold a volume, by kind; without secrets, oldest first.

    :ivar used: the attachments that count: not those whose connect failed
    :ivar allowed_states: as the guard returned them, by the id of the attachment
    """

    attachments: Sequence[AttachmentRow]
    used: Sequence[AttachmentRow]
    connections: Sequence[AttachmentRow]
    holds: Sequence[AttachmentRow]
    allowed_states: Mapping[str, detach_guard.AllowedStates] = MappingProxyType({})

    def for_caller(self, ctx: RequestContext, volume: Volume) -> Self:
        """Return only the rows of the caller who releases the volume.

        Without multiattach that is all of them, else what the caller has begun by the older calls.
        An administrator without a hold of their own acts for the user of the oldest hold.
        """
        if not volume.multiattach:
            return self
        user_id = ctx.user_id
        if ctx.is_admin and self.holds and not attachment_rows.of_user(self.holds, user_id):
            user_id = self.holds[0]["user_id"]
        legacy_attachments = attachment_rows.of_kind(self.used, AttachmentKind.LEGACY)
        return self._replace(
            used=attachment_rows.of_user(legacy_attachments, user_id),
            connections=attachment_rows.of_user(self.connections, user_id),
            holds=attachment_rows.of_user(self.holds, user_id),
        )

    @property
    def hold_ids(self) -> list[str]:
        """Return the ids of the holds, the oldest first."""
        return [row["id"] for row in self.holds]

    def unused_by(self, user_id: str | None) -> list[str]:
        """Return the ids of a user's connections that no attachment uses."""
        connections = attachment_rows.of_user(self.connections, user_id)
        return [row["id"] for row in connections if row["parent_id"] is None]

    def describe(self) -> str:
        """Return names and states of the attachments that count, ten at most."""
        pairs = [
            (attachment_rows.describe(row), AttachmentState(row["state"]).wire)
            for row in self.used[:10]
        ]
        return ", ".join(f"{name} ({state})" for name, state in pairs)

    @classmethod
    def checked(
        cls,
        ctx: RequestContext,
        request: webob.Request,
        volume_id: str,
        attachment_id: str | None = None,
    ) -> Self:
        """Load the rows, after the guard has checked that no server uses the volume.

        :param attachment_id: as the caller named it; None: the only one
        :raises AttachmentInUse: a server uses the volume, and detaches it through Compute
        """
        # In this order: a row that is added after the guard's check is not returned.
        loaded = cls.load(volume_id)
        allowed_states = detach_guard.check_volume(ctx, request, volume_id, attachment_id)
        return loaded._replace(allowed_states=allowed_states)

    @classmethod
    def load(cls, volume_id: str) -> Self:
        """Load the rows of a volume."""
        rows = legacy.list_rows(volume_id)
        attachments = attachment_rows.visible(rows)
        return cls(
            attachments,
            attachment_rows.holding(attachments),
            attachment_rows.of_kind(rows, AttachmentKind.CONNECTION),
            attachment_rows.of_kind(rows, AttachmentKind.HOLD),
        )
