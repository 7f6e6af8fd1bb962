"""Steps that all studies share, and what a configuration asks of them."""

DECIDES_NOTHING = True
