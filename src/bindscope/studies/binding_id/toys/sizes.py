"""Sizes that every toy has."""

LANGUAGE_HEADS = 4
