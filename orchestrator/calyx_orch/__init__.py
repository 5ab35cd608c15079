"""calyx-orch: a distributed disk benchmark orchestrator for fleets of Linux guests."""

__version__ = "0.1.0"
