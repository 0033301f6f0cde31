#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the project's checks and tests and counts them; called by tox and .ci/run.

Every step runs, whatever became of the ones before it, two of them at a time.  What a step says
goes to ``.cache/STEP.log``; printed is when it began and ended, how far the tests are, and what
failed.  A test step counts as many as it has tests, every other step as one.  What has not ended
when the time is up is ended, and counts as failed.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
import contextlib
import dataclasses
import os
from pathlib import Path
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import IO, Any

import subunit
import testtools

TOP = Path(__file__).resolve().parent.parent

SPHINX = "sphinx-build -q -W --keep-going -b html"

# Commands of a step, in order; a word that the shell would have to see is not allowed here.
COMMANDS: dict[str, tuple[str, ...]] = {
    "ruff": ("ruff check .", "ruff format --check ."),
    "bandit": ("bandit -q -r -c pyproject.toml attachd",),
    "doc8": (
        "doc8 README.rst CONTRIBUTING.rst HACKING.rst doc api-ref releasenotes",
        "doc8 devstack/README.rst",
    ),
    "shell": (
        "shellcheck .ci/run devstack/override-defaults devstack/plugin.sh devstack/settings",
        "shellcheck attachd/tests/devstack/functions.sh attachd/tests/devstack/genuine.sh",
        "shellcheck attachd/tests/devstack/run.sh attachd/tests/devstack/systemctl.sh",
    ),
    "mypy": ("mypy",),
    "layers": ("lint-imports --no-logo --no-cache",),
    "docs": (f"{SPHINX} doc/source doc/build/html",),
    "api-ref": (f"{SPHINX} api-ref/source api-ref/build/html",),
    "releasenotes": (
        "reno -q lint",
        f"{SPHINX} releasenotes/source releasenotes/build/html",
    ),
    "samples": (
        "oslo-config-generator --config-file etc/attachd/config-generator.conf",
        "oslopolicy-sample-generator --config-file etc/attachd/policy-generator.conf",
    ),
}

CORES = os.cpu_count() or 1
# Processes of a test step, more than processors where tests wait for servers most of the time;
# 0 is one process of another kind.
TESTS: dict[str, int] = {
    "unit": min(CORES, 8),
    "contract": min(CORES + 2, 8),
    "functional": min(CORES + 2, 8),
    "consumers": 0,
}
SIDE_BY_SIDE = 2
MINUTES = 38

# The longest step that keeps one processor busy comes first: the others run beside it.
GROUPS: dict[str, tuple[str, ...]] = {
    "pep8": ("ruff", "bandit", "doc8", "shell"),
    "fast": ("ruff", "bandit", "doc8", "shell", "mypy", "layers", "unit"),
    "all": ("consumers", *COMMANDS, "unit", "contract", "functional"),
}

TELL_EVERY = 30
"""Seconds between two lines on how far the tests are."""

SHOWN_TESTS = 20
SHOWN_OF_A_TEST = 4000
SHOWN_OF_A_LOG = 8000
SHOWN_NAMES = 200
"""How much is printed of what failed in a step: tests, and characters of each; names."""


@dataclasses.dataclass
class Result:
    """What became of one step.

    :ivar wrong: the names of what failed
    :ivar details: what is printed of it, unless there is too much
    """

    name: str
    seconds: float = 0.0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    began: float | None = None
    ended: bool = False
    wrong: list[str] = dataclasses.field(default_factory=list)
    details: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        """Return the step's line of the closing table."""
        return f"{self.name:<14}{self.seconds:8.1f} s {self.counts}"

    @property
    def counts(self) -> str:
        """So far."""
        return f"{self.passed:6} ok {self.failed:4} wrong {self.skipped:4} left out"

    @property
    def log(self) -> Path:
        """Where all is that the step has said."""
        return TOP / ".cache" / f"{self.name}.log"

    def fail(self, name: str, details: str = "") -> None:
        """Count one thing that failed."""
        self.failed += 1
        self.wrong.append(f"{self.name}: {name}")
        if details and len(self.details) < SHOWN_TESTS:
            self.details.append(f"{name}\n{_shortened(details, SHOWN_OF_A_TEST)}")


