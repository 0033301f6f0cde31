# SPDX-License-Identifier: Apache-2.0
"""Nova's own module for volumes, driven as Nova's compute manager drives it."""
