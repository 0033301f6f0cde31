# SPDX-License-Identifier: Apache-2.0
"""Images of the Image service: requests, checks, and their way into a volume."""
