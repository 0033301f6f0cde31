# SPDX-License-Identifier: Apache-2.0
"""The status page under /ui: static files; the page reads all data by the API."""
