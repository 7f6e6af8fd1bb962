"""Models of known mechanism, in closed form."""
