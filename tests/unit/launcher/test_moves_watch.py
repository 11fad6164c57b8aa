"""When a move takes too long: each row of the table, and a move that is given as much time as it needs."""

from __future__ import annotations

from virt_launcher.moves.watch import Course, Limits, Verdict, allowed_pause, begin, completion_limit, follow


def looked(limits: Limits, *looks: tuple[float, int]) -> Course:
    course = begin(limits)
    for elapsed_s, remaining in looks:
        course = follow(course, limits, elapsed_s, remaining)
    return course


def test_the_limit_grows_with_what_is_moved() -> None:
    assert completion_limit(150, 1) == 150
    assert completion_limit(150, 2_000_000_001) == 450
    assert completion_limit(0, 5_000_000_000) == 0


def test_without_limits_it_goes_on_for_ever() -> None:
    assert looked(Limits(), (1, 100), (100_000, 100)).verdict is Verdict.GO_ON


def test_too_long_ends_it() -> None:
    course = looked(Limits(completion_s=10), (5, 100), (11, 50))
    assert course.verdict is Verdict.ABORT
    assert course.reason == "the move did not end within 10 s; 50 bytes were left"


def test_no_progress_ends_it_though_there_is_time() -> None:
    limits = Limits(completion_s=1000, progress_s=10)
    assert looked(limits, (1, 100), (9, 100), (10, 99), (19, 120)).verdict is Verdict.GO_ON
    course = looked(limits, (1, 100), (12, 100))
    assert course.verdict is Verdict.ABORT
    assert "no progress for 10 s" in course.reason


def test_a_guest_that_may_be_disturbed_is_paused_and_gets_as_long_again() -> None:
    limits = Limits(completion_s=10, disruption=True)
    paused = looked(limits, (11, 50))
    assert (paused.mode, paused.verdict) == ("Paused", Verdict.PAUSE)
    assert follow(paused, limits, 15, 40).verdict is Verdict.GO_ON
    assert follow(paused, limits, 21, 40).verdict is Verdict.ABORT


def test_post_copy_is_never_given_up() -> None:
    limits = Limits(completion_s=10, progress_s=5, disruption=True, post_copy=True)
    course = looked(limits, (11, 50))
    assert (course.mode, course.verdict) == ("PostCopy", Verdict.POST_COPY)
    assert follow(course, limits, 10_000, 50).verdict is Verdict.GO_ON


def test_post_copy_needs_leave_to_disturb() -> None:
    assert looked(Limits(completion_s=10, post_copy=True), (11, 50)).verdict is Verdict.ABORT


def test_a_guest_may_stand_still_for_longer_the_more_it_writes() -> None:
    assert [allowed_pause(900, passes) for passes in range(8)] == [100, 100, 100, 200, 400, 800, 900, 900]
    assert allowed_pause(0, 10_000) == 300
    assert allowed_pause(50, 0) == 50
