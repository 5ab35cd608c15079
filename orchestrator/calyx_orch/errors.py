"""Every error a user can meet, as a tree, with the exit code it leads to.

    CalyxError
    |-- UsageError            2   the command line or an inventory cannot be used; nothing was started
    |   `-- InventoryErrors   2   all problems of one inventory at once, each with file, line and a way out
    |-- RefusedError          2   preflight refused the plan before any guest was started
    |-- GuestError            3   one guest failed; the others go on
    |   |-- ReachError        3   no connection: address, port, host key, authentication
    |   `-- AgentError        3   the agent refused or its answer made no sense
    |-- FormatError           3   a document of a guest (fio JSON, a result) cannot be read
    `-- Fault                 4   ours
        `-- FolderError       4   the run folder cannot be written; what was measured until then is kept

Interrupted runs exit 130; a missed budget or baseline exits 1.
"""

from __future__ import annotations

from dataclasses import dataclass

EXIT_FINE = 0
EXIT_MISSED = 1
EXIT_CANNOT_START = 2
EXIT_GUEST_FAILED = 3
EXIT_FAULT = 4
EXIT_INTERRUPTED = 130


class CalyxError(Exception):
    """Base of all errors that are told to the user as one sentence."""

    exit_code = EXIT_FAULT


class UsageError(CalyxError):
    """The command line or an inventory cannot be used."""

    exit_code = EXIT_CANNOT_START


@dataclass(frozen=True)
class Problem:
    """One fault of a document: where (1-based line and column, 0: unknown, or the whole line) and what, with a way out."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        where = ":".join([self.file, *(str(number) for number in (self.line, self.column) if number)])
        return f"{where}: {self.message}"


class InventoryErrors(UsageError):
    """All problems of one inventory, in the order of their lines."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class RefusedError(CalyxError):
    """Preflight refused the plan: what, on which guest, and what to change."""

    exit_code = EXIT_CANNOT_START


class GuestError(CalyxError):
    """One guest failed at one step. `str()` is the sentence for the table, without the guest's name."""

    exit_code = EXIT_GUEST_FAILED

    def __init__(self, message: str, *, step: str = "") -> None:
        self.step = step
        super().__init__(message)


class ReachError(GuestError):
    """The guest could not be reached or would not let us in.

    `at` says how far the connection came: `reach` (no server there, or the connection was lost), `host key` or `login`.
    """

    def __init__(self, message: str, *, step: str = "", at: str = "reach") -> None:
        self.at = at
        super().__init__(message, step=step)


class AgentError(GuestError):
    """The agent refused a command, ended, or sent what makes no sense. `errno` is that of the guest's kernel, 0: none."""

    def __init__(self, message: str, *, step: str = "", errno: int = 0) -> None:
        self.errno = errno
        super().__init__(message, step=step)


class FormatError(CalyxError):
    """A document cannot be understood: which, and what is wrong with it."""

    exit_code = EXIT_GUEST_FAILED


class Fault(CalyxError):
    """Something that should not happen: our fault."""


class FolderError(Fault):
    """The run folder on the controller cannot be written: where, and why."""
