"""What studies measure: a quantity, with the names of its columns written out.

A study declares each of its quantities once; columns, rules, means, figures, claims and sentences
follow the declaration. Names of columns are written in full, so that a search for one finds it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A number that a table has of each place that was measured.

    Attributes
    ----------
    name
        A slug: of its rows, where a number is a row, and in keys.
    value, low, high
        Columns of the number, and of the ends of its 95 % interval.
    symbol
        How it is written in a formula.
    unit, meaning, source
        As those of a `tables.schema.Column`.
    is_bound
        Whether the number is a lower bound: it is between 0 and `entropy`, and written as one.
    least, most
        The smallest and the largest number that it can be; None where there is no limit.
    entropy, entropy_symbol
        Column of all that there is to find, in the same unit, and how that is written.
    loss, prior_loss
        Columns of the test loss that the number follows from, and of that without an input.
    truth
        Column of the number itself where it is known exactly.
    ratio
        Column of the number over `entropy`.
    """

    name: str
    value: str
    low: str = ""
    high: str = ""
    symbol: str = ""
    unit: str = "bits per scene"
    meaning: str = ""
    source: str = ""
    is_bound: bool = False
    least: float | None = None
    most: float | None = None
    entropy: str = ""
    entropy_symbol: str = ""
    loss: str = ""
    prior_loss: str = ""
    truth: str = ""
    ratio: str = ""

    @property
    def interval(self) -> tuple[str, str, str]:
        """Columns of the number and of the ends of its interval."""
        return self.value, self.low, self.high
