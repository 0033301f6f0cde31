# SPDX-License-Identifier: Apache-2.0
"""Attaching volumes to the host that this runs on, by programs; see :class:`Client`."""

from attachd.client.client import Attached, Client
from attachd.client.listing import LocalAttachment

__all__ = ["Attached", "Client", "LocalAttachment"]
