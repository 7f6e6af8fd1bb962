"""Toy vision-language models, trained from nothing on fresh scenes of the shapes task."""

LANGUAGE_HEADS = 4  # of every toy
