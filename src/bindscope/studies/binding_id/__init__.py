"""Which thing of an image goes with which item of a text, and how a model keeps track of it."""
