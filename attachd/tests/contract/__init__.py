# SPDX-License-Identifier: Apache-2.0
"""The contracts of drivers, RPC and the wire; for authors of drivers."""
