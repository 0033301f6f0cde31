# SPDX-License-Identifier: Apache-2.0
"""What a host does with a device: file systems, mounts, and who uses them."""
