# SPDX-License-Identifier: Apache-2.0
"""What containers of a host need of the volumes that its agent has attached."""
