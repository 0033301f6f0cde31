# SPDX-License-Identifier: Apache-2.0
"""A connector without the kernel's initiators: QEMU's storage daemon and a loop device."""
