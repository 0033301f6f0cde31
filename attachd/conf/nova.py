# SPDX-License-Identifier: Apache-2.0
"""Options of the requests to Compute; the [nova] group, read by API, audit and managers.

Options that Cinder has too have the same names, so that a section can be copied.
"""

from oslo_config import cfg

from attachd.conf import service_connection

GROUP = "nova"

OPTIONS = [
    cfg.URIOpt(
        "endpoint_override",
        schemes=["http", "https"],
        help="The Compute API, with its version: http://compute.example:8774/v2.1. None: "
        "that of the service catalogue of the token; if that of a caller has none, Compute is not "
        "asked before an attachment is deleted.",
    ),
    cfg.URIOpt(
        "token_auth_url",
        schemes=["http", "https"],
        help="The Identity API, with its version, where the caller's token is exchanged for one "
        "with a service catalogue. Only needed where [keystone_authtoken] "
        "include_service_catalog is false and there is no endpoint_override. None: nowhere.",
    ),
    cfg.StrOpt(
        "auth_type",
        help="How an audit with --compute authenticates, and managers that notify Compute of "
        "volumes that have grown; for example password. Its other options, such as auth_url and "
        "username, are in this group too. Nothing else uses them. None: such an audit is refused, "
        "and Compute is not notified.",
    ),
    *service_connection.options("Compute", connect_timeout=3.0),
    cfg.IntOpt(
        "audit_requests",
        default=10000,
        min=1,
        help="How many requests an audit sends to Compute; what is not compared then is named.",
    ),
    cfg.IntOpt(
        "audit_timeout",
        default=600,
        min=1,
        help="Seconds after which an audit sends no more requests to Compute.",
    ),
    cfg.FloatOpt(
        "read_timeout",
        default=10.0,
        min=0.1,
        help="Seconds that Compute may be silent before the caller gets a 503.",
    ),
    cfg.StrOpt(
        "unknown_to_compute",
        default="any",
        choices=[
            (
                "any",
                (
                    "Any caller that may delete attachments, as the Block Storage API has always "
                    "had it."
                ),
            ),
            (
                "creator",
                (
                    "Only the user who made it. For deployments in which others than Compute, "
                    "such as bare metal or containers, attach volumes for servers of their own."
                ),
            ),
        ],
        help="Who may delete an attachment of a server of which Compute says that it does not "
        "have the volume.",
    ),
]
