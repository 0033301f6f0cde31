# SPDX-License-Identifier: Apache-2.0
"""The flows by themselves, without rows; the driver is the recording one."""
