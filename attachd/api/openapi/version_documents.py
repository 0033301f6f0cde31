# SPDX-License-Identifier: Apache-2.0
"""The version documents as OpenAPI describes them: the only answers that need no token."""

from typing import Any

from attachd.api.openapi import response_schemas

Schema = dict[str, Any]


def paths() -> Schema:
    """Describe the URLs at which clients look for versions."""
    return {
        "/": {"get": _operation("get_versions", "List the versions of the API.", "300")},
        "/v3/": {"get": _operation("get_version", "Show the only version.", "200")},
    }


def _operation(name: str, summary: str, status: str) -> Schema:
    return {
        "operationId": name,
        "summary": summary,
        "security": [],
        "responses": {
            status: {
                "description": summary,
                "content": {"application/json": {"schema": _SCHEMA}},
            },
            "400": {"$ref": f"#/components/responses/{response_schemas.name(400)}"},
            "406": {"$ref": f"#/components/responses/{response_schemas.name(406)}"},
        },
    }


_TEXT: Schema = {"type": "string"}


def _whole(properties: Schema, *optional: str) -> Schema:
    required = [name for name in properties if name not in optional]
    shape = {"type": "object", "properties": properties}
    return {**shape, "required": required, "additionalProperties": False}


_SCHEMA: Schema = _whole(
    {
        "versions": {
            "type": "array",
            "items": _whole(
                {
                    **dict.fromkeys(("id", "status", "version", "min_version", "updated"), _TEXT),
                    "links": {
                        "type": "array",
                        "items": _whole({"rel": _TEXT, "type": _TEXT, "href": _TEXT}, "type"),
                    },
                    "media-types": {
                        "type": "array",
                        "items": _whole({"base": _TEXT, "type": _TEXT}),
                    },
                }
            ),
        }
    }
)
