# SPDX-License-Identifier: Apache-2.0
"""Agents of hosts and what the service asks of them; the [agent] group, read on both sides."""

import socket

from oslo_config import cfg, types

GROUP = "agent"

MAX_ATTACHMENTS = 4096
"""The highest limit of attachments that an agent may report for its host."""

OPTIONS = [
    cfg.BoolOpt(
        "enabled",
        default=True,
        help="Whether managers serve agents. Without agents set false: neither the API nor the "
        "managers use `transport_url` then.",
    ),
    cfg.StrOpt(
        "transport_url",
        secret=True,
        help="The URL of the virtual host of the message queue in which agents and managers "
        "meet. None: [DEFAULT]transport_url. Agents use an account of their host there. For the "
        "API and managers it has to be another virtual host than that of [DEFAULT]transport_url: "
        "in that one, the account of a host could command the managers.",
    ),
    cfg.StrOpt(
        "host",
        default=socket.gethostname(),
        sample_default="<the machine's name>",
        max_length=255,
        help="The name of the host that this agent attaches to, as callers name it.",
    ),
    cfg.StrOpt(
        "state_path",
        default="/var/lib/attachd/host",
        help="The directory of the host's journal, which records what is attached to it, by hand "
        "or by its agent. It holds secrets of connections, and is for root alone.",
    ),
    cfg.StrOpt(
        "local_socket",
        default="",
        help="The path of a unix socket, such as /run/attachd/agent.sock, by which programs of "
        "root on this host ask the agent for the devices of attachments, such as attachd-csi. "
        "Empty: there is none.",
    ),
    cfg.StrOpt(
        "key_file",
        help="The file with the key by which the agent proves its identity. None: agent.key in "
        "`state_path`. The first start creates it.",
    ),
    cfg.StrOpt(
        "connector_type",
        default="auto",
        choices=[
            ("auto", "user-space where the kernel has no SCSI, else kernel"),
            ("kernel", "os-brick with the initiators of the kernel"),
            ("user-space", "QEMU's storage daemon and a loop device"),
        ],
        help="How devices are made of volumes.",
    ),
    cfg.StrOpt(
        "initiator",
        help="The iSCSI name of the host. None: that of the machine, or one that the journal "
        "keeps.",
    ),
    cfg.StrOpt(
        "nic",
        help="The network interface whose address backends get. None: the kernel's routes decide.",
    ),
    cfg.BoolOpt("multipath", default=False, help="Whether to use all paths to a volume."),
    cfg.BoolOpt(
        "enforce_multipath",
        default=False,
        help="Whether to fail where multipathd does not run, rather than to use one path.",
    ),
    cfg.StrOpt(
        "libvirt_uri",
        help="The libvirt by which nova-compute runs guests on this host, such as "
        "qemu:///system: the agent defines a secret there for each attachment of Compute that "
        "needs a key, such as those of Ceph, and removes it. None: it defines none. `host` has to "
        "be the name that nova-compute has in its option host.",
    ),
    cfg.BoolOpt(
        "report_others",
        default=True,
        help="Whether the agent reports the devices of the host that it has not made itself, such "
        "as those that nova-compute connects: for the condition of their attachments, for audits, "
        "and so that a volume is not taken from a host that still has its device. The agent only "
        "reads files of the kernel for it.",
    ),
    cfg.ListOpt(
        "grow_filesystems",
        item_type=types.String(choices=["ext4", "xfs", "btrfs"]),
        default=[],
        help="The types of file systems that the agent lets grow when their volume has grown, "
        "wherever they are mounted on the host: ext4 (also ext2 and ext3), xfs, btrfs. Not while "
        "another host has the volume too. Others are reported in the condition of the attachment.",
    ),
    cfg.IntOpt(
        "trim_interval",
        default=0,
        min=0,
        help="Seconds after which the agent frees again the blocks that file systems on its "
        "volumes do not use, as fstrim does, where they are mounted for writing and their storage "
        "takes discarded blocks: 604800 is a week. 0: it does not, such as where fstrim.timer of "
        "the distribution does.",
    ),
    cfg.IntOpt(
        "max_attachments",
        min=1,
        max=MAX_ATTACHMENTS,
        help="How many attachments this host can take, such as because of its bus or its memory. "
        "The agent reports it, and the service refuses to attach more by the name of the host. "
        "Connections of Compute whose connector has this name count, and are not refused. What is "
        "attached stays if the limit is lowered. None: any number.",
    ),
    cfg.IntOpt(
        "report_interval",
        default=10,
        min=1,
        help="Seconds between two reports of an agent: heartbeat, connector, devices.",
    ),
    cfg.IntOpt(
        "down_time",
        default=60,
        min=2,
        help="Seconds without a report after which an agent counts as away.",
    ),
    cfg.IntOpt(
        "work_timeout",
        default=120,
        min=1,
        help="Seconds the API waits for an agent to make a device, or to take it away.",
    ),
    cfg.IntOpt(
        "host_timeout",
        default=600,
        min=1,
        help="Seconds after which an agent kills the work on a volume that has not ended, such as "
        "of os-brick or one of its commands, and reports an error. A flush of much data may take "
        "minutes.",
    ),
    cfg.IntOpt(
        "threads",
        default=8,
        min=1,
        help="How many volumes an agent connects or disconnects at the same time.",
    ),
    cfg.BoolOpt(
        "allow_new",
        default=False,
        help="Whether the first report of an unknown host makes it known, with the key "
        "that it shows. Any account of the virtual host can then register any new name of a host, "
        "and gets the secrets of its connections: for evaluation only. attachd-manage agent add "
        "makes hosts known otherwise.",
    ),
    cfg.BoolOpt(
        "lift_fences",
        default=True,
        help="Whether the fence of a host whose lift is auto, such as one at the end of a lease, "
        "is lifted when its agent reports that the host was started again and has no device left. "
        "A host that was taken over can report so, too: set "
        "false where an administrator is to check each host that was fenced.",
    ),
]
