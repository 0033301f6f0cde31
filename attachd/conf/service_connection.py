# SPDX-License-Identifier: Apache-2.0
"""The options of a connection to another service of the cloud, which several groups have."""

from oslo_config import cfg


def options(service: str, connect_timeout: float) -> list[cfg.Opt]:
    """Return the options of where a service is, and of how its certificate is checked.

    :param service: its name, for the help
    :param connect_timeout: the default, in seconds
    """
    return [
        cfg.StrOpt(
            "auth_section",
            help="The group that has auth_type and its options, for example keystone_authtoken. "
            "None: this one.",
        ),
        cfg.StrOpt(
            "region_name",
            help=f"The region of {service}. None: the first one of the catalogue.",
        ),
        cfg.StrOpt(
            "interface",
            default="public",
            choices=["public", "internal", "admin"],
            help="Which of the endpoints in the catalogue is used.",
        ),
        cfg.FloatOpt(
            "connect_timeout",
            default=connect_timeout,
            min=0.1,
            help=f"Seconds that a connection to {service} may take.",
        ),
        cfg.BoolOpt(
            "insecure",
            default=False,
            help=f"Whether to believe any certificate of {service}.",
        ),
        cfg.StrOpt(
            "cafile",
            help=f"The certificate authorities, in PEM, that vouch for {service}. None: the "
            "system's.",
        ),
        cfg.StrOpt(
            "certfile",
            help=f"The certificate, in PEM, that this service shows to {service}. None: it shows "
            "none.",
        ),
        cfg.StrOpt(
            "keyfile",
            help="The key, in PEM, of the certificate in certfile. None: it is in the same file.",
        ),
    ]
