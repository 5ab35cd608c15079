"""Runs, their guests, figures by place with histograms, interval series, baselines."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "run",
        sa.Column("run_id", sa.String(64), primary_key=True),
        sa.Column("folder", sa.Text, nullable=False),
        sa.Column("started_s", sa.Float, nullable=False),
        sa.Column("started_at", sa.String(40), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("inventory", sa.Text, nullable=False),
        sa.Column("inventory_sha256", sa.String(64), nullable=False),
        sa.Column("seed", sa.String(24), nullable=False),
        sa.Column("is_short", sa.Integer, nullable=False),
        sa.Column("guests", sa.Integer, nullable=False),
        sa.Column("guests_measured", sa.Integer, nullable=False),
        sa.Column("sentence", sa.Text, nullable=False),
        sa.Column("notes", sa.JSON, nullable=False),
    )
    op.create_index("ix_run_started_s", "run", ["started_s"])
    op.create_table(
        "guest",
        _run_id("guest"),
        sa.Column("guest", sa.Text, nullable=False),
        sa.Column("vm_host", sa.Text),
        sa.Column("storage", sa.Text),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("step", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("facts", sa.JSON, nullable=False),
        sa.UniqueConstraint("run_id", "guest", name="uq_guest_run_id"),
    )
    op.create_table(
        "figure",
        _run_id("figure"),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("workload", sa.Text, nullable=False),
        sa.Column("engine", sa.String(32), nullable=False),
        sa.Column("load", sa.String(16), nullable=False),
        sa.Column("series_key", sa.String(16), nullable=False),
        sa.Column("started_s", sa.Float, nullable=False),
        sa.Column("guests", sa.Integer, nullable=False),
        sa.Column("units", sa.Integer, nullable=False),
        sa.Column("throughput_bytes_per_s", sa.Float),
        sa.Column("iops", sa.Float),
        sa.Column("p50_ns", sa.Float),
        sa.Column("p99_ns", sa.Float),
        sa.Column("p999_ns", sa.Float),
        sa.Column("cv_within_run", sa.Float),
        sa.Column("cpu_ns_per_io", sa.Float),
        sa.Column("doubts", sa.JSON, nullable=False),
        sa.Column("latency", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_figure_trend", "figure", ["scope", "name", "workload", "engine", "started_s"])
    op.create_index("ix_figure_run", "figure", ["run_id"])
    op.create_table(
        "series",
        _run_id("series"),
        sa.Column("guest", sa.Text, nullable=False),
        sa.Column("round_index", sa.Integer, nullable=False),
        sa.Column("interval_ns", sa.Integer, nullable=False),
        sa.Column("intervals", sa.Integer, nullable=False),
        sa.Column("packed", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("run_id", "guest", "round_index", name="uq_series_run_id"),
    )
    op.create_table(
        "baseline",
        sa.Column("inventory", sa.Text, primary_key=True),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("set_s", sa.Float, nullable=False),
    )


def _run_id(table: str) -> sa.Column[str]:
    key = sa.ForeignKey("run.run_id", ondelete="CASCADE", name=f"fk_{table}_run_id")
    return sa.Column("run_id", sa.String(64), key, nullable=False)
