# SPDX-License-Identifier: Apache-2.0
"""Options of the status page; the [ui] group."""

from oslo_config import cfg

GROUP = "ui"

OPTIONS = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help="Whether the API serves the status page, under `/ui/`. Its files are public; a "
        "browser reads all data by the API, with the token or the password of its user.",
    ),
    cfg.URIOpt(
        "keystone_url",
        schemes=["http", "https"],
        help="The URL of Keystone's version 3, such as https://keystone.example.org/v3, where the "
        "status page gets a token for a name and a password. The browser sends them there "
        "itself, so Keystone needs `[cors] allowed_origin` with the origin of the page. None: a "
        "user of Keystone pastes a token.",
    ),
]
