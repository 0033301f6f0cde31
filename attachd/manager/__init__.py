# SPDX-License-Identifier: Apache-2.0
"""Room 2, the daemon: carries out at the backends what the API has written down."""
