# SPDX-License-Identifier: Apache-2.0
"""Command line: the command attachd, and plug-ins of ``openstack`` and ``cinder``."""
