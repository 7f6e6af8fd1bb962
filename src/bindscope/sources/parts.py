"""The parts that a release has itself, where it has a train and a held-out part and no third."""

from __future__ import annotations

from hashlib import sha1

_VAL_EVERY = 5


def split_of(image: str, held_out: bool) -> str:
    """Return the split of an image: `test` if it is held out, else `train` or `val`.

    One in five images of the train part is in `val`, by the SHA-1 of its file name: in order of
    their numbers, which go by kinds of scenes, `val` would be of other scenes than `train`.
    """
    if held_out:
        return "test"
    name = image.rpartition("/")[2]
    return "train" if int(sha1(name.encode()).hexdigest(), 16) % _VAL_EVERY else "val"
