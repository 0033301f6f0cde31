# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration of the release notes; read by sphinx-build."""

extensions = ["openstackdocstheme", "reno.sphinxext"]

project = "attachd release notes"
author = "attachd contributors"
copyright = author
# Release notes cover all releases.
version = release = ""

root_doc = "index"
pygments_style = "native"

# The pages load nothing from another server, and the search is Sphinx's: both work offline.
templates_path = ["../../doc/templates"]
html_short_title = "attachd release notes"
html_theme = "openstackdocs"
html_theme_options = {
    "analytics_tracking_code": "",
    "display_badge": False,
    "show_other_versions": False,
}
