# SPDX-License-Identifier: Apache-2.0
"""How secrets are kept in the database; the [secrets] group, read by db/secrets/encryption.py."""

from oslo_config import cfg

GROUP = "secrets"

OPTIONS = [
    cfg.StrOpt(
        "key_file",
        help="The file with the keys that encrypt the secrets of connections in the database, "
        "an absolute path. It has one key per line: the first one encrypts, all of them "
        "decrypt. It must not be accessible to others than its owner and group. All processes of "
        "API and manager, on all hosts, need the same keys; attachd-manage key makes and changes "
        "them, and a changed file is noticed without a restart. None: secrets are stored as "
        "plain text.",
    ),
]
