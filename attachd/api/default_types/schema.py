# SPDX-License-Identifier: Apache-2.0
"""What bodies of requests on default types look like; used by handlers.py."""

from typing import Final

from attachd.api.fields import NAME, enclosed, fields

PUT: Final = enclosed("default_type", fields({"volume_type": NAME}, "volume_type"))
