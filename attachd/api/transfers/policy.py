# SPDX-License-Identifier: Apache-2.0
"""Policy rules of transfers of volumes to other projects."""

from attachd.api import policy_rules

CREATE = "volume:create_transfer"
ACCEPT = "volume:accept_transfer"
DELETE = "volume:delete_transfer"
GET = "volume:get_transfer"
GET_ALL = "volume:get_all_transfers"

RULES = [
    policy_rules.rule(
        CREATE,
        policy_rules.MEMBER,
        "Offer a volume to another project.",
        "POST /volume-transfers",
        "POST /os-volume-transfer",
    ),
    policy_rules.rule(
        GET_ALL,
        policy_rules.READER,
        "List the transfers of a project's volumes.",
        "GET /volume-transfers",
        "GET /volume-transfers/detail",
        "GET /os-volume-transfer",
        "GET /os-volume-transfer/detail",
    ),
    policy_rules.rule(
        GET,
        policy_rules.READER,
        "Show a transfer of a volume.",
        "GET /volume-transfers/{transfer_id}",
        "GET /os-volume-transfer/{transfer_id}",
    ),
    policy_rules.rule(
        ACCEPT,
        policy_rules.MEMBER,
        "Accept a volume of another project; the request also needs the key of the transfer.",
        "POST /volume-transfers/{transfer_id}/accept",
        "POST /os-volume-transfer/{transfer_id}/accept",
    ),
    policy_rules.rule(
        DELETE,
        policy_rules.MEMBER,
        "Withdraw the offer of a volume.",
        "DELETE /volume-transfers/{transfer_id}",
        "DELETE /os-volume-transfer/{transfer_id}",
    ),
]
