"""The configuration's sections and how files are read."""

DECIDES_NOTHING = True
