"""Figures: one module each, drawn from the tables and from the details of fits."""

FEWEST_POINTS = 3
"""Of a curve: two points are a difference, which a table says better.

Where a configuration measures fewer, the figure is not asked for.
"""
