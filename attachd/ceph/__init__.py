# SPDX-License-Identifier: Apache-2.0
"""Ceph, as managers and agents read it: its Python modules, and headers of images."""
