# SPDX-License-Identifier: Apache-2.0
"""What a test sees of the metrics: of this process, or of text that Prometheus would read."""

from pathlib import Path
from typing import Any
import unittest

import prometheus_client
from prometheus_client import parser, values

from attachd.telemetry import exporter, recorder

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def use(test: unittest.TestCase, folder: Path | None = None) -> recorder.Recorder:
    """Have this process count for the rest of a test."""
    before: Any = values.ValueClass

    def restore() -> None:
        exporter.stop()
        recorder.stop()
        values.ValueClass = before

    restore()
    test.addCleanup(restore)
    return recorder.start(folder)


def value(used: recorder.Recorder, name: str, **labels: str) -> float | None:
    """Return one sample of what is told; None: there is none."""
    text = prometheus_client.generate_latest(used.registry).decode()
    return read(text).get((name, frozenset(labels.items())))


def read(text: str) -> Samples:
    """Return the samples in what Prometheus would read."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }
