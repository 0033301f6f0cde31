# SPDX-License-Identifier: Apache-2.0
"""Room 4, the host: what makes a granted volume a device, by hand or for an agent."""
