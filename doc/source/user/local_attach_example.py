# SPDX-License-Identifier: Apache-2.0
"""Write a file to a volume: python local_attach_example.py VOLUME FOLDER."""

from pathlib import Path
import sys

import openstack

from attachd.client import Client

volume, folder = sys.argv[1:]
with openstack.connect() as cloud:
    client = Client(cloud, progress=print)
    attached = client.attach(volume, mountpoint=folder, mkfs="xfs")
    Path(folder, "letter").write_text("kept", encoding="utf-8")
    print(f"{attached.path} is attached by {attached.attachment_id}")
    for attachment in client.attached():
        print(attachment.volume_id, attachment.status)
    client.detach(volume)
