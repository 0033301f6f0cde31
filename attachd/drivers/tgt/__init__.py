# SPDX-License-Identifier: Apache-2.0
"""Driver for iSCSI targets of tgtd, the user-space target daemon."""
