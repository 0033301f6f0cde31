# SPDX-License-Identifier: Apache-2.0
"""Options of images and of the requests to the Image service; the [glance] group, read by API and
managers.
"""

from oslo_config import cfg

from attachd.conf import service_connection

GROUP = "glance"

OPTIONS = [
    cfg.StrOpt(
        "auth_type",
        help="How API and managers authenticate to the Image service; for example password. Its "
        "other options, such as auth_url and username, are in this group too. The user needs a "
        "role with which the Image service shows images of all projects, such as admin: managers "
        "read with it what a caller was allowed to read. None: images are not supported.",
    ),
    *service_connection.options("the Image service", connect_timeout=5.0),
    cfg.URIOpt(
        "endpoint_override",
        schemes=["http", "https"],
        help="The Image API, with or without its version: http://glance.example:9292. None: that "
        "of the service catalogue.",
    ),
    cfg.FloatOpt(
        "read_timeout",
        default=60.0,
        min=0.1,
        help="Seconds that the Image service may be silent, also in the middle of an image, of "
        "which it has to send 64 KiB in that time.",
    ),
    cfg.IntOpt(
        "transfer_retries",
        default=2,
        min=0,
        help="How often a manager starts the transfer of an image again that was interrupted.",
    ),
    cfg.ListOpt(
        "disk_formats",
        default=["raw", "iso", "qcow2", "vmdk", "vdi", "vhd", "vhdx"],
        help="The formats of images that volumes may be made of. All but raw and iso are "
        "converted by qemu-img in a process of its own that reaches nothing else.",
    ),
    cfg.StrOpt(
        "signed_images",
        default="refuse",
        choices=[
            ("refuse", "No volume is made of an image with a signature."),
            ("ignore", "The signature is not verified; the checksum always is."),
        ],
        help="What happens to images with a signature, which this service cannot verify.",
    ),
    cfg.BoolOpt(
        "enable_force_upload",
        default=False,
        help="Whether a volume in use can be uploaded to an image, by os-volume_upload_image with "
        "force. The image has the data of a snapshot, as after a power failure. Otherwise force "
        "is ignored.",
    ),
    cfg.StrOpt(
        "conversion_dir",
        help="The directory for images while they are converted. A file there has no name and "
        "goes with its process. None: conversion, in state_path.",
    ),
    cfg.IntOpt(
        "conversion_free_space",
        default=1,
        min=0,
        help="GiB that a conversion leaves free in conversion_dir; it ends with an error before.",
    ),
    cfg.IntOpt(
        "conversion_memory",
        default=1024,
        min=128,
        help="MiB of address space for one conversion.",
    ),
    cfg.IntOpt(
        "conversion_timeout",
        default=3600,
        min=1,
        help="Seconds for one conversion, of time and of a processor.",
    ),
]
