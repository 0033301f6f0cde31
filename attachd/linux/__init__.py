# SPDX-License-Identifier: Apache-2.0
"""What drivers and agents use of the machine that they run on; it imports no layer above."""
