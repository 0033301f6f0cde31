# SPDX-License-Identifier: Apache-2.0
"""What every driver must keep and what the wire promises; for authors of drivers."""
