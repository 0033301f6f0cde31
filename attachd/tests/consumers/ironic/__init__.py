# SPDX-License-Identifier: Apache-2.0
"""Ironic's own module for volumes, driven as Ironic's conductor drives it."""
