"""Sizes that every toy has."""

LANGUAGE_HEADS = 4
SCENE_PX = 36  # side of a toy's image: 3 x 3 slots of 12 px
