# SPDX-License-Identifier: Apache-2.0
"""Policy rules of the default types of projects."""

from attachd.api import policy

PUT = "volume_extension:default_set_or_update"
GET = "volume_extension:default_get"
GET_ALL = "volume_extension:default_get_all"
DELETE = "volume_extension:default_unset"

_ITEM = "/default-types/{default_project_id}"

RULES = [
    policy.rule(PUT, policy.ADMIN, "Set a project's default volume type.", f"PUT {_ITEM}"),
    policy.rule(GET, policy.ADMIN, "Show a project's default volume type.", f"GET {_ITEM}"),
    policy.rule(
        GET_ALL, policy.ADMIN, "List the default volume types of projects.", "GET /default-types"
    ),
    policy.rule(DELETE, policy.ADMIN, "Unset a project's default volume type.", f"DELETE {_ITEM}"),
]
