# SPDX-License-Identifier: Apache-2.0
"""Attach a volume to a host and detach it: python sdk_attach_example.py VOLUME."""

import sys

import openstack

CONNECTOR = {"host": "node1", "initiator": "iqn.1993-08.org.debian:01:a1"}

with openstack.connect() as cloud:
    storage = cloud.block_storage
    volume = storage.find_volume(sys.argv[1], ignore_missing=False)
    attachment = storage.create_attachment(volume.id)
    try:
        attachment = storage.update_attachment(attachment, connector=CONNECTOR)
        print("connect by", attachment.connection_info["driver_volume_type"])
        # Make the device here, then:
        storage.complete_attachment(attachment)
        print("the volume is", storage.get_volume(volume.id).status)
        # Use the volume, and remove the device.
    finally:
        storage.delete_attachment(attachment)
    print("the volume is", storage.get_volume(volume.id).status)
