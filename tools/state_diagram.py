# SPDX-License-Identifier: Apache-2.0
"""Draw the table of states for the documentation; doc/source/conf.py includes the page."""

from collections.abc import Iterator, Mapping
import sys

from attachd import states

_GONE = "gone"


def dot(
    name: str, moves: Mapping[states.Event, states.Transition[states.S]], *first: states.S
) -> str:
    """Return one kind of row as a Graphviz graph: states are nodes, events label the arrows.

    :param first: the states that new rows are in
    """
    lines = [f"digraph {name} {{", "    rankdir=LR; node [shape=box, style=rounded];"]
    starts = "".join(f' start -> "{item}";' for item in first)
    lines += [f"    start [shape=point];{starts}", f'    "{_GONE}" [shape=plaintext];']
    lines += [
        f'    "{source}" -> "{target}" [label="{" / ".join(events)}"];'
        for (source, target), events in sorted(_arrows(moves).items())
    ]
    return "\n".join([*lines, "}"])


def _arrows(
    moves: Mapping[states.Event, states.Transition[states.S]],
) -> dict[tuple[str, str], list[str]]:
    """Group the events by the states they connect."""
    found: dict[tuple[str, str], list[str]] = {}
    for event, move in moves.items():
        for source in move.sources:
            target = _GONE if move.target is None else move.target.value
            found.setdefault((source.value, target), []).append(event.name)
    return found


def page() -> str:
    """Return the diagrams and the table of names as reStructuredText."""
    attachment = dot(
        "attachment",
        states.ATTACHMENT_TRANSITIONS,
        states.AttachmentState.RESERVED,
        states.AttachmentState.HELD,
    )
    volume = dot("volume", states.VOLUME_TRANSITIONS, states.VolumeState.CREATING)
    snapshot = dot("snapshot", states.SNAPSHOT_TRANSITIONS, states.SnapshotState.CREATING)
    return "\n".join(
        [
            *_section("An attachment", attachment),
            *_names(),
            *_section("A volume itself", volume),
            *_section("A snapshot", snapshot),
        ]
    )


def _section(title: str, graph: str) -> Iterator[str]:
    yield from (title, "-" * len(title), "", ".. graphviz::", "")
    yield from (f"    {line}" for line in graph.splitlines())
    yield ""


def _names() -> Iterator[str]:
    yield from (".. list-table:: What the wire calls each state", "   :header-rows: 1", "")
    yield from _row("inner state", "on the wire", "a volume with only this one is")
    for state in states.AttachmentState:
        alone = states.derive(states.VolumeState.READY, [state]).status
        yield from _row(f"``{state}``", f"``{state.wire}``", f"``{alone}``")
    yield ""


def _row(*cells: str) -> Iterator[str]:
    for number, cell in enumerate(cells):
        yield f"   {'*' if number == 0 else ' '} - {cell}"


def main() -> None:
    """Print the page."""
    sys.stdout.write(page() + "\n")


if __name__ == "__main__":
    main()
