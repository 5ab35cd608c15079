"""Faults are made with the user's own SSH set-up out of reach; whatever they do to a run, its journal replays."""

from fleet.conftest import _every_journal_replays, _no_ssh_set_up_of_the_user

__all__ = ["_every_journal_replays", "_no_ssh_set_up_of_the_user"]
