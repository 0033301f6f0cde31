# SPDX-License-Identifier: Apache-2.0
"""How the HTTP API behaves; the [api] group, read by room 1."""

from oslo_config import cfg

GROUP = "api"

OPTIONS = [
    cfg.StrOpt(
        "auth_strategy",
        default="noauth",
        choices=[
            (
                "noauth",
                (
                    "Nobody is asked who they are: for trying out and for tests, on loopback "
                    "only. The project is taken from the URL or from a token "
                    "`user:project[:role,role]`."
                ),
            ),
            ("keystone", "By tokens of Keystone, checked as [keystone_authtoken] says."),
            (
                "http_basic",
                (
                    "By name and password, checked against the files of http_basic_user_file and "
                    "http_basic_roles_file: for a service without Keystone, behind TLS."
                ),
            ),
        ],
        help="How callers prove who they are.",
    ),
    cfg.StrOpt(
        "http_basic_user_file",
        default="/etc/attachd/htpasswd",
        help="Names and hashed passwords, as `htpasswd -B` writes them: bcrypt only. Others than "
        "its owner and group must not read it. A change counts at once.",
    ),
    cfg.StrOpt(
        "http_basic_roles_file",
        default="/etc/attachd/http_basic.yaml",
        help="Project and roles of each of these users, in YAML: "
        "`alice: {project: 0123abcd, roles: [member]}`. A change counts at once.",
    ),
    cfg.IntOpt(
        "max_limit",
        default=1000,
        min=1,
        help="The largest page of a list, in items.",
    ),
    cfg.IntOpt(
        "max_request_body_size",
        default=1024 * 1024,
        min=1024,
        help="The largest request body that is read, in bytes; a larger one is refused.",
    ),
    cfg.IntOpt(
        "max_connector_size",
        default=64 * 1024,
        min=1024,
        help="The largest connector that is kept with an attachment, in bytes of JSON.",
    ),
    cfg.IntOpt(
        "idempotency_key_ttl",
        default=24 * 3600,
        min=60,
        help="For how long an Idempotency-Key keeps a request from being done twice, in seconds; "
        "clients must not repeat a request after that.",
    ),
    cfg.IntOpt(
        "reservation_ttl",
        default=0,
        min=0,
        help="Seconds after which an attachment is removed that was only reserved and never got a "
        "connector; a request can ask for less. 0: never, as clients of the Block Storage API "
        "are used to.",
    ),
    cfg.URIOpt(
        "public_endpoint",
        schemes=["http", "https"],
        help="The base of all links in answers, where a proxy hides the real one. "
        "None: the URL of the request.",
    ),
    cfg.StrOpt(
        "project_id_regex",
        default=r"[0-9a-f\-]+",
        help="What counts as a project id in URLs.",
    ),
    cfg.IntOpt(
        "retry_after",
        default=5,
        min=1,
        max=3600,
        help="Seconds after which a caller who got a 503 or a 504 may try again, as the header "
        "`Retry-After` says.",
    ),
    cfg.ListOpt(
        "health_detail_sources",
        default=["127.0.0.1/32", "::1/128"],
        help="The networks from which `GET /healthcheck?detailed` tells how database, message "
        "queue and each backend are; what comes through a proxy gets the short answer.",
    ),
    cfg.StrOpt(
        "resource_query_filters_file",
        help="A JSON file that says what others than administrators may filter lists by, as in "
        '`{"volume": ["name", "status"]}`; a list that it does not name cannot be filtered. '
        "None: what `GET /resource_filters` says by default.",
    ),
]
