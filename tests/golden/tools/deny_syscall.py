#!/usr/bin/env python3
"""Runs a command to which some system calls are denied: `deny_syscall.py ERRNO NUMBER[,NUMBER...] -- COMMAND...`.

A seccomp filter makes the calls fail with ERRNO (a name such as EPERM) in that process and its children only; no sysctl is
touched. io_uring_setup, _enter and _register are 425, 426 and 427 on every architecture.
"""

import ctypes
import errno
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # classic BPF
ALLOW, FAIL = 0x7FFF0000, 0x00050000  # seccomp's verdicts; FAIL is or-ed with the errno


def deny(error: int, numbers: list[int]) -> None:
    """Denies the calls to this process from now on."""
    program = [(LOAD_WORD, 0, 0, 0)]
    program += [(JUMP_IF_EQUAL, len(numbers) - index, 0, number) for index, number in enumerate(numbers)]
    program += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, FAIL | error)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    libc = ctypes.CDLL(None, use_errno=True)
    described = Program(len(program), ctypes.addressof(code))
    for arguments in (
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(described), 0, 0),
    ):
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "prctl")


def main() -> None:
    """Denies, then becomes the command."""
    split = sys.argv.index("--")
    name, numbers = sys.argv[1:split]
    deny(getattr(errno, name), [int(number) for number in numbers.split(",")])
    os.execvp(sys.argv[split + 1], sys.argv[split + 1 :])


if __name__ == "__main__":
    main()
