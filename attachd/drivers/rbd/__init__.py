# SPDX-License-Identifier: Apache-2.0
"""Images of a Ceph cluster, with a cephx user for each attachment."""
