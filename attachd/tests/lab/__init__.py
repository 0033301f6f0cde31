# SPDX-License-Identifier: Apache-2.0
"""What is tried with virtual machines and os-brick; run by hand, see doc/source/contributor."""
