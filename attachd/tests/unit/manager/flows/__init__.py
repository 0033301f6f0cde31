# SPDX-License-Identifier: Apache-2.0
"""Unit tests of flows without rows; the driver is the recording one."""
