# SPDX-License-Identifier: Apache-2.0
"""A program that sends messages to an exchange of RabbitMQ at a rate, until it is ended.

Arguments: URL, exchange, routing key, messages a second, and a file with a list of bodies in JSON,
which are sent in turn; %d in a body is replaced by a number.
"""

import itertools
import json
from pathlib import Path
import sys
import time
from urllib import parse

import amqp  # type: ignore[import-untyped]

BATCH = 20


def main(url: str, exchange: str, key: str, rate: str, path: str) -> None:
    """Send messages."""
    server = parse.urlsplit(url)
    connection = amqp.Connection(
        host=f"{server.hostname}:{server.port}",
        userid=server.username,
        password=server.password,
        virtual_host=server.path[1:],
    )
    connection.connect()
    channel = connection.channel()
    form = {"content_type": "application/json", "content_encoding": "utf-8"}
    bodies = json.loads(Path(path).read_text(encoding="utf-8"))
    begin, pause = time.monotonic(), BATCH / float(rate)
    for number, body in enumerate(itertools.cycle(bodies)):
        message = amqp.Message(body.replace("%d", f"{number:032x}"), **form)
        channel.basic_publish(message, exchange, key)
        if number % BATCH == BATCH - 1 or float(rate) < BATCH:
            sent_until = begin + (number + 1) * pause / BATCH
            # The rate is the subject of the tests.
            time.sleep(max(0.0, sent_until - time.monotonic()))
            sys.stdout.write(f"{number + 1}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
