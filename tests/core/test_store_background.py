"""Work in another thread: its order, its bound, its errors."""

import threading

import pytest

from bindscope.core.store.background import Background


def test_all_is_done_in_the_order_given():
    done = []
    with Background(3, "test") as background:
        for number in range(50):
            background.submit(lambda number=number: done.append(number))
    assert done == list(range(50))


def test_no_more_than_depth_pieces_are_unfinished():
    gate, submitted = threading.Event(), []

    def give() -> None:
        with Background(2, "test") as background:
            for number in range(4):
                background.submit(gate.wait)
                submitted.append(number)

    caller = threading.Thread(target=give)
    caller.start()
    caller.join(0.3)
    assert submitted == [0, 1]  # the third waits for the first
    gate.set()
    caller.join(10)
    assert submitted == [0, 1, 2, 3]


def fail() -> None:
    raise OSError("disk full")


def test_an_error_reaches_the_caller_and_nothing_later_is_begun():
    done, submitted = [], 0

    def give() -> None:
        nonlocal submitted
        with Background(2, "test") as background:
            background.submit(lambda: done.append("before"))
            background.submit(fail)
            for _ in range(100):
                background.submit(lambda: done.append("after"))
                submitted += 1

    with pytest.raises(OSError, match="disk full"):
        give()
    assert done == ["before"]
    assert submitted <= 2  # within the depth, not at the end


def test_an_error_of_the_last_piece_is_raised_by_the_exit():
    with pytest.raises(OSError, match="disk full"), Background(2, "test") as background:
        background.submit(fail)


def test_after_an_exception_of_the_caller_only_the_piece_in_hand_is_finished():
    begun, gate, done = threading.Event(), threading.Event(), []

    def first() -> None:
        begun.set()
        gate.wait()
        done.append("first")

    def give() -> None:
        with Background(5, "test") as background:
            background.submit(first)
            for _ in range(3):
                background.submit(lambda: done.append("later"))
            begun.wait()
            threading.Timer(0.2, gate.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        give()
    assert done == ["first"]
