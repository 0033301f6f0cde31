# SPDX-License-Identifier: Apache-2.0
"""Read and write recorded answers: a file per noun, a line per answer; for command and test.

An answer that is equal to an earlier one of its file names that: ``{"as": "volumes/life/show"}``.
"""

from collections.abc import Mapping
import json
from pathlib import Path

from attachd.tests.contract.answers.normal import Normal

FOLDER = Path(__file__).parent / "recorded"
AS = "as"


def load(folder: Path = FOLDER) -> dict[str, Normal]:
    """Return all recorded answers, by the ids of their requests."""
    found: dict[str, Normal] = {}
    for path in sorted(folder.glob("*.json")):
        of_noun = json.loads(path.read_text(encoding="utf-8"))
        found |= {key: of_noun[answer.get(AS, key)] for key, answer in of_noun.items()}
    return found


def save(noun: str, answers: Mapping[str, Normal], folder: Path = FOLDER) -> None:
    """Write the answers of one noun, in the order in which they came."""
    first: dict[str, str] = {}
    lines = []
    for key, answer in answers.items():
        text = json.dumps(answer, sort_keys=True)
        if first.setdefault(text, key) != key:
            text = json.dumps({AS: first[text]})
        lines.append(f"{json.dumps(key)}: {text}")
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (folder / f"{noun}.json").write_text(text, encoding="utf-8")
