# SPDX-License-Identifier: Apache-2.0
"""Events of attachments: the timeline of one attachment, and a watch on all of them."""
