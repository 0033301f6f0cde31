# SPDX-License-Identifier: Apache-2.0
"""The typed rows are those of the tables."""

import types
import typing
import unittest

from attachd.db import columns, models, row_types
from attachd.db.secrets.encryption import Encrypted

ROW_TYPES = {
    models.qos_specs: row_types.QosSpecsRow,
    models.volume_types: row_types.VolumeTypeRow,
    models.default_volume_types: row_types.DefaultTypeRow,
    models.volumes: row_types.VolumeRow,
    models.snapshots: row_types.SnapshotRow,
    models.volume_transfers: row_types.TransferRow,
    models.attachments: row_types.AttachmentRow,
    models.services: row_types.ServiceRow,
    models.storages: row_types.StorageRow,
    models.members: row_types.MemberRow,
    models.agents: row_types.AgentRow,
    models.host_fences: row_types.HostFenceRow,
    models.host_identities: row_types.HostIdentityRow,
    models.compute_events: row_types.ComputeEventRow,
    models.messages: row_types.MessageRow,
    models.attachment_sets: row_types.AttachmentSetRow,
    models.idempotency_keys: row_types.IdempotencyKeyRow,
    models.events: row_types.EventRow,
}

# Their rows are read column by column, by the module that owns the table.
WITHOUT_ROW_TYPE = {
    models.event_sequence,
    models.host_locks,
    models.quota_classes,
    models.quota_locks,
    models.quotas,
    models.row_counts,
    models.snapshot_image_metadata,
    models.snapshot_metadata,
    models.volume_image_metadata,
    models.volume_metadata,
    models.volume_type_access,
}

ADDED_BY_QUERIES = {"alive", "any_host_fenced"}


def _alternatives(hint):
    """Return the types of a union; those of an alias such as dict[str, str] without arguments."""
    members = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return {typing.get_origin(member) or member for member in members}


def _expected(column):
    """Return the types that a column's values may have; None: those of any JSON value."""
    if isinstance(column.type, columns.EncryptedJson):
        known = {dict, Encrypted}
    elif isinstance(column.type, columns.EncryptedText):
        known = {str, Encrypted}
    elif isinstance(column.type, columns.Json):
        return None
    else:
        known = {column.type.python_type}
    return known | {types.NoneType} if column.nullable else known


class RowTypesTest(unittest.TestCase):
    maxDiff = None

    def test_every_table_has_row_type_or_is_exempt(self):
        self.assertEqual(set(models.METADATA.tables.values()), ROW_TYPES.keys() | WITHOUT_ROW_TYPE)
        self.assertEqual(set(), ROW_TYPES.keys() & WITHOUT_ROW_TYPE)

    def test_row_types_have_names_of_columns(self):
        for table, row_type in ROW_TYPES.items():
            with self.subTest(table.name):
                hints = typing.get_type_hints(row_type)
                self.assertEqual(set(table.columns.keys()), hints.keys() - ADDED_BY_QUERIES)

    def test_keys_that_are_no_columns_are_not_required(self):
        for table, row_type in ROW_TYPES.items():
            with self.subTest(table.name):
                added = typing.get_type_hints(row_type).keys() - table.columns.keys()
                self.assertEqual(set(), added & row_type.__required_keys__)

    def test_row_types_have_types_and_nullability_of_columns(self):
        for table, row_type in ROW_TYPES.items():
            hints = typing.get_type_hints(row_type)
            for column in table.columns:
                expected = _expected(column)
                if expected is not None:
                    with self.subTest(column=str(column)):
                        self.assertEqual(expected, _alternatives(hints[column.name]))

    def test_row_types_of_json_have_nullability_of_columns(self):
        for table, row_type in ROW_TYPES.items():
            hints = typing.get_type_hints(row_type)
            for column in table.columns:
                hint = hints[column.name]
                if _expected(column) is None and hint is not typing.Any:
                    with self.subTest(column=str(column)):
                        known = _alternatives(hint)
                        self.assertEqual(column.nullable, types.NoneType in known)
                        self.assertLessEqual(known, {dict, list, types.NoneType})
