# SPDX-License-Identifier: Apache-2.0
"""Attacher volumes to the host that this runs on, by programs; see :class:`Client`."""

from attachd.client.client import Attached, Client, LocalAttachment

__all__ = ["Attached", "Client", "LocalAttachment"]
