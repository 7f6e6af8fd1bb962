"""Photos with masks in the byte formats of ADE20K's and COCO's releases, drawn by us."""

import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

# Class codes of the masks, from 1 on in the index; those from 256 on need the red channel.
NAMES = {
    1: "-",
    2: "wall",
    312: "building, edifice",
    401: "car, auto, automobile, machine, motorcar",
    774: "door",
    783: "double door",
    900: "zither",
    1023: "screen, CRT screen",
    1024: "television receiver, television, television set, tv, tv set, idiot box, boob tube, "
    "telly, goggle box",
}
N_NAMES = 1100
CAR, BUILDING, WALL, ZITHER = 401, 312, 2, 900
# Rows of the benchmark's table: number, whether stuff, name; the others are made up.
BENCHMARK = {
    1: (1, "wall"),
    2: (1, "building;edifice"),
    15: (0, "door;double;door"),
    21: (0, "car;auto;automobile;machine;motorcar"),
    90: (
        0,
        "television;television;receiver;television;set;tv;tv;set;idiot;box;boob;tube;telly;"
        "goggle;box",
    ),
    142: (0, "crt;screen"),
}
COCO_CATEGORIES = (
    {"supercategory": "person", "isthing": 1, "id": 1, "name": "person"},
    {"supercategory": "vehicle", "isthing": 1, "id": 3, "name": "car"},
    {"supercategory": "sky", "isthing": 0, "id": 187, "name": "sky-other-merged"},
    {"supercategory": "wall", "isthing": 0, "id": 199, "name": "wall-other-merged"},
)


@dataclass(frozen=True)
class Photo:
    """A photo that was drawn: its pixels, whose each is, and what the objects are.

    Attributes
    ----------
    name
        File name without its ending.
    image
        uint8 (H, W, 3), or (H, W) for a grey one.
    instances
        (H, W): 0 = unlabelled, j = the j-th object.
    classes
        Class code or category of each object.
    part
        The release's own part.
    crowds
        Objects, from 1 on, that are crowds (COCO).
    save
        Writes the image file. Default: without loss, a PNG, whatever its name says (readers look at
        the content).
    """

    name: str
    image: npt.NDArray[np.uint8]
    instances: npt.NDArray[np.int64]
    classes: tuple[int, ...]
    part: str
    crowds: tuple[int, ...] = ()
    save: Callable[[Image.Image, Path], None] = lambda image, path: image.save(path, "PNG")


