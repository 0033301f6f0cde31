# SPDX-License-Identifier: Apache-2.0
"""Fences and drains of hosts, as the API begins them and managers finish them."""
