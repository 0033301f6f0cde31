#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure how fast this machine is, by what libraries that we use cost on it.

A budget in milliseconds of CPU is that of one machine.  Here, things that stock libraries do are
measured again, next to what they took where the budgets were set: nothing of attachd is in them,
so that the ratio is the machine's.
"""

import argparse
from collections.abc import Callable
import importlib
from pathlib import Path
import statistics
import subprocess
import sys
import time
from typing import Any, NamedTuple

from cycle import report, yardstick

ROUNDS = 9
"""The median of them is shown."""


class Measured(NamedTuple):
    """What something takes.

    :ivar reference: microseconds of CPU where the budgets were set
    :ivar measured: on this machine, now
    """

    name: str
    reference: float
    measured: float

    @property
    def times(self) -> float:
        """How many times as long it takes here."""
        return self.measured / self.reference


class Yardstick(NamedTuple):
    """Something that was measured where the budgets were set.

    :ivar reference: microseconds of CPU that it took
    :ivar runs: in a round
    :ivar make: makes what is run
    """

    name: str
    reference: float
    runs: int
    make: Callable[[], Callable[[], object]]


def main() -> int:
    """Measure, and print.

    :returns: the exit code: 0, or 2 if the broker cannot be used
    """
    arguments = _parser().parse_args()
    importlib.import_module("attachd")  # has the libraries use threads
    found = [_measured(yardstick_, arguments.rounds) for yardstick_ in YARDSTICKS]
    if arguments.rabbit:
        try:
            call = statistics.median(
                yardstick.call_ms(arguments.rabbit) for _ in range(arguments.rounds)
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"machine_speed.py: {error}", file=sys.stderr)
            return 2
        found.append(Measured("oslo.messaging: an empty call, both ends", 1350, 1000 * call))
    content = {
        "machine": report.machine(),
        "results": [item._asdict() | {"times": item.times} for item in found],
        "median": statistics.median(item.times for item in found),
    }
    print(_table(content), end="")
    if arguments.json is not None:
        report.write(arguments.json, content)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Measure how fast this machine is, by what libraries that attachd uses cost "
        "on it; nothing of attachd itself is measured, and nothing is started."
    )
    parser.add_argument(
        "--rabbit", metavar="URL", help="measure an empty RPC call over this broker, too"
    )
    parser.add_argument(
        "--rounds",
        type=_positive,
        default=ROUNDS,
        metavar="N",
        help=f"take the median of N: {ROUNDS}",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def _measured(item: Yardstick, rounds: int) -> Measured:
    run = item.make()
    run()
    found = []
    for _ in range(rounds):
        before = time.process_time()
        for _ in range(item.runs):
            run()
        found.append(1e6 * (time.process_time() - before) / item.runs)
    return Measured(item.name, item.reference, statistics.median(found))


def _table(content: dict[str, Any]) -> str:
    rows = [["CPU of", "µs where budgets were set", "µs here", "times"]]
    rows += [
        [
            result["name"],
            f"{result['reference']:,g}",
            f"{result['measured']:,.1f}",
            f"{result['times']:.2f}",
        ]
        for result in content["results"]
    ]
    rows.append(["median", "", "", f"{content['median']:.2f}"])
    machine = ", ".join(f"{key} {value}" for key, value in content["machine"].items())
    return f"machine: {machine}\n\n{report.grid(rows)}\n"


def _option() -> Callable[[], object]:
    cfg = importlib.import_module("oslo_config.cfg")
    conf = cfg.ConfigOpts()
    conf.register_opt(cfg.IntOpt("some", default=1), group="any")
    conf([], default_config_files=[])
    return lambda: conf.any.some


def _context() -> Callable[[], object]:
    context = importlib.import_module("oslo_context.context")
    environ = {
        "HTTP_X_AUTH_TOKEN": "t" * 100,
        "HTTP_X_USER_ID": "u" * 32,
        "HTTP_X_PROJECT_ID": "p" * 32,
        "HTTP_X_ROLES": "member,reader",
    }
    return lambda: context.RequestContext.from_environ(environ)


def _object() -> Callable[[], object]:
    base = importlib.import_module("oslo_versionedobjects.base")
    fields = importlib.import_module("oslo_versionedobjects.fields")
    names = [f"field_{number}" for number in range(20)]
    kind: Any = type(
        "Yardstick",
        (base.VersionedObject,),
        {"VERSION": "1.0", "fields": {name: fields.StringField() for name in names}},
    )
    base.VersionedObjectRegistry.register(kind)
    some = kind(**dict.fromkeys(names, "something"))
    return lambda: kind.obj_from_primitive(some.obj_to_primitive())


def _flow(tasks: int) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        engines = importlib.import_module("taskflow.engines")
        task = importlib.import_module("taskflow.task")
        flows = importlib.import_module("taskflow.patterns.linear_flow")
        nothing = type("Nothing", (task.Task,), {"execute": lambda _task: None})

        def run() -> object:
            flow = flows.Flow("yardstick")
            flow.add(*(nothing(name=f"{number}") for number in range(tasks)))
            return engines.run(flow, engine="serial")

        return run

    return make


def _request() -> Callable[[], object]:
    pecan = importlib.import_module("pecan")
    rest = importlib.import_module("pecan.rest")
    webob = importlib.import_module("webob")

    class Things(rest.RestController):  # type: ignore[name-defined, misc]
        """Has one method."""

        @pecan.expose("json")  # type: ignore[untyped-decorator]
        def get_one(self, identity: str) -> dict[str, str]:
            """Show a thing."""
            return {"id": identity}

    app = pecan.make_app(type("Root", (), {"things": Things()})(), debug=False)
    environ = webob.Request.blank("/things/1").environ
    return lambda: app(dict(environ), lambda *_a, **_k: None)


def _rule() -> Callable[[], object]:
    cfg = importlib.import_module("oslo_config.cfg")
    policy = importlib.import_module("oslo_policy.policy")
    context = importlib.import_module("oslo_context.context")
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[])
    enforcer = policy.Enforcer(conf)
    enforcer.register_defaults(
        [
            policy.RuleDefault("admin", "role:admin"),
            policy.RuleDefault("owner", "rule:admin or project_id:%(project_id)s"),
            policy.RuleDefault("show", "rule:owner"),
        ]
    )
    asking = context.RequestContext(user_id="u", project_id="p", roles=["member"])
    return lambda: enforcer.enforce("show", {"project_id": "p"}, asking)


YARDSTICKS = (
    Yardstick("oslo.config: read an option", 1.4, 20_000, _option),
    Yardstick("oslo.context: a context from headers", 6.5, 4_000, _context),
    Yardstick("oslo.versionedobjects: 20 fields to and from a primitive", 116, 400, _object),
    Yardstick("oslo.policy: a rule of 3 levels", 135, 400, _rule),
    Yardstick("pecan: a request to a RestController", 630, 100, _request),
    Yardstick("taskflow: a flow of 1 task", 1300, 40, _flow(1)),
    Yardstick("taskflow: a flow of 3 tasks", 3200, 20, _flow(3)),
)

if __name__ == "__main__":
    sys.exit(main())
