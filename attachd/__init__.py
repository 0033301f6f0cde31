# SPDX-License-Identifier: Apache-2.0
"""attachd attaches block storage volumes to hosts, and detaches them again."""
