# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration of the API reference; read by sphinx-build."""

from importlib import metadata

extensions = ["openstackdocstheme", "os_api_ref"]

project = "attachd API reference"
author = "attachd contributors"
copyright = author
version = release = metadata.version("attachd")
# The theme would replace it by a version from git.
openstackdocs_auto_version = False

root_doc = "index"
pygments_style = "native"

html_theme = "openstackdocs"
html_theme_options = {
    "display_badge": False,
    "show_other_versions": False,
    "sidebar_dropdown": "api_ref",
    "sidebar_mode": "toc",
}
