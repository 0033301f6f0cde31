# SPDX-License-Identifier: Apache-2.0
"""Driver for logical volumes of LVM, exported by the kernel's targets."""
