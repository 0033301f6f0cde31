# SPDX-License-Identifier: Apache-2.0
"""The driver for volumes as files on an NFS share."""