class Record:
    """Follows a stream of test results, and notes them in a step's result and log."""

    def __init__(self, result: Result, log: IO[bytes]) -> None:
        self._result = result
        self._log = log

    def follow(self, source: IO[bytes]) -> None:
        """Read subunit to its end; what else is in between was printed by tests."""
        stream = testtools.StreamToDict(self._note)
        stream.startTestRun()
        with source:
            subunit.ByteStreamToStreamResult(source, "printed").run(stream)
        stream.stopTestRun()

    def _note(self, test: dict[str, Any]) -> None:
        status, name = test["status"], test["id"]
        if status == "exists":
            return
        text = ""
        if status in {"success", "xfail"}:
            self._result.passed += 1
        elif status == "skip":
            self._result.skipped += 1
            text = _texts(test["details"], "reason")
        else:
            text = _texts(test["details"])
            self._result.fail(name, text or f"ended as {status}")
        began, ended = test["timestamps"]
        seconds = (ended - began).total_seconds() if began and ended else 0.0
        self._log.write(f"{status:<8}{seconds:8.2f} s {name}\n{text}".encode())


def _texts(details: dict[str, Any], *only: str) -> str:
    """Return what a test has left behind, tracebacks first."""
    names = sorted(details, key=lambda name: ("traceback" not in name, name))
    texts = {
        name: details[name].as_text().strip()
        for name in names
        if details[name].content_type.type == "text" and (not only or name in only)
    }
    return "".join(f"  {name}:\n{text}\n" for name, text in texts.items() if text)


