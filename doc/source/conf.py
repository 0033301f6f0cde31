# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration of the documentation; read by sphinx-build."""

import importlib
from importlib import metadata
from pathlib import Path
import sys

from attachd.api.openapi import document

sys.path.append(str(Path(__file__).parents[2] / "tools"))
state_diagram = importlib.import_module("state_diagram")

extensions = [
    "openstackdocstheme",
    "oslo_config.sphinxconfiggen",
    "oslo_config.sphinxext",
    "oslo_policy.sphinxext",
    "oslo_policy.sphinxpolicygen",
    "sphinx.ext.graphviz",
]

project = "attachd"
author = "attachd contributors"
copyright = author
version = release = metadata.version("attachd")
# The theme would replace it by a version from git.
openstackdocs_auto_version = False

root_doc = "index"
exclude_patterns = ["contributor/_generated/*", "user/_generated/*"]
nitpicky = True
pygments_style = "native"

# The pages load nothing from another server, and the search is Sphinx's: both work offline.
templates_path = ["../templates"]
html_short_title = "attachd"
html_theme = "openstackdocs"
html_theme_options = {
    "analytics_tracking_code": "",
    "display_badge": False,
    "show_other_versions": False,
}
graphviz_output_format = "svg"

# Pages that are generated from the code.
config_generator_config_file = [("../../etc/attachd/config-generator.conf", "_static/attachd")]
policy_generator_config_file = [("../../etc/attachd/policy-generator.conf", "_static/attachd")]

_drawing = Path(__file__).parent / "contributor" / "_generated" / "states.rst"
_drawing.parent.mkdir(exist_ok=True)
_drawing.write_text(state_diagram.page())

_description = Path(__file__).parent / "user" / "_generated" / "openapi.json"
_description.parent.mkdir(exist_ok=True)
_description.write_text(document.to_json(document.describe()))
