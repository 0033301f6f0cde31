# SPDX-License-Identifier: Apache-2.0
"""attachd-manage audit: compare database, backends and Compute, and print the differences."""

from collections.abc import Iterable, Iterator, Sequence
import sys
from typing import Final

from attachd import compute, exception
from attachd.cmd import output
from attachd.conf import CONF
from attachd.manager import backends
from attachd.manager.audit import compute as compute_audit
from attachd.manager.audit import runner
from attachd.manager.audit.rules import REPAIRED, Difference
from attachd.manager.audit.runner import AuditResult
from attachd.manager.ownership.membership import Membership

AGREED, DIFFERENT, NOT_COMPARED, ALL_REPAIRED = range(4)
"""The exit codes."""

_COLUMNS: Final = ("backend", "kind", "volume_id", "found", "cause", "action", "outcome")


def run() -> int:
    """Compare, print and return the exit code."""
    found = list(_findings(CONF.subject.backend))
    _WRITERS[CONF.subject.format](found)
    if CONF.subject.format == "table" and (summary := _summarize(found)):
        print(summary)
    for result in found:
        for reason in result.not_compared:
            print(f"attachd-manage: {reason}", file=sys.stderr)
    return _code(found)


def _findings(names: Sequence[str]) -> Iterator[AuditResult]:
    """Audit the backends one by one, then Compute, as a member whose leases count."""
    credentials = compute.load_credentials() if CONF.subject.compute else None
    membership = Membership()
    chosen = _chosen(backends.load(membership), names)
    audit = runner.repair if CONF.subject.repair else runner.compare
    membership.heartbeat()  # before the first lease, so that other members know this one
    membership.expire_dead_members()
    membership.start()
    try:
        for backend in chosen:
            if backend.driver.IN_MEMORY:
                yield _not_compared(backend)
                continue
            backend.setup()
            yield audit(backend)
        if credentials is not None:
            yield compute_audit.compare(
                compute.ComputeReader(credentials),
                chosen if CONF.subject.repair else (),
                is_thorough=CONF.subject.compute == "all",
            )
    finally:
        membership.stop()


def _not_compared(backend: backends.Backend) -> AuditResult:
    """Return the result of a backend that no other process than its manager can read."""
    reason = (
        f"Backend {backend.name}: not compared, because its driver has its volumes in the memory "
        "of the manager. Use another driver for volumes with data."
    )
    return AuditResult(backend.host, not_compared=[reason])


def _chosen(loaded: Sequence[backends.Backend], names: Sequence[str]) -> list[backends.Backend]:
    if unknown := set(names) - {backend.name for backend in loaded}:
        raise exception.ConfigurationError(
            reason=f"These are not in enabled_backends: {', '.join(sorted(unknown))}."
        )
    if not loaded:
        raise exception.ConfigurationError(
            reason="There is nothing to compare: name backends in enabled_backends."
        )
    return [backend for backend in loaded if not names or backend.name in names]


def _summarize(found: Sequence[AuditResult]) -> str:
    """Return the last line for people; "": no backend could be compared."""
    compared = [result.exports for result in found if result.exports is not None]
    if not compared:
        return ""
    outcomes = [difference.outcome for result in found for difference in result.differences]
    repaired = outcomes.count(REPAIRED)
    parts = [
        _count(len(compared), "back end"),
        f"{_count(sum(compared), 'export')} compared",
        _count(len(outcomes), "difference") if outcomes else "no difference",
        *([f"{repaired} repaired"] if repaired else []),
        *(["not all could be compared"] if any(item.not_compared for item in found) else []),
    ]
    return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _code(found: Sequence[AuditResult]) -> int:
    outcomes = [difference.outcome for result in found for difference in result.differences]
    if any(result.not_compared for result in found):
        return NOT_COMPARED
    if not outcomes:
        return AGREED
    return ALL_REPAIRED if all(outcome == REPAIRED for outcome in outcomes) else DIFFERENT


def _write_json(found: Iterable[AuditResult]) -> None:
    body = [
        {
            "backend": result.backend,
            "differences": [_as_json(difference) for difference in result.differences],
            "not_compared": result.not_compared,
        }
        for result in found
    ]
    output.print_json(body)


def _write_csv(found: Iterable[AuditResult]) -> None:
    rows = [
        {"backend": result.backend, **_as_json(difference)}
        for result in found
        for difference in result.differences
    ]
    output.print_rows(rows, _COLUMNS, "csv")


def _as_json(difference: Difference) -> dict[str, str | None]:
    return {
        "kind": difference.kind.value,
        "volume_id": difference.volume_id or None,
        "found": difference.found,
        "cause": difference.cause,
        "action": difference.action,
        "outcome": difference.outcome or None,
    }


def _write_table(found: Iterable[AuditResult]) -> None:
    rows = [
        (result.backend, difference.volume_id or "-", difference.kind.value, difference)
        for result in found
        for difference in result.differences
    ]
    if not rows:
        return
    titles = ("backend", "volume", "difference")
    names = [titles, *((backend, volume_id) for backend, volume_id, _kind, _it in rows)]
    widths = [max(len(row[column]) for row in names) for column in range(2)]
    print(f"{titles[0]:{widths[0]}}  {titles[1]:{widths[1]}}  {titles[2]}")
    for backend, volume_id, kind, difference in rows:
        print(f"{backend:{widths[0]}}  {volume_id:{widths[1]}}  {kind}")
        for name in ("found", "cause", "action", "outcome"):
            if text := getattr(difference, name):
                print(f"    {name + ':':8} {text}")


_WRITERS: Final = {"table": _write_table, "json": _write_json, "csv": _write_csv}
