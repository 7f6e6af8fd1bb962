"""What every toy has in common."""

KIND = "toy vision-language model"  # in manifests
LANGUAGE_HEADS = 4
SCENE_PX = 36  # side of a toy's image: 3 x 3 slots of 12 px
