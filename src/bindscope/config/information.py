"""Information: intervals and flags."""

from __future__ import annotations

from pydantic import Field

from bindscope.config.base import Model, NonNegativeInt, PositiveInt


class Information(Model):
    """Intervals and flags."""

    bootstrap_samples: PositiveInt = Field(1000, description="Resamples of the test scenes.")
    bootstrap_seed: NonNegativeInt = Field(0, description="Seed of the resamples.")
