#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Install pip from PyPI into the virtual environment whose Python runs this.

For a Python without ensurepip, as Debian's is, where the package python3-venv cannot be
installed.
"""

import hashlib
import json
from pathlib import Path
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request

URL = "https://pypi.org/pypi/pip/json"
"""What PyPI has of the newest pip: https://docs.pypi.org/api/json/"""

TIMEOUT = 60
"""Seconds that PyPI may be silent."""


def main() -> None:
    """Download the wheel, check it, and let it install itself."""
    with urllib.request.urlopen(URL, timeout=TIMEOUT) as answer:
        files = json.load(answer)["urls"]
    wheel = next(file for file in files if file["packagetype"] == "bdist_wheel")
    # PyPI's URLs are absolute, those of a mirror may be relative.
    url = urllib.parse.urljoin(URL, wheel["url"])
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:  # noqa: S310 - a URL of PyPI's
        content = answer.read()
    if hashlib.sha256(content).hexdigest() != wheel["digests"]["sha256"]:
        sys.exit(f"{url} is not what PyPI says it is; try again.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / wheel["filename"]
        path.write_bytes(content)
        # A wheel is a zip archive, out of which Python can run pip.
        subprocess.run([sys.executable, path / "pip", "install", "--no-index", path], check=True)


if __name__ == "__main__":
    main()
