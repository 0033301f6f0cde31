# SPDX-License-Identifier: Apache-2.0
"""The tables of the first release.

A migration never imports models.py, which moves on: it says what was true at its time.
"""

from typing import Any

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = "001"
down_revision = None

MOMENT = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
IN_MARIADB: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    """Create everything."""
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
        sa.PrimaryKeyConstraint("id", name="pk_services"),
        sa.UniqueConstraint("binary", "host", name="uq_services_binary_host"),
        **IN_MARIADB,
    )
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
        **IN_MARIADB,
    )
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
        **IN_MARIADB,
    )
    op.create_index("ix_volume_types_qos_specs_id", "volume_types", ["qos_specs_id"])
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
        **IN_MARIADB,
    )
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
        **IN_MARIADB,
    )
    op.create_index(
        "ix_default_volume_types_volume_type_id", "default_volume_types", ["volume_type_id"]
    )
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
        sa.Column("leaving", sa.Integer(), nullable=False),
        sa.Column("multiattach", sa.Boolean(), nullable=False),
        sa.Column("shared_targets", sa.Boolean()),
        sa.Column("bootable", sa.Boolean(), nullable=False),
        sa.Column("volume_type_id", sa.String(36)),
        sa.Column("availability_zone", sa.String(255)),
        sa.Column("host", sa.String(255)),
        sa.Column("provider", LONG_TEXT, nullable=False),
        sa.Column("source_volid", sa.String(36)),
        sa.Column("admin_metadata", LONG_TEXT, nullable=False),
        sa.Column("owner", sa.String(255)),
        sa.Column("error", sa.String(1023)),
        sa.Column("launched_at", MOMENT),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT),
        sa.ForeignKeyConstraint(
            ["volume_type_id"], ["volume_types.id"], name="fk_volumes_volume_type_id_volume_types"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_volumes"),
        **IN_MARIADB,
    )
    op.create_index("ix_volumes_created_at_id", "volumes", ["created_at", "id"])
    op.create_index("ix_volumes_host", "volumes", ["host"])
    op.create_index("ix_volumes_name", "volumes", ["name"])
    op.create_index("ix_volumes_owner", "volumes", ["owner"])
    op.create_index(
        "ix_volumes_project_id_created_at_id", "volumes", ["project_id", "created_at", "id"]
    )
    op.create_index("ix_volumes_source_volid", "volumes", ["source_volid"])
    op.create_index("ix_volumes_status", "volumes", ["status"])
    op.create_index("ix_volumes_user_id", "volumes", ["user_id"])
    op.create_index("ix_volumes_volume_type_id", "volumes", ["volume_type_id"])
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
        **IN_MARIADB,
    )
    op.create_index("ix_volume_image_metadata_key", "volume_image_metadata", ["key"])
    op.create_table(
        "attachments",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("volume_id", sa.String(36), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("user_id", sa.String(64)),
        sa.Column("instance_uuid", sa.String(36)),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("serves", sa.String(36)),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("mode", sa.String(2)),
        sa.Column("asked_mode", sa.String(2)),
        sa.Column("host", sa.String(255)),
        sa.Column("mountpoint", sa.String(255)),
        sa.Column("connector", LONG_TEXT),
        sa.Column("connection_info", LONG_TEXT),
        sa.Column("connection_key", sa.String(64)),
        sa.Column("secret", sa.String(64)),
        sa.Column("owner", sa.String(255)),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("error", sa.String(1023)),
        sa.Column("attached_at", MOMENT),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT),
        sa.ForeignKeyConstraint(
            ["volume_id"], ["volumes.id"], name="fk_attachments_volume_id_volumes"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_attachments"),
        **IN_MARIADB,
    )
    op.create_index("ix_attachments_connection_key", "attachments", ["connection_key"])
    op.create_index("ix_attachments_created_at_id", "attachments", ["created_at", "id"])
    op.create_index("ix_attachments_host", "attachments", ["host"])
    op.create_index("ix_attachments_instance_uuid", "attachments", ["instance_uuid"])
    op.create_index(
        "ix_attachments_project_id_created_at_id",
        "attachments",
        ["project_id", "created_at", "id"],
    )
    op.create_index("ix_attachments_state", "attachments", ["state"])
    op.create_index("ix_attachments_volume_id", "attachments", ["volume_id"])
    op.create_table(
        "volume_metadata",
        sa.Column("volume_id", sa.String(36), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("value", sa.String(255), nullable=False),
        sa.ForeignKeyConstraint(
            ["volume_id"],
            ["volumes.id"],
            name="fk_volume_metadata_volume_id_volumes",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("volume_id", "key", name="pk_volume_metadata"),
        **IN_MARIADB,
    )
    op.create_index("ix_volume_metadata_key_value", "volume_metadata", ["key", "value"])
    for table, owner, length in (
        ("quotas", "project_id", 64),
        ("quota_classes", "class_name", 255),
    ):
        op.create_table(
            table,
            sa.Column(owner, sa.String(length), nullable=False),
            sa.Column("resource", sa.String(300), nullable=False),
            sa.Column("hard_limit", sa.Integer(), nullable=False),
            sa.Column("created_at", MOMENT, nullable=False),
            sa.Column("updated_at", MOMENT),
            sa.PrimaryKeyConstraint(owner, "resource", name=f"pk_{table}"),
            **IN_MARIADB,
        )
    op.create_table(
        "quota_locks",
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("project_id", name="pk_quota_locks"),
        **IN_MARIADB,
    )
    op.create_table(
        "host_locks",
        sa.Column("host", sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_host_locks"),
        **IN_MARIADB,
    )
    op.create_table(
        "messages",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("request_id", sa.String(64)),
        sa.Column("resource_type", sa.String(64), nullable=False),
        sa.Column("resource_uuid", sa.String(36)),
        sa.Column("action_id", sa.String(10), nullable=False),
        sa.Column("detail_id", sa.String(10), nullable=False),
        sa.Column("facts", LONG_TEXT),
        sa.Column("event_id", sa.String(255), nullable=False),
        sa.Column("message_level", sa.String(16), nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_messages"),
        **IN_MARIADB,
    )
    op.create_index(
        "ix_messages_project_id_created_at_id", "messages", ["project_id", "created_at", "id"]
    )
    op.create_index("ix_messages_resource_uuid", "messages", ["resource_uuid"])
    op.create_index("ix_messages_expires_at", "messages", ["expires_at"])
