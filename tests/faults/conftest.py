"""Faults are made with the user's own SSH set-up out of reach."""

from fleet.conftest import _no_ssh_set_up_of_the_user

__all__ = ["_no_ssh_set_up_of_the_user"]
