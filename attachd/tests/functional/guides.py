# SPDX-License-Identifier: Apache-2.0
"""Commands and files out of a guide in reStructuredText; for tests that do what a guide says.

A ``code-block:: console`` has commands: lines after ``#`` or ``$``, continued after ``>`` or a
backslash; what is between them is what is printed.  A block with a ``:caption:`` that is a path
is a file.  A ``:class:`` tells for whom a block is, if not for everybody.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
import re

_BLOCK = re.compile(
    r"^\.\. code-block:: (?P<language>\w+)\n"
    r"(?P<options>(?:   :.*\n)*)\n"
    r"(?P<text>(?:(?:   .*)?\n)+)",
    re.MULTILINE,
)
_OPTION = re.compile(r":(\w+): *(.*)")
_PROMPTS = ("# ", "$ ")


@dataclass(frozen=True)
class Block:
    """One piece of a guide.

    :ivar language: console, ini and so on
    :ivar file: where the text belongs; "" for everything that is no file
    :ivar readers: for whom it is; "" for everybody
    """

    language: str
    file: str
    readers: str
    text: str

    @property
    def commands(self) -> list[str]:
        """Return what is typed, a command each, continuations joined by line breaks."""
        found: list[str] = []
        continued = False
        for line in self.text.splitlines():
            if continued or line.startswith("> "):
                found[-1] += f"\n{line.removeprefix('> ')}"
            elif line.startswith(_PROMPTS):
                found.append(line[2:])
            continued = line.endswith("\\")
        return found


def blocks(guide: Path) -> Iterator[Block]:
    """Read a guide."""
    for found in _BLOCK.finditer(guide.read_text(encoding="utf-8")):
        options = dict(_OPTION.findall(found["options"]))
        lines = (line.removeprefix("   ") for line in found["text"].splitlines())
        caption = options.get("caption", "")
        yield Block(
            found["language"],
            caption if caption.startswith("/") else "",
            options.get("class", ""),
            "\n".join(lines).strip("\n") + "\n",
        )
