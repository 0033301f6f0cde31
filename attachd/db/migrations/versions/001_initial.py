# SPDX-License-Identifier: Apache-2.0
"""Create the tables of the first release.

A migration does not import models.py, which changes later: it states the schema of its time.
"""

from typing import Any

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = "001"
down_revision = None

MOMENT = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
AUTO_INCREMENT_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MARIADB_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    """Create all tables."""
    _create_agents()
    _create_compute_events()
    _create_event_sequence()
    _create_events()
    _create_host_fences()
    _create_host_identities()
    _create_host_locks()
    _create_attachment_sets()
    _create_idempotency_keys()
    _create_members()
    _create_messages()
    _create_qos_specs()
    _create_quota_classes()
    _create_quota_locks()
    _create_quotas()
    _create_row_counts()
    _create_services()
    _create_storages()
    _create_volume_types()
    _create_default_volume_types()
    _create_volume_type_access()
    _create_volumes()
    _create_attachments()
    _create_volume_image_metadata()
    _create_volume_metadata()
    _create_volume_transfers()
    _create_snapshots()
    _create_snapshot_metadata()
    _create_snapshot_image_metadata()


def _create_agents() -> None:
    op.create_table(
        "agents",
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("normal_name", sa.String(255), nullable=False),
        sa.Column("key_digest", sa.String(64), nullable=False),
        sa.Column("connector", LONG_TEXT),
        sa.Column("devices", LONG_TEXT),
        sa.Column("connector_type", sa.String(32)),
        sa.Column("version", sa.String(32)),
        sa.Column("error", sa.String(1023)),
        sa.Column("seen_at", MOMENT),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT),
        sa.Column("initiators", LONG_TEXT),
        sa.Column("orphan_devices", LONG_TEXT),
        sa.Column("boot_id", sa.String(64)),
        sa.Column("heartbeat_at", MOMENT),
        sa.Column("lease", sa.Integer()),
        sa.Column("silent_at", MOMENT),
        sa.Column("lost_at", MOMENT),
        sa.Column("lost_action", sa.String(16)),
        sa.Column("machine_id", sa.String(64)),
        sa.Column("report_token", sa.String(64)),
        sa.Column("report_process", sa.String(64)),
        sa.Column("report_start", sa.BigInteger()),
        sa.Column("report_number", sa.BigInteger()),
        sa.Column("content_number", sa.BigInteger()),
        sa.Column("journal_losses", sa.Integer()),
        sa.Column("former_boot_at", MOMENT),
        sa.Column("conflict", LONG_TEXT),
        sa.Column("refused_boots", LONG_TEXT),
        sa.Column("believed_until", MOMENT),
        sa.Column("libvirt_secrets", sa.Boolean()),
        sa.Column("observed", LONG_TEXT),
        sa.Column("max_attachments", sa.Integer()),
        sa.PrimaryKeyConstraint("host", name="pk_agents"),
        sa.UniqueConstraint("normal_name", name="uq_agents_normal_name"),
        **MARIADB_OPTIONS,
    )
    op.create_index("ix_agents_believed_until", "agents", ["believed_until"])
    op.create_index("ix_agents_created_at", "agents", ["created_at"])
    op.create_index("ix_agents_silent_at", "agents", ["silent_at"])
    op.create_index("ix_agents_lease", "agents", ["lease"])
    op.create_index("ix_agents_lost_action_lost_at", "agents", ["lost_action", "lost_at"])


