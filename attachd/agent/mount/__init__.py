# SPDX-License-Identifier: Apache-2.0
"""File systems and mounts of devices, and the processes that use them."""
