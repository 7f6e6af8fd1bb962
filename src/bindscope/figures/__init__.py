"""Figures: one module each, drawn from the tables and from the details of fits."""