def _create_compute_events() -> None:
    op.create_table(
        "compute_events",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("volume_id", sa.String(36), nullable=False),
        sa.Column("server_id", sa.String(36), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("tag", sa.String(255), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", MOMENT, nullable=False),
        sa.Column("error", sa.String(1023)),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_compute_events"),
        sa.UniqueConstraint(
            "server_id", "name", "tag", name="uq_compute_events_server_id_name_tag"
        ),
        **MARIADB_OPTIONS,
    )
    op.create_index("ix_compute_events_volume_id", "compute_events", ["volume_id"])
    op.create_index("ix_compute_events_next_attempt_at", "compute_events", ["next_attempt_at"])


def _create_event_sequence() -> None:
    sequence = op.create_table(
        "event_sequence",
        sa.Column("id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("assigned", sa.BigInteger(), nullable=False),
        sa.Column("purged", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_event_sequence"),
        **MARIADB_OPTIONS,
    )
    op.bulk_insert(sequence, [{"id": 1, "assigned": 0, "purged": 0}])


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("id", AUTO_INCREMENT_ID, nullable=False, autoincrement=True),
        sa.Column("revision", sa.BigInteger()),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("volume_id", sa.String(36), nullable=False),
        sa.Column("attachment_id", sa.String(36), nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("details", LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sa.UniqueConstraint("revision", name="uq_events_revision"),
        **MARIADB_OPTIONS,
    )
    op.create_index("ix_events_created_at", "events", ["created_at"])
    op.create_index("ix_events_attachment_id", "events", ["attachment_id"])
    op.create_index("ix_events_project_id_revision", "events", ["project_id", "revision"])
    deletion = ["type", "created_at", "id"]
    op.create_index("ix_events_type_created_at_id", "events", deletion)
    op.create_index("ix_events_project_id_type_created_at_id", "events", ["project_id", *deletion])
    op.create_index("ix_events_volume_id_type_created_at_id", "events", ["volume_id", *deletion])


def _create_host_fences() -> None:
    op.create_table(
        "host_fences",
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("fenced_at", MOMENT),
        sa.Column("reason", sa.String(255)),
        sa.Column("user_id", sa.String(64)),
        sa.Column("boot_id", sa.String(64)),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT),
        sa.Column("drained_at", MOMENT),
        sa.Column("drain_reason", sa.String(255)),
        sa.Column("drain_user_id", sa.String(64)),
        sa.Column("drain_detach", LONG_TEXT),
        sa.Column("drain_ended", sa.Boolean()),
        sa.Column("last_fenced_at", MOMENT),
        sa.Column("notified", sa.String(16)),
        sa.Column("notify_after", MOMENT),
        sa.Column("lift", sa.String(16)),
        sa.Column("host_key", sa.String(255)),
        sa.PrimaryKeyConstraint("host", name="pk_host_fences"),
        **MARIADB_OPTIONS,
    )
    op.create_index("ix_host_fences_fenced_at", "host_fences", ["fenced_at"])
    op.create_index("ix_host_fences_drained_at", "host_fences", ["drained_at"])
    op.create_index("ix_host_fences_host_key", "host_fences", ["host_key"])


def _create_host_identities() -> None:
    op.create_table(
        "host_identities",
        sa.Column("identifier", sa.String(255), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("host_key", sa.String(255), nullable=False),
        sa.Column("source", sa.String(16), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT),
        sa.PrimaryKeyConstraint("identifier", name="pk_host_identities"),
        **MARIADB_OPTIONS,
    )
    op.create_index("ix_host_identities_host_key", "host_identities", ["host_key"])


def _create_host_locks() -> None:
    op.create_table(
        "host_locks",
        sa.Column("host", sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_host_locks"),
        **MARIADB_OPTIONS,
    )


def _create_attachment_sets() -> None:
    op.create_table(
        "attachment_sets",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("attachment_ids", LONG_TEXT, nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.Column("undoing", sa.Boolean(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_attachment_sets"),
        **MARIADB_OPTIONS,
    )
    op.create_index("ix_attachment_sets_expires_at", "attachment_sets", ["expires_at"])


def _create_idempotency_keys() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("resource_id", sa.String(36), nullable=False),
        sa.Column("made", sa.Boolean(), nullable=False),
        sa.Column("status", sa.Integer()),
        sa.Column("answer", LONG_TEXT),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_idempotency_keys"),
        **MARIADB_OPTIONS,
    )
    op.create_index("ix_idempotency_keys_expires_at", "idempotency_keys", ["expires_at"])


def _create_members() -> None:
    op.create_table(
        "members",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("seen_at", MOMENT, nullable=False),
        sa.Column("consumers", sa.Integer()),
        sa.Column("probed_at", MOMENT),
        sa.Column("queue_probed_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_members"),
        **MARIADB_OPTIONS,
    )


def _create_messages() -> None:
    op.create_table(
        "messages",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("request_id", sa.String(64)),
        sa.Column("resource_type", sa.String(64), nullable=False),
        sa.Column("resource_uuid", sa.String(36)),
        sa.Column("action_id", sa.String(10), nullable=False),
        sa.Column("detail_id", sa.String(10), nullable=False),
        sa.Column("details", LONG_TEXT),
        sa.Column("event_id", sa.String(255), nullable=False),
        sa.Column("message_level", sa.String(16), nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_messages"),
        **MARIADB_OPTIONS,
    )
    op.create_index(
        "ix_messages_project_id_created_at_id", "messages", ["project_id", "created_at", "id"]
    )
    op.create_index("ix_messages_resource_uuid", "messages", ["resource_uuid"])
    op.create_index("ix_messages_expires_at", "messages", ["expires_at"])


def _create_qos_specs() -> None:
    op.create_table(
        "qos_specs",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("consumer", sa.String(16), nullable=False),
        sa.Column("specs", LONG_TEXT, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_qos_specs"),
        sa.UniqueConstraint("name", name="uq_qos_specs_name"),
        **MARIADB_OPTIONS,
    )


def _create_quota_classes() -> None:
    op.create_table(
        "quota_classes",
        sa.Column("class_name", sa.String(255), nullable=False),
        sa.Column("resource", sa.String(300), nullable=False),
        sa.Column("hard_limit", sa.Integer(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT),
        sa.PrimaryKeyConstraint("class_name", "resource", name="pk_quota_classes"),
        **MARIADB_OPTIONS,
    )


def _create_quota_locks() -> None:
    op.create_table(
        "quota_locks",
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("project_id", name="pk_quota_locks"),
        **MARIADB_OPTIONS,
    )


def _create_quotas() -> None:
    op.create_table(
        "quotas",
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("resource", sa.String(300), nullable=False),
        sa.Column("hard_limit", sa.Integer(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT),
        sa.PrimaryKeyConstraint("project_id", "resource", name="pk_quotas"),
        **MARIADB_OPTIONS,
    )


def _create_row_counts() -> None:
    counts = op.create_table(
        "row_counts",
        sa.Column("id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("counted_at", MOMENT),
        sa.Column("claimed_at", MOMENT),
        sa.Column("numbers", LONG_TEXT),
        sa.PrimaryKeyConstraint("id", name="pk_row_counts"),
        **MARIADB_OPTIONS,
    )
    op.bulk_insert(counts, [{"id": 1}])


def _create_services() -> None:
    op.create_table(
        "services",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("binary", sa.String(64), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("availability_zone", sa.String(255), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_reason", sa.String(255)),
        sa.Column("frozen", sa.Boolean(), nullable=False),
        sa.Column("up", sa.Boolean(), nullable=False),
        sa.Column("error", sa.String(1023)),
        sa.Column("report", LONG_TEXT),
        sa.Column("seen_at", MOMENT, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT),
        sa.Column("rpc_version", sa.String(16)),
        sa.Column("object_version", sa.String(255)),
        sa.Column("versioned_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_services"),
        sa.UniqueConstraint("binary", "host", name="uq_services_binary_host"),
        **MARIADB_OPTIONS,
    )


def _create_storages() -> None:
    op.create_table(
        "storages",
        sa.Column("backend", sa.String(255), nullable=False),
        sa.Column("pool", sa.String(255), nullable=False),
        sa.Column("storage_id", sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint("backend", "pool", name="pk_storages"),
        **MARIADB_OPTIONS,
    )


def _create_volume_types() -> None:
    op.create_table(
        "volume_types",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("description", sa.String(255)),
        sa.Column("is_public", sa.Boolean(), nullable=False),
        sa.Column("extra_specs", LONG_TEXT, nullable=False),
        sa.Column("qos_specs_id", sa.String(36)),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_volume_types"),
        sa.ForeignKeyConstraint(
            ["qos_specs_id"], ["qos_specs.id"], name="fk_volume_types_qos_specs_id_qos_specs"
        ),
        sa.UniqueConstraint("name", name="uq_volume_types_name"),
        **MARIADB_OPTIONS,
    )
    op.create_index("ix_volume_types_qos_specs_id", "volume_types", ["qos_specs_id"])


def _create_default_volume_types() -> None:
    op.create_table(
        "default_volume_types",
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("volume_type_id", sa.String(36), nullable=False),
        sa.PrimaryKeyConstraint("project_id", name="pk_default_volume_types"),
        sa.ForeignKeyConstraint(
            ["volume_type_id"],
            ["volume_types.id"],
            name="fk_default_volume_types_volume_type_id_volume_types",
        ),
        **MARIADB_OPTIONS,
    )
    op.create_index(
        "ix_default_volume_types_volume_type_id", "default_volume_types", ["volume_type_id"]
    )


def _create_volume_type_access() -> None:
    op.create_table(
        "volume_type_access",
        sa.Column("volume_type_id", sa.String(36), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("volume_type_id", "project_id", name="pk_volume_type_access"),
        sa.ForeignKeyConstraint(
            ["volume_type_id"],
            ["volume_types.id"],
            name="fk_volume_type_access_volume_type_id_volume_types",
            ondelete="CASCADE",
        ),
        **MARIADB_OPTIONS,
    )


def _create_volumes() -> None:
    op.create_table(
        "volumes",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("user_id", sa.String(64)),
        sa.Column("name", sa.String(255)),
        sa.Column("description", sa.String(255)),
        sa.Column("size_gib", sa.Integer(), nullable=False),
        sa.Column("new_size_gib", sa.Integer()),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("attach_status", sa.String(32), nullable=False),
        sa.Column("pending_detaches", sa.Integer(), nullable=False),
        sa.Column("multiattach", sa.Boolean(), nullable=False),
        sa.Column("shared_targets", sa.Boolean()),
        sa.Column("bootable", sa.Boolean(), nullable=False),
        sa.Column("volume_type_id", sa.String(36)),
        sa.Column("availability_zone", sa.String(255)),
        sa.Column("host", sa.String(255)),
        sa.Column("backend_host", sa.String(255)),
        sa.Column("provider", LONG_TEXT, nullable=False),
        sa.Column("source_volid", sa.String(36)),
        sa.Column("snapshot_id", sa.String(36)),
        sa.Column("image_id", sa.String(36)),
        sa.Column("upload_image_id", sa.String(36)),
        sa.Column("admin_metadata", LONG_TEXT, nullable=False),
        sa.Column("owner", sa.String(255)),
        sa.Column("error", sa.String(1023)),
        sa.Column("launched_at", MOMENT),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT),
        sa.Column("lease_holder", sa.String(36)),
        sa.Column("lease_generation", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("provider_secrets", LONG_TEXT),
        sa.PrimaryKeyConstraint("id", name="pk_volumes"),
        sa.ForeignKeyConstraint(
            ["volume_type_id"], ["volume_types.id"], name="fk_volumes_volume_type_id_volume_types"
        ),
        **MARIADB_OPTIONS,
    )
    op.create_index(
        "ix_volumes_project_id_created_at_id", "volumes", ["project_id", "created_at", "id"]
    )
    op.create_index(
        "ix_volumes_usage",
        "volumes",
        ["project_id", "volume_type_id", "state", "size_gib", "new_size_gib"],
    )
    op.create_index("ix_volumes_user_id", "volumes", ["user_id"])
    op.create_index("ix_volumes_name", "volumes", ["name"])
    op.create_index("ix_volumes_status_state", "volumes", ["status", "state"])
    op.create_index("ix_volumes_volume_type_id", "volumes", ["volume_type_id"])
    op.create_index("ix_volumes_host", "volumes", ["host"])
    op.create_index("ix_volumes_backend_host_id", "volumes", ["backend_host", "id"])
    op.create_index("ix_volumes_source_volid", "volumes", ["source_volid"])
    op.create_index("ix_volumes_snapshot_id", "volumes", ["snapshot_id"])
    op.create_index("ix_volumes_owner", "volumes", ["owner"])
    op.create_index("ix_volumes_created_at_id", "volumes", ["created_at", "id"])
    op.create_index("ix_volumes_lease_holder", "volumes", ["lease_holder"])


def _create_attachments() -> None:
    op.create_table(
        "attachments",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("volume_id", sa.String(36), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("user_id", sa.String(64)),
        sa.Column("instance_uuid", sa.String(36)),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("parent_id", sa.String(36)),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("mode", sa.String(2)),
        sa.Column("asked_mode", sa.String(2)),
        sa.Column("host", sa.String(255)),
        sa.Column("mountpoint", sa.String(255)),
        sa.Column("connector", LONG_TEXT),
        sa.Column("connection_info", LONG_TEXT),
        sa.Column("connection_key", sa.String(64)),
        sa.Column("secret", sa.String(255)),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("error", sa.String(1023)),
        sa.Column("attached_at", MOMENT),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT),
        sa.Column("expires_at", MOMENT),
        sa.Column("agent", sa.String(255)),
        sa.Column("device", sa.String(255)),
        sa.Column("by_service", sa.Boolean()),
        sa.Column("provider_secrets", LONG_TEXT),
        sa.Column("fenced", sa.Boolean()),
        sa.Column("condition_state", sa.String(16)),
        sa.Column("observed", LONG_TEXT),
        sa.Column("move_from", sa.String(36)),
        sa.Column("own_connection", sa.Boolean()),
        sa.Column("host_key", sa.String(255)),
        sa.Column("initiator_key", sa.String(255)),
        sa.Column("device_origin", sa.String(96)),
        sa.Column("secret_agent", sa.String(255)),
        sa.Column("secret_generation", sa.Integer()),
        sa.PrimaryKeyConstraint("id", name="pk_attachments"),
        sa.ForeignKeyConstraint(
            ["volume_id"], ["volumes.id"], name="fk_attachments_volume_id_volumes"
        ),
        **MARIADB_OPTIONS,
    )
    op.create_index("ix_attachments_volume_id", "attachments", ["volume_id"])
    op.create_index(
        "ix_attachments_project_id_created_at_id_parent_id",
        "attachments",
        ["project_id", "created_at", "id", "parent_id"],
    )
    op.create_index("ix_attachments_instance_uuid", "attachments", ["instance_uuid"])
    op.create_index(
        "ix_attachments_state_kind_condition_state",
        "attachments",
        ["state", "kind", "condition_state"],
    )
    op.create_index("ix_attachments_host", "attachments", ["host"])
    op.create_index("ix_attachments_connection_key", "attachments", ["connection_key"])
    op.create_index("ix_attachments_created_at_id", "attachments", ["created_at", "id"])
    op.create_index("ix_attachments_expires_at", "attachments", ["expires_at"])
    op.create_index("ix_attachments_agent", "attachments", ["agent"])
    op.create_index("ix_attachments_secret_agent", "attachments", ["secret_agent"])
    op.create_index("ix_attachments_move_from", "attachments", ["move_from"])
    op.create_index("ix_attachments_host_key", "attachments", ["host_key"])
    op.create_index("ix_attachments_initiator_key", "attachments", ["initiator_key"])


def _create_volume_image_metadata() -> None:
    op.create_table(
        "volume_image_metadata",
        sa.Column("volume_id", sa.String(36), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("value", LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("volume_id", "key", name="pk_volume_image_metadata"),
        sa.ForeignKeyConstraint(
            ["volume_id"],
            ["volumes.id"],
            name="fk_volume_image_metadata_volume_id_volumes",
            ondelete="CASCADE",
        ),
        **MARIADB_OPTIONS,
    )
    op.create_index("ix_volume_image_metadata_key", "volume_image_metadata", ["key"])


def _create_volume_metadata() -> None:
    op.create_table(
        "volume_metadata",
        sa.Column("volume_id", sa.String(36), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("value", sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint("volume_id", "key", name="pk_volume_metadata"),
        sa.ForeignKeyConstraint(
            ["volume_id"],
            ["volumes.id"],
            name="fk_volume_metadata_volume_id_volumes",
            ondelete="CASCADE",
        ),
        **MARIADB_OPTIONS,
    )
    op.create_index("ix_volume_metadata_key_value", "volume_metadata", ["key", "value"])


def _create_snapshots() -> None:
    op.create_table(
        "snapshots",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("volume_id", sa.String(36), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("user_id", sa.String(64)),
        sa.Column("name", sa.String(255)),
        sa.Column("description", sa.String(255)),
        sa.Column("size_gib", sa.Integer(), nullable=False),
        sa.Column("volume_type_id", sa.String(36)),
        sa.Column("bootable", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("progress", sa.Integer(), nullable=False),
        sa.Column("provider", LONG_TEXT, nullable=False),
        sa.Column("provider_secrets", LONG_TEXT),
        sa.Column("owner", sa.String(255)),
        sa.Column("error", sa.String(1023)),
        sa.Column("lease_holder", sa.String(36)),
        sa.Column("lease_generation", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_snapshots"),
        sa.ForeignKeyConstraint(
            ["volume_id"], ["volumes.id"], name="fk_snapshots_volume_id_volumes"
        ),
        sa.ForeignKeyConstraint(
            *(["volume_type_id"], ["volume_types.id"]),
            name="fk_snapshots_volume_type_id_volume_types",
        ),
        **MARIADB_OPTIONS,
    )
    for name, columns in (
        ("project_id_created_at_id", ["project_id", "created_at", "id"]),
        ("created_at_id", ["created_at", "id"]),
        ("usage", ["project_id", "volume_type_id", "size_gib"]),
        ("volume_type_id", ["volume_type_id"]),
        ("volume_id_state", ["volume_id", "state"]),
        ("name", ["name"]),
        ("user_id", ["user_id"]),
        ("owner", ["owner"]),
        ("lease_holder", ["lease_holder"]),
    ):
        op.create_index(f"ix_snapshots_{name}", "snapshots", columns)


def _create_volume_transfers() -> None:
    op.create_table(
        "volume_transfers",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("volume_id", sa.String(36), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(255)),
        sa.Column("salt", sa.String(64), nullable=False),
        sa.Column("key_digest", sa.String(64), nullable=False),
        sa.Column("no_snapshots", sa.Boolean(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_volume_transfers"),
        sa.ForeignKeyConstraint(
            ["volume_id"],
            ["volumes.id"],
            name="fk_volume_transfers_volume_id_volumes",
            ondelete="CASCADE",
        ),
        sa.UniqueConstraint("volume_id", name="uq_volume_transfers_volume_id"),
        **MARIADB_OPTIONS,
    )
    for name, columns in (
        ("project_id_created_at_id", ["project_id", "created_at", "id"]),
        ("created_at_id", ["created_at", "id"]),
    ):
        op.create_index(f"ix_volume_transfers_{name}", "volume_transfers", columns)


def _create_snapshot_metadata() -> None:
    op.create_table(
        "snapshot_metadata",
        sa.Column("snapshot_id", sa.String(36), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("value", sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint("snapshot_id", "key", name="pk_snapshot_metadata"),
        sa.ForeignKeyConstraint(
            ["snapshot_id"],
            ["snapshots.id"],
            name="fk_snapshot_metadata_snapshot_id_snapshots",
            ondelete="CASCADE",
        ),
        **MARIADB_OPTIONS,
    )
    op.create_index("ix_snapshot_metadata_key_value", "snapshot_metadata", ["key", "value"])


def _create_snapshot_image_metadata() -> None:
    op.create_table(
        "snapshot_image_metadata",
        sa.Column("snapshot_id", sa.String(36), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("value", LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("snapshot_id", "key", name="pk_snapshot_image_metadata"),
        sa.ForeignKeyConstraint(
            ["snapshot_id"],
            ["snapshots.id"],
            name="fk_snapshot_image_metadata_snapshot_id_snapshots",
            ondelete="CASCADE",
        ),
        **MARIADB_OPTIONS,
    )