def _shortened(text: str, limit: int) -> str:
    """Leave out the middle of what is too long: the beginning says what, the end says why."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 3]}\n [...]\n{text[-2 * limit // 3 :]}"


class Round:
    """Steps, side by side until the time is up.

    :ivar until: when that is, as time.time() tells it
    :ivar rest: arguments for the steps' own commands
    """

    def __init__(self, until: float, rest: Sequence[str] = ()) -> None:
        self.until = until
        self.rest = rest
        self._running: set[subprocess.Popen[bytes]] = set()
        self._printing = threading.Lock()

    def run(self, names: Iterable[str]) -> list[Result]:
        """Run steps to their end."""
        results = [Result(name) for name in names]
        with futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            begun = [pool.submit(self.run_step, each) for each in results]
            try:
                while futures.wait(begun, TELL_EVERY).not_done:
                    self._tell_progress(results)
            except KeyboardInterrupt:
                self.end()
        for each in begun:
            each.result()
        return results

    def end(self) -> None:
        """End what runs; the time is up."""
        self.until = 0
        for each in set(self._running):
            _kill(each)

    def _tell_progress(self, results: Iterable[Result]) -> None:
        running = [each for each in results if each.began is not None and not each.ended]
        self._say(*(f"    {each.name:<12}{each.counts}" for each in running))

    def _say(self, *lines: str) -> None:
        now = time.strftime("%H:%M:%S")
        with self._printing:
            print(*(f"{now} {line}" for line in lines), sep="\n", flush=True)

    def run_step(self, result: Result) -> None:
        """Run one step, print what is wrong with it, and note it all in the result."""
        result.log.parent.mkdir(exist_ok=True)
        result.began = time.monotonic()
        self._say(f"{result.name} begins, and writes {result.log.relative_to(TOP)}")
        with result.log.open("wb"):
            pass
        # Others write to its end too.
        with result.log.open("ab", buffering=0) as log:
            if result.name in TESTS:
                self._run_tests(result, log)
            else:
                self._run_commands(result, log)
        result.seconds = time.monotonic() - result.began
        result.ended = True
        self._say(str(result), *(f"wrong: {each}" for each in result.details))

    def _run_commands(self, result: Result, log: IO[bytes]) -> None:
        commands = [[*shlex.split(each), *self.rest] for each in COMMANDS[result.name]]
        # All of them, so that one round shows everything there is to mend.
        wrong = [shlex.join(each) for each in commands if not self._call(each, log)]
        if wrong:
            said = result.log.read_text(errors="replace")
            result.fail("; ".join(wrong))
            result.details.append(_shortened(said, SHOWN_OF_A_LOG))
        else:
            result.passed = 1

    def _run_tests(self, result: Result, log: IO[bytes]) -> None:
        record = Record(result, log)
        good = self._call(_runner(result.name, self.rest), log, record.follow)
        if not good and time.time() >= self.until:
            result.fail("not done when the time was up")
        elif not good or not (result.passed + result.failed + result.skipped):
            # No test says so.
            result.fail("the run itself failed, or had no test")
            result.details.append(
                _shortened(result.log.read_text(errors="replace"), SHOWN_OF_A_LOG)
            )

    def _call(
        self,
        command: Sequence[str],
        log: IO[bytes],
        follow: Callable[[IO[bytes]], None] | None = None,
    ) -> bool:
        """Run a command with all its children; end them when the time is up.

        :param follow: reads what it writes to its standard output, which else goes to the log
        """
        log.write(f"\n$ {shlex.join(command)}\n".encode())
        if shutil.which(command[0]) is None:
            log.write(f"{command[0]} is not installed here\n".encode())
            return False
        if time.time() >= self.until:
            log.write(b"not begun when the time was up\n")
            return False
        process = subprocess.Popen(
            command,
            cwd=TOP,
            env={**os.environ, "ATTACHD_TEST_UNTIL": str(self.until)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if follow else log,
            stderr=log,
            start_new_session=True,
        )
        self._running.add(process)
        reader = threading.Thread(target=follow, args=[process.stdout], daemon=True)
        if follow:
            reader.start()
        try:
            return process.wait(max(0.0, self.until - time.time())) == 0
        except subprocess.TimeoutExpired:
            log.write(b"not done when the time was up: ended\n")
            return False
        finally:
            self._running.discard(process)
            _kill(process)
            if follow:
                # Somebody that it has left behind may hold the other end.
                reader.join(TELL_EVERY)


def _runner(step: str, rest: Sequence[str]) -> list[str]:
    """Return the command that runs a step's tests and writes subunit."""
    if not TESTS[step]:
        log = Path(".cache", f"{step}.attachd.log")
        options = ["--results", "-", "--log", str(log)]
        return [sys.executable, "-m", "attachd.tests.consumers", *options, *rest]
    record = Path(".cache", step)
    (TOP / record).mkdir(parents=True, exist_ok=True)
    stestr = ["stestr", "--test-path", f"attachd/tests/{step}", "--repo-url", str(record)]
    return [*stestr, "run", "--subunit", "--concurrency", str(TESTS[step]), *rest]


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main() -> int:
    """Run the steps that were asked for; 0 if all that ran was good and something ran."""
    options, rest = _parse(sys.argv[1:])
    # Whoever gives up on this still gets the table.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results = Round(options.until, rest).run(_steps(options.step or ["all"]))
    print("", *results, sep="\n", flush=True)
    passed, failed, skipped = (
        sum(getattr(result, kind) for result in results)
        for kind in ("passed", "failed", "skipped")
    )
    wrong = [name for result in results for name in result.wrong]
    if failed:
        print(f"\n{failed} failed:", *wrong[:SHOWN_NAMES], sep="\n", flush=True)
    if options.counts:
        options.counts.write_text(f"{passed} passed, {failed} failed, {skipped} skipped\n")
    return 1 if failed or not passed else 0


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Split off what follows a lone --, for the steps' own commands."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="What follows a lone -- goes to the commands, as: check.py unit -- db.test_api",
    )
    names = ", ".join((*GROUPS, *COMMANDS, *TESTS))
    parser.add_argument("step", nargs="*", help=f"one of {names} (default: all)")
    parser.add_argument("--counts", type=Path, metavar="FILE", help="write the totals here")
    parser.add_argument(
        "--until",
        type=float,
        metavar="SECONDS",
        default=time.time() + MINUTES * 60,
        help=f"when the time is up, as date +%%s tells it (default: {MINUTES} minutes from now)",
    )
    options = parser.parse_args(arguments[:end])
    if unknown := set(options.step) - {*GROUPS, *COMMANDS, *TESTS}:
        parser.error(f"no such step: {', '.join(sorted(unknown))}")
    return options, arguments[end + 1 :]


def _steps(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        yield from GROUPS.get(name, (name,))


if __name__ == "__main__":
    sys.exit(main())
