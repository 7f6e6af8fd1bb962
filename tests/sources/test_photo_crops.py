"""Photos as sheets of crops, as the code of the IsSameObject paper cuts them."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from segmented_photos import COCO, coco, placing, records_of, stored
from segmented_releases import Photo, write_coco


def test_crops_are_those_of_the_paper(tmp_path: Path) -> None:
    """At 4:3 the starts are those of the released code, and each crop shows its part."""
    render = {"fit": "crops", "short_px": 518}
    for side, crops, tops, lefts in (
        (518, (1, 2), (0,), (0, 173)),
        (224, (3, 4), (0, 147, 294), (0, 155, 311, 467)),
    ):
        wide = placing(side, size=(1024, 768), crops=crops, **render)
        high = placing(side, size=(768, 1024), crops=crops, **render)
        assert (wide.size, high.size) == ((691, 518), (518, 691))
        pixels = np.arange(691 * 518).reshape(518, 691)
        for placed, image in ((wide, pixels), (high, pixels.T)):
            stored_pixels = placed.arranged(image, 0)
            assert stored_pixels.shape == (crops[0] * side, crops[1] * side)
            corners = stored_pixels[::side, ::side].ravel().tolist()
            expected = [image[y, x] for y in tops for x in lefts]
            if placed is high:
                expected = [image[y, x] for y in lefts for x in tops]
            assert corners == expected
            first = stored_pixels[:side, :side]
            assert (first == image[:side, :side]).all()
    square = placing(518, size=(256, 256), crops=(1, 2), **render)
    assert square.corners() == [(0, 0)]  # a second crop would show the same pixels
    sheet = square.arranged(np.ones((518, 518), int), 7)
    assert (sheet[:, :518] == 1).all()
    assert (sheet[:, 518:] == 7).all()
    assert len(placing(224, size=(300, 300), crops=(3, 4), **render).corners()) == 9
    with pytest.raises(ValidationError, match="short_px"):
        placing(64, "crops", (100, 50))


def test_sheets_say_how_many_crops_they_have(tmp_path: Path) -> None:
    photos = [
        Photo(str(i), np.zeros((*size, 3), np.uint8), np.ones(size, np.int64), (1,), "train2017")
        for i, size in enumerate(((48, 64), (40, 40)), start=1)
    ]
    root = tmp_path / "crops"
    source = coco(write_coco(root, [*photos, *COCO]))
    render = {"fit": "crops", "size_px": 32, "short_px": 32, "crops": [1, 2]}
    arrays = stored(tmp_path, root, records_of(source)[:2], **render)
    assert arrays["images"].shape == (2, 32, 64, 3)
    assert arrays["masks"].shape == (2, 32, 64)
    assert arrays["n_crops"].tolist() == [2, 1]
