"""Starts a program that ends when its parent does: `python child.py PROGRAM ARGUMENT...`.

A daemon that is killed with -9 cannot end its run; the kernel then sends SIGINT to the run, which stops and cleans its guests. What
follows exec keeps that wish (prctl(2)). It runs as a file of its own and imports nothing of calyx_orch.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel for the signal, look whether the parent is there still, become the program."""
    parent = int(sys.argv[1])
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0):
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("the daemon has ended")
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
