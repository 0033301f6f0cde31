# SPDX-License-Identifier: Apache-2.0
"""The manager: a daemon that carries out at the backends what the API has stored in rows."""
