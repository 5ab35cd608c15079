"""A run that is continued, as far as its course differs from that of another: what stands is taken over, and never mixed with others."""

from __future__ import annotations

from calyx_orch.runner import resume
from calyx_orch.runner.course import Course


def take_over(course: Course) -> None:
    """What stands of the earlier part: its measurements, its facts, and who stays out."""
    if course.earlier is None:
        return
    course.known = dict(course.earlier.facts)
    for measurement in course.earlier.measurements:
        course.fleet.answered.setdefault(measurement.guest, []).append(measurement)
    for guest, (step, reason) in course.earlier.standing.out.items():
        course.fleet.troubles[guest] = (step, reason)
        course.display.state(guest, "lost", f"{step}: {reason}")


def is_complete(course: Course) -> bool:
    """Whether all was measured when the controller died; then the run is noted to go on, and only its end is missing."""
    if course.earlier is None or not course.earlier.standing.is_complete:
        return False
    _put_aside(course, course.earlier)
    return True


def refuse_others(course: Course) -> None:
    """Before anything is written: guests that are no longer those that were measured refuse the run, by RefusedError."""
    if course.earlier is None:
        return
    sessions = list(course.fleet.sessions.values())
    resume.refuse_others(course.earlier, sessions)
    course.rebooted = resume.rebooted(course.earlier, sessions)
    _put_aside(course, course.earlier)
    for name in course.rebooted:
        course.fleet.note(name, "was started anew between its rounds before the resume and those after")


def _put_aside(course: Course, earlier: resume.Earlier) -> None:
    """Note that the run goes on; from here on only what stands is its result."""
    standing = earlier.standing
    course.folder.keep_plan(course.planned)
    course.folder.resume(earlier.resumed(course.rebooted), standing.kept, out=standing.out)
