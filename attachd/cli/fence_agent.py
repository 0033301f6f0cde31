# SPDX-License-Identifier: Apache-2.0
"""The fence agent fence_attachd, as Pacemaker and other cluster managers call one.

The caller writes ``name=value`` lines to the standard input, or gives options, and reads the exit
code.

Source: ClusterLabs, Fence Agent API.
"""

import argparse
from collections.abc import Mapping, Sequence
import contextlib
import html
import sys
import time
from typing import Final, NamedTuple

from keystoneauth1 import exceptions as transport
from openstack import config, connection, exceptions

from attachd.cli.blockstorage import HostControl

OK, FAILED, OFF = 0, 1, 2
"""Exit codes: done, or the host is not fenced; failed; the host is fenced."""

_NEW_TRY: Final = 2.0
"""Seconds between two requests while attachments are pending."""


class _Parameter(NamedTuple):
    """A parameter of the agent.

    :ivar short: its option with one dash
    """

    short: str
    default: str
    text: str


PARAMETERS: Final[Mapping[str, _Parameter]] = {
    "action": _Parameter("-o", "off", "What to do: see the actions"),
    "plug": _Parameter("-n", "", "Name of the host, as attachd knows it"),
    "cloud": _Parameter("-c", "", "Name of the cloud in clouds.yaml; else as OS_... say"),
    "reason": _Parameter("-r", "fence_attachd", "Why the host is fenced; it is recorded"),
    "lift": _Parameter(
        "-l",
        "manual",
        "auto: a new start of the host, without devices, lifts the fence; manual: only the action "
        "on does",
    ),
    "power_timeout": _Parameter("-t", "60", "Seconds in which the access of the host has to end"),
}
_OTHER_NAMES: Final = {"port": "plug", "nodename": "plug", "option": "action"}
ACTIONS: Final = ("off", "on", "status", "monitor", "list", "validate-all", "metadata")
_MANUAL: Final = ' automatic="0"'
_DESCRIPTION: Final = (
    "Ends the access of a host to all its volumes, at the storage and with the proof of the "
    "storage. It does not turn the host off: set pcmk_reboot_action to off."
)
_DONE: Final = frozenset({"proved", "asserted"})
_OF_A_HOST: Final = frozenset({"off", "on", "status"})


def main(words: Sequence[str] | None = None) -> int:
    """Do an action and return the exit code.

    :param words: the command line; None: that of the process
    """
    given = sys.argv[1:] if words is None else words
    try:
        parameters = _from_options(given) if given else _from_lines(sys.stdin.read())
        return _act(parameters)
    except (exceptions.SDKException, transport.ClientException, ValueError) as error:
        sys.stderr.write(f"fence_attachd: {error}\n")
        return FAILED


def _from_options(words: Sequence[str]) -> dict[str, str]:
    parser = argparse.ArgumentParser("fence_attachd", allow_abbrev=False)
    for name, (short, default, text) in PARAMETERS.items():
        long = f"--{name.replace('_', '-')}"
        parser.add_argument(short, long, dest=name, default=default, help=text)
    return dict(vars(parser.parse_args(words)))


def _from_lines(text: str) -> dict[str, str]:
    """Parse what a cluster manager writes; names that this agent does not have are for others."""
    parameters = {name: parameter.default for name, parameter in PARAMETERS.items()}
    for line in text.splitlines():
        name, separator, value = line.strip().partition("=")
        name = _OTHER_NAMES.get(name, name)
        if separator and not name.startswith("#") and name in parameters:
            parameters[name] = value
    return parameters


def _act(parameters: Mapping[str, str]) -> int:
    action, host = parameters["action"], parameters["plug"]
    if action == "metadata":
        sys.stdout.write(metadata())
        return OK
    if action not in ACTIONS:
        raise ValueError(f"There is no action {action!r}. Possible are: {', '.join(ACTIONS)}.")
    if action in _OF_A_HOST and not host:
        raise ValueError(f"The action {action} needs the name of a host: plug.")
    storage = HostControl(_connect(parameters["cloud"]))
    if action == "off":
        return _fence(storage, host, parameters)
    if action == "on":
        return _unfence(storage, host)
    if action == "status":
        # The status of a host that is unknown is an error: its name may be misspelt.
        return OFF if storage.host(host)["fenced"] else OK
    if action == "list":
        hosts = {agent["host"] for agent in storage.agents()}
        hosts |= {found["host"] for found in storage.hosts()}
        sys.stdout.writelines(f"{name},\n" for name in sorted(hosts))
        return OK
    storage.hosts()  # monitor, validate-all
    return OK


def _connect(cloud: str) -> connection.Connection:
    return connection.Connection(config=config.OpenStackConfig().get_one(cloud=cloud or None))


def _fence(storage: HostControl, host: str, parameters: Mapping[str, str]) -> int:
    """Fence a host until nothing is pending; say what has failed."""
    deadline = time.monotonic() + float(parameters["power_timeout"])
    while True:
        results = storage.fence(host, parameters["reason"], parameters["lift"])
        left = [item for item in results if item["result"] not in _DONE]
        is_pending = any(item["result"] == "pending" for item in left)
        if not is_pending or time.monotonic() > deadline:
            break
        time.sleep(_NEW_TRY)
    for item in left:
        sys.stderr.write(
            f"fence_attachd: attachment {item['attachment_id']} of volume {item['volume_id']} is "
            f"{item['result']}: {item['reason']}\n"
        )
    return FAILED if left else OK


def _unfence(storage: HostControl, host: str) -> int:
    with contextlib.suppress(exceptions.NotFoundException):  # An unknown host is not fenced.
        storage.unfence(host)
    return OK


def metadata() -> str:
    """Return the description of the agent, as XML."""
    parameters = "".join(
        f"""
    <parameter name="{name}" required="{int(name == "plug")}">
      <getopt mixed="{short}, --{name.replace("_", "-")}=[{name}]"/>
      <content type="string" default="{html.escape(default)}"/>
      <shortdesc lang="en">{html.escape(text)}</shortdesc>
    </parameter>"""
        for name, (short, default, text) in PARAMETERS.items()
    )
    actions = "".join(
        f'\n    <action name="{action}"{_MANUAL if action == "on" else ""}/>' for action in ACTIONS
    )
    return f"""\
<?xml version="1.0" ?>
<resource-agent name="fence_attachd" shortdesc="Fence agent for hosts with volumes of attachd">
  <longdesc>{html.escape(_DESCRIPTION)}</longdesc>
  <parameters>{parameters}
  </parameters>
  <actions>{actions}
  </actions>
</resource-agent>
"""
