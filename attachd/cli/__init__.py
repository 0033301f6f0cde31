# SPDX-License-Identifier: Apache-2.0
"""What people type: the command attachd, and what it adds to ``openstack`` and ``cinder``."""
