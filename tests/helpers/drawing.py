"""What tests of figures share."""

from bindscope.figures.figure import NothingToDrawError


def reason(figure, *args, **kwargs):
    """Return why a figure has nothing to show of such data; None where it has."""
    try:
        figure.draw(*args, **kwargs)
    except NothingToDrawError as nothing:
        return str(nothing)
    return None
