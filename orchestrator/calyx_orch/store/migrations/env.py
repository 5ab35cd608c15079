"""Alembic looks for this file; all is done in `calyx_orch.store.migrations.upgrade`."""
