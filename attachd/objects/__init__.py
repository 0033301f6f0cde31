# SPDX-License-Identifier: Apache-2.0
"""What crosses RPC: versioned objects, thin; importing this registers them all."""

from attachd.objects.attachment import Attachment
from attachd.objects.volume import Volume

__all__ = ["Attachment", "Volume"]