def draw(
    name: str,
    size: tuple[int, int],
    classes: Sequence[int],
    part: str,
    *,
    grey: bool = False,
    crowds: tuple[int, ...] = (),
) -> Photo:
    """Draw rectangles, one per class, later ones on top, on an unlabelled ground.

    `size` is (width, height); every object keeps a row of pixels that no other one covers.
    """
    width, height = size
    rng = np.random.default_rng(sum(map(ord, name)))
    instances = np.zeros((height, width), np.int64)
    for j in range(1, len(classes) + 1):
        left, top = rng.integers(0, width // 2), rng.integers(0, height // 2)
        instances[top : top + height // 3, left : left + width // 3] = j
    for j in range(1, len(classes) + 1):
        instances[height - j, : width // 2] = j
    image = rng.integers(0, 256, (height, width) if grey else (height, width, 3), np.uint8)
    return Photo(name, image, instances, tuple(classes), part, crowds)


def write_ade20k(folder: Path, photos: Sequence[Photo], *, protocol: int = 4) -> Path:
    """Write ADE20K's full release: index, masks, masks of parts, JSON; and the benchmark's table.

    In a mask R is 10 times the class over 256, G the rest, and B a code of the object; codes of an
    image are spread over 1 to 255. Arrays of the index are NumPy's, as far as they are numbers.
    """
    release = folder / "ADE20K_2021_17_01"
    release.mkdir(parents=True)
    names = [NAMES.get(code, f"thing {code}") for code in range(1, N_NAMES + 1)]
    index: dict[str, Any] = {
        "filename": [f"{photo.name}.jpg" for photo in photos],
        "folder": [_ade20k_folder(photo) for photo in photos],
        "objectnames": names,
        "objectPresence": np.zeros((N_NAMES, len(photos)), np.float32),
        "scene": np.array(["/street"] * len(photos), dtype=object),
        "description": {"filename": "array of length N"},
    }
    (release / "index_ade20k.pkl").write_bytes(pickle.dumps(index, protocol))
    rows = ["Idx,Ratio,Train,Val,Stuff,Name"]
    for number in range(1, 151):
        stuff, name = BENCHMARK.get(number, (0, f"made;up;{number}"))
        rows.append(f"{number},0.01,100,10,{stuff},{name}")
    (release / "objectInfo150.csv").write_text("\n".join(rows) + "\n")
    for photo in photos:
        base = folder / _ade20k_folder(photo)
        base.mkdir(parents=True, exist_ok=True)
        photo.save(Image.fromarray(photo.image), base / f"{photo.name}.jpg")
        mask = ade20k_mask(photo)
        Image.fromarray(mask).save(base / f"{photo.name}_seg.png")
        Image.fromarray(mask[::-1]).save(base / f"{photo.name}_parts_1.png")
        (base / f"{photo.name}.json").write_text("{}")
    return release


def _ade20k_folder(photo: Photo) -> str:
    return f"ADE20K_2021_17_01/images/ADE/{photo.part}/urban/street"


def ade20k_codes(photo: Photo) -> npt.NDArray[np.int64]:
    """B of every object: spaced codes, not 1, 2, 3."""
    n = len(photo.classes)
    return 1 + np.arange(n) * (254 // max(n, 2))


def ade20k_mask(photo: Photo) -> npt.NDArray[np.uint8]:
    """Return a mask as it is stored, uint8 (H, W, 3)."""
    code = np.array([0, *photo.classes])[photo.instances]
    blue = np.array([0, *ade20k_codes(photo)])[photo.instances]
    return np.stack([code // 256 * 10, code % 256, blue], axis=-1).astype(np.uint8)


def coco_ids(photo: Photo) -> npt.NDArray[np.int64]:
    """Return the segment ids of a photo: some beyond one byte, some beyond two."""
    n = len(photo.classes)
    return np.array([(j * 2654435761 + 77777) % (1 << 24) or 1 for j in range(1, n + 1)])


def write_coco(folder: Path, photos: Sequence[Photo]) -> Path:
    """Write COCO's panoptic release: a JSON per part, masks and images."""
    for part in ("train2017", "val2017"):
        mine = [photo for photo in photos if photo.part == part]
        masks = folder / "annotations" / f"panoptic_{part}"
        masks.mkdir(parents=True, exist_ok=True)
        (folder / part).mkdir(exist_ok=True)
        images, annotations = [], []
        for number, photo in enumerate(mine, start=139):
            height, width = photo.instances.shape
            images.append(
                {
                    "license": 2,
                    "file_name": f"{photo.name}.jpg",
                    "height": height,
                    "width": width,
                    "id": number,
                }
            )
            annotations.append(
                {
                    "segments_info": coco_segments(photo),
                    "file_name": f"{photo.name}.png",
                    "image_id": number,
                }
            )
            photo.save(Image.fromarray(photo.image), folder / part / f"{photo.name}.jpg")
            ids = np.array([0, *coco_ids(photo)])[photo.instances]
            mask = np.stack([ids % 256, ids // 256 % 256, ids // 65536], axis=-1)
            Image.fromarray(mask.astype(np.uint8)).save(masks / f"{photo.name}.png")
        content = {
            "info": {"year": 2018},
            "licenses": [],
            "images": images,
            "annotations": annotations,
            "categories": list(COCO_CATEGORIES),
        }
        (folder / "annotations" / f"panoptic_{part}.json").write_text(json.dumps(content))
    return folder


def coco_segments(photo: Photo) -> list[dict[str, Any]]:
    """Return `segments_info` of a photo."""
    return [
        {
            "area": int((photo.instances == j).sum()),
            "category_id": category,
            "iscrowd": int(j in photo.crowds),
            "id": int(number),
            "bbox": [0, 0, 1, 1],
        }
        for j, (category, number) in enumerate(
            zip(photo.classes, coco_ids(photo), strict=True), start=1
        )
    ]
