# SPDX-License-Identifier: Apache-2.0
"""Python client for attaching volumes to the local host; see :class:`Client`."""

from attachd.client.client import Attached, Client, LocalAttachment

__all__ = ["Attached", "Client", "LocalAttachment"]
