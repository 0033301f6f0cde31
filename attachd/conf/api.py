# SPDX-License-Identifier: Apache-2.0
"""How the HTTP API behaves; the [api] group, read by room 1."""

from oslo_config import cfg

GROUP = "api"

OPTIONS = [
    cfg.StrOpt(
        "auth_strategy",
        choices=[
            (
                "noauth",
                (
                    "No authentication: for evaluation and tests, on loopback only. The project "
                    "is taken from the URL or from a token "
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
        help="How callers are authenticated. None: the API does not start, except "
        "attachd-all-in-one, which sets noauth.",
    ),
    cfg.StrOpt(
        "http_basic_user_file",
        default="/etc/attachd/htpasswd",
        help="Names and hashed passwords, as `htpasswd -B` writes them: bcrypt only. Only its "
        "owner and group may read it. A change takes effect at once.",
    ),
    cfg.StrOpt(
        "http_basic_roles_file",
        default="/etc/attachd/http_basic.yaml",
        help="Project and roles of each of these users, in YAML: "
        "`alice: {project: 0123abcd, roles: [member]}`. A change takes effect at once.",
    ),
    cfg.IntOpt(
        "max_limit",
        default=1000,
        min=1,
        help="The largest page of a list, in items.",
    ),
    cfg.IntOpt(
        "max_examined_rows",
        default=100_000,
        min=1,
        help="How many rows a list may sort by another key than created_at, search for a part of "
        "a value, count or skip: what would need more is refused, and asks for a filter.",
    ),
    cfg.IntOpt(
        "max_request_body_size",
        default=112 * 1024,
        min=1024,
        help="The largest accepted request body, in bytes; a larger one is answered with a 413. "
        "The default is that of Cinder's [oslo_middleware]max_request_body_size.",
    ),
    cfg.IntOpt(
        "idempotency_key_ttl",
        default=24 * 3600,
        min=60,
        help="Seconds for which an Idempotency-Key prevents that a request is executed twice; "
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
    cfg.IntOpt(
        "max_pending_per_project",
        default=64,
        min=0,
        help="How many attachments of a project may be connecting or disconnecting when a request "
        "with `Prefer: respond-async` is accepted; further ones get a 429, so that no project "
        "fills the queues of the managers. 0: unlimited.",
    ),
    cfg.FloatOpt(
        "max_requests_per_project",
        default=0,
        min=0,
        help="How many requests a second one process serves for a project, on average; those of "
        "ten seconds may come at once. Further ones get a 429, which is cheap. Requests of "
        "administrators, and of services for users, are not counted. Clients such as Compute do "
        "not repeat a request after a 429. 0: unlimited.",
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
        help="Regular expression of project ids in URLs.",
    ),
    cfg.IntOpt(
        "retry_after",
        default=5,
        min=1,
        max=3600,
        help="Seconds in the header `Retry-After` of answers with status 429, 503 and 504.",
    ),
    cfg.ListOpt(
        "health_detail_sources",
        default=["127.0.0.1/32", "::1/128"],
        help="The networks from which `GET /healthcheck?detailed` returns the state of database, "
        "message queue and each backend; requests through a proxy get the short answer.",
    ),
    cfg.StrOpt(
        "resource_query_filters_file",
        help="A JSON file with the filters of lists for callers who are no administrators, as in "
        '`{"volume": ["name", "status"]}`; a list that it does not name cannot be filtered. '
        "None: what `GET /resource_filters` says by default.",
    ),
]
