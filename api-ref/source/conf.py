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

# The pages load nothing from another server, and the search is Sphinx's: both work offline.
templates_path = ["../../doc/templates"]
html_short_title = "attachd API reference"
html_theme = "openstackdocs"
html_theme_options = {
    "analytics_tracking_code": "",
    "display_badge": False,
    "show_other_versions": False,
    "sidebar_mode": "toc",
}
