# SPDX-License-Identifier: Apache-2.0
"""Compare the database with a backend and with hosts, and repair what is safe to repair."""
