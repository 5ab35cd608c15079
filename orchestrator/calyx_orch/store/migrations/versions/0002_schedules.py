"""Schedules, their firings, the inventories that were fired, and incidents that were told."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables of schedules."""
    op.create_table(
        "inventory_copy",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_table(
        "schedule",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("added_s", sa.Float, nullable=False),
        sa.Column("considered_s", sa.Float, nullable=False),
        sa.Column("paused", sa.Integer, nullable=False),
    )
    op.create_table(
        "firing",
        sa.Column("schedule", sa.String(64), nullable=False),
        sa.Column("due_s", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("daemon", sa.Text, nullable=False),
        sa.Column("lease_s", sa.Float, nullable=False),
        sa.Column("started_s", sa.Float),
        sa.Column("ended_s", sa.Float),
        sa.Column("run_id", sa.String(64)),
        sa.Column("folder", sa.Text, nullable=False),
        sa.Column("inventory_sha256", sa.String(64), nullable=False),
        sa.Column("places", sa.JSON, nullable=False),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("details", sa.JSON, nullable=False),
        sa.Column("notice", sa.String(16), nullable=False),
        sa.Column("notice_tries", sa.Integer, nullable=False),
        sa.Column("notice_next_s", sa.Float, nullable=False),
        sa.Column("notice_why", sa.Text, nullable=False),
        sa.Column("message", sa.JSON, nullable=False),
        sa.UniqueConstraint("schedule", "due_s", name="uq_firing_schedule"),
    )
    op.create_index("ix_firing_state", "firing", ["state"])
    op.create_table(
        "incident",
        sa.Column("schedule", sa.String(64), nullable=False),
        sa.Column("metric", sa.String(32), nullable=False),
        sa.Column("series", sa.Text, nullable=False),
        sa.Column("since_run", sa.String(64), nullable=False),
        sa.Column("opened_run", sa.String(64), nullable=False),
        sa.Column("since_at", sa.String(40), nullable=False),
        sa.Column("change", sa.Float, nullable=False),
        sa.Column("worse", sa.Integer, nullable=False),
        sa.Column("recovered_run", sa.String(64)),
        sa.UniqueConstraint("schedule", "metric", "series", "opened_run", name="uq_incident_schedule"),
    )
