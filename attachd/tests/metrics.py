# SPDX-License-Identifier: Apache-2.0
"""What a test sees of the metrics: of this process, or of text that Prometheus would read."""

from pathlib import Path
from typing import Any
import unittest

import prometheus_client
from prometheus_client import parser, values

from attachd.metrics import exporter, recording

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def use(test: unittest.TestCase, folder: Path | None = None) -> recording.Recorder:
    """Have this process count for the rest of a test."""
    before: Any = values.ValueClass

    def restore() -> None:
        exporter.stop()
        recording.stop()
        values.ValueClass = before

    restore()
    test.addCleanup(restore)
    return recording.start(folder)


def value(recorder: recording.Recorder, name: str, **labels: str) -> float | None:
    """Return one sample of what is told; None: there is none."""
    text = prometheus_client.generate_latest(recorder.registry).decode()
    return read(text).get((name, frozenset(labels.items())))


def read(text: str) -> Samples:
    """Return the samples in what Prometheus would read."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }
