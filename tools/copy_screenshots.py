# SPDX-License-Identifier: Apache-2.0
"""Copy screenshots of the status page to the page of the documentation that shows them.

    python tools/copy_screenshots.py FOLDER

FOLDER is where the test of the pictures has stored them: ``tox -e screenshots`` runs both.  Those
are copied that ``status-page.rst`` names.
"""

from pathlib import Path
import re
import shutil
import sys

PAGE = Path(__file__).parents[1] / "doc/source/admin/status-page.rst"
_PICTURE = re.compile(r"^\.\. (?:image|figure):: (status-page/\S+\.png)$", re.MULTILINE)


def find_pictures(text: str) -> list[str]:
    """Return the paths of the pictures of a page, relative to it."""
    return _PICTURE.findall(text)


def copy(folder: Path, page: Path) -> list[str]:
    """Copy the pictures of a page from a folder; return their paths."""
    named = find_pictures(page.read_text(encoding="utf-8"))
    for path in named:
        target = page.parent / path
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(folder / target.name, target)
    return named


def main() -> int:
    """Copy the pictures; 0 if the page names any."""
    copied = copy(Path(sys.argv[1]), PAGE)
    print("\n".join(copied))
    return 0 if copied else 1


if __name__ == "__main__":
    sys.exit(main())
