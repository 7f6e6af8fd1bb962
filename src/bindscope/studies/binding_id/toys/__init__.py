"""Toy vision-language models, trained from nothing on fresh scenes of the shapes task."""

WIDTH, LAYERS = 96, 3  # of every toy's language model
TOWER_WIDTH, PATCH_PX = 64, 12  # of its own tower; a patch is a slot
