# SPDX-License-Identifier: Apache-2.0
"""Options of volume managers; the [manager] group, read by the manager and by the scheduler."""

from oslo_config import cfg

GROUP = "manager"

MIN_LEASE = 10
"""Seconds: a message queue may need some to connect again."""
MAX_LEASE = 86400
DEFAULT_LEASE = 60

MIN_CHAP_SECRET = 12
"""Characters; RFC 3720 has initiators and targets accept 96 bits."""
MAX_CHAP_SECRET = 32

DRIVER = cfg.StrOpt(
    "driver",
    help="The driver of this backend: a name under the entry point attachd.drivers. None: the "
    "manager does not start.",
)

BACKEND_OPTIONS = [
    DRIVER,
    cfg.StrOpt(
        "on_lost_agent",
        default="nothing",
        choices=[
            ("nothing", "as without leases"),
            ("mark", "show and report that the host is lost"),
            ("fence", "fence the host, so that its volumes can be attached elsewhere"),
        ],
        help="What managers do about a host with a volume of this backend whose agent is silent "
        "for `lost_agent_timeout`. A host is fenced with all its volumes if one of them asks for "
        "it. The extra spec of the same name of a volume's type wins.",
    ),
    cfg.IntOpt(
        "lost_agent_timeout",
        default=DEFAULT_LEASE,
        min=MIN_LEASE,
        max=MAX_LEASE,
        help="Seconds without a heartbeat of a host's agent after which `on_lost_agent` is done; "
        "with fence, the length of the lease: the agent stops writers after two thirds of it "
        "without a renewal. The extra spec of the same name of a volume's type wins.",
    ),
    cfg.IntOpt(
        "chap_secret_length",
        default=MAX_CHAP_SECRET,
        min=MIN_CHAP_SECRET,
        max=MAX_CHAP_SECRET,
        help="How many letters and digits the CHAP secrets of new iSCSI connections have. "
        "Initiators of Windows and of some adapters accept 12 to 16.",
    ),
    cfg.BoolOpt(
        "image_cache_enabled",
        default=False,
        help="Whether the backend keeps the images of which volumes are made as volumes of the "
        "project attachd-internal. Later volumes of such an image are clones. The driver needs "
        "the capability clone.",
    ),
    cfg.IntOpt(
        "image_cache_max_entries",
        default=0,
        min=0,
        help="How many images the cache of the backend has; the image that was used least "
        "recently is removed for another one. 0: unlimited.",
    ),
    cfg.IntOpt(
        "image_cache_max_gib",
        default=0,
        min=0,
        help="How many GiB all volumes of the image cache together may have. 0: unlimited.",
    ),
    cfg.IntOpt(
        "image_cache_timeout",
        default=1800,
        min=1,
        help="Seconds for which a new volume waits until another one has put their image into "
        "the cache. After that it gets the image without the cache.",
    ),
]
"""The options that every backend's own group has; the driver brings the others."""

OPTIONS = [
    cfg.IntOpt(
        "workers",
        default=1,
        min=1,
        help="How many processes one manager runs.",
    ),
    cfg.IntOpt(
        "threads_per_backend",
        default=16,
        min=1,
        help="How many requests one process executes at the same time for one backend. Requests "
        "for one volume wait in order, outside of these threads; free threads take the waiting "
        "requests of the projects in turn, and one project has at most three quarters of them. "
        "Requests for whose end no client waits, such as deletions, have at most half of them. "
        "Requests to connect hosts to one volume count as one "
        "if the driver grants in parallel.",
    ),
    cfg.IntOpt(
        "copies_per_backend",
        default=4,
        min=1,
        help="How many volumes one process copies at the same time for one backend; others wait. "
        "A project has at most three quarters of them.",
    ),
    cfg.IntOpt(
        "report_interval",
        default=10,
        min=1,
        help="Seconds between two reports of a backend: heartbeat, capabilities, capacity.",
    ),
    cfg.IntOpt(
        "condition_interval",
        default=60,
        min=0,
        help="Seconds between two observations of the condition of all attachments: what agents "
        "report of the devices, and what backends list of the sessions. 0: none is made.",
    ),
    cfg.IntOpt(
        "service_down_time",
        default=60,
        min=2,
        help="Seconds without a report after which a backend counts as down.",
    ),
    cfg.FloatOpt(
        "member_timeout",
        default=30.0,
        min=1.0,
        help="Seconds without a heartbeat after which a manager process counts as dead, and "
        "others take over its work. Each process sends a heartbeat every sixth of that time, "
        "and stops to use backends after two thirds of it without one. All managers must have "
        "the same value. The death of a process on the same machine is detected within a sixth.",
    ),
    cfg.IntOpt(
        "max_lease_fences_per_minute",
        default=10,
        min=1,
        help="How many hosts all managers together fence in a minute because their agents are "
        "silent; others wait. Commands to fence hosts do not count. All managers should have the "
        "same value.",
    ),
    cfg.IntOpt(
        "max_lost_hosts_percent",
        default=33,
        min=0,
        max=100,
        help="How many of the hosts with leases may be lost at the same time, in percent, "
        "rounded down, but at least one host. A host counts as lost from a third of its lease "
        "without a heartbeat on, and for ten minutes after a fence because of its lease. While "
        "more are lost, no host is fenced because of its lease: the service itself may be the "
        "cause. All managers should have the same value.",
    ),
    cfg.IntOpt(
        "max_attachments_per_host",
        default=0,
        min=0,
        help="How many attachments one host may have for one project and for services such as "
        "Compute, of all volumes at all backends; 0: unlimited. Those of users of other projects "
        "do not count. All managers should have the same value.",
    ),
    cfg.FloatOpt(
        "max_over_subscription_ratio",
        default=20.0,
        min=1.0,
        help="How many times its capacity a thin-provisioning backend may promise.",
    ),
    cfg.IntOpt(
        "message_ttl",
        default=30 * 24 * 3600,
        min=1,
        help="Seconds for which messages to users about failed background operations are kept.",
    ),
]
