"""Guests over SSH, by asyncssh. This package is the only place that imports it.

carrier.py    logins: bounded, retried, jump connections shared
settings.py   keys and options, loaded once per distinct setting
host_keys.py  known_hosts: trusted, unknown, changed
session.py    programs and line channels on an open connection
passphrases.py  asked once at the terminal, kept in memory
words.py      every failure as one sentence
"""

from calyx_orch.transport.ssh.carrier import SshCarrier

__all__ = ["SshCarrier"]
