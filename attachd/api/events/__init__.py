# SPDX-License-Identifier: Apache-2.0
"""What has become of attachments: a timeline of each, and all of them for those who watch."""
