"""Budgets as a JUnit file, which CI systems show: a test a finding; broken ones fail, unknown ones are skipped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import junitparser

from calyx_orch.analysis.budgets import BROKEN, UNKNOWN, Finding
from calyx_orch.errors import FolderError
from calyx_orch.model import GuestOutcome
from calyx_orch.report.wording import printable


def text_of(name: str, findings: Sequence[Finding], outcomes: Sequence[GuestOutcome] = ()) -> str:
    """The document; guests that were not measured are tests of their own that fail."""
    suite = junitparser.TestSuite(printable(name))
    for outcome in outcomes:
        case = junitparser.TestCase(printable(outcome.guest), "guest is measured")
        if outcome.state != "measured":
            case.result = [junitparser.Failure(printable(f"{outcome.step}: {outcome.reason}"), outcome.state)]
        suite.add_testcase(case)
    for finding in findings:
        case = junitparser.TestCase(printable(finding.about), printable(finding.budget))
        if finding.state == BROKEN:
            case.result = [junitparser.Failure(printable(finding.said), BROKEN)]
        elif finding.state == UNKNOWN:
            case.result = [junitparser.Skipped(printable(finding.said))]
        else:
            case.system_out = printable(finding.said)
        suite.add_testcase(case)
    whole = junitparser.JUnitXml("calyx-orch")
    whole.add_testsuite(suite)
    whole.update_statistics()  # type: ignore[no-untyped-call]
    return str(whole.tostring().decode("utf-8"))  # type: ignore[no-untyped-call]


def write(path: Path, name: str, findings: Sequence[Finding], outcomes: Sequence[GuestOutcome] = ()) -> None:
    """Write the document to `path`. Raises FolderError when that fails."""
    try:
        path.write_text(text_of(name, findings, outcomes), encoding="utf-8")
    except OSError as error:
        raise FolderError(f"cannot write the JUnit file {path}: {error.strerror}; name another with --junit") from error
