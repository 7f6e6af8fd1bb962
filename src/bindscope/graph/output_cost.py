"""What tables, figures and the report take: a function for each, see `core.work`."""

from __future__ import annotations

from bindscope.core.graph import Product
from bindscope.core.work import Work
from bindscope.graph.cost import image_side

# Bytes of a table for each of the rows that jobs left: CSV with Parquet, and a page, which has no
# more than `tables.write.HTML_ROWS` rows (default run, `same_object`, `binding_id`).
_TABLE, _PAGE, _LONGEST_PAGE = 0.55, 0.7, 8e5
_TABLE_BYTES, _FRAME = 8, 3  # likewise, bytes in memory of a table that is made, and of a frame
# Bytes of a figure without marks, of the marks of each byte of its table's rows, and of one that
# shows as many models and panels as it may; the share of them that the page holds (SVG); and of a
# pixel of a scene in PNG and in base64, compressed as in its store.
_CANVAS, _MARKS, _FULLEST, _ON_PAGE, _PICTURES = 1.2e5, 0.5, 5.5e5, 0.55, 1.1 + 4 / 3
# Bytes in memory of pyplot and its fonts, and of a canvas of 5 million pixels, the largest in
# rehearsals, which is drawn, cropped and written: 15 a pixel.
_DRAWING = 4e7 + 15 * 5e6
_SHEET_COLUMNS, _SHEET_PX = 6, 160  # `datasets.figures.COLUMNS` and `_LARGEST_PX`


def rows_read(product: Product) -> float:
    """Return the bytes of the rows that a table is made of."""
    read = 0.0
    for role, jobs in product.inputs.items():
        if role == "rows" and len(product.inputs) > 1:
            continue  # they are summed up in a row for each of the other role's
        outputs = product.reads.get(role, ())
        for work in (job.work for job in jobs):
            read += sum(work.rows_of.get(name, 0.0) for name in outputs) or work.bytes_rows
    return read


def table(product: Product) -> Work:
    """Count a table by the rows that its jobs leave."""
    read = rows_read(product)
    return Work(
        "pandas",
        bytes_disk=1.2e4 + _TABLE * read + min(_PAGE * read, _LONGEST_PAGE),
        bytes_peak=2e7 + _TABLE_BYTES * read,
        python=4e6 + 6 * read,
    )


def figure(product: Product) -> Work:
    """Count a figure by the rows of the tables that it reads, and by the scenes that it shows."""
    pictures, rows = 0.0, 0.0
    for item in (item for role in product.inputs.values() for item in role):
        if item.rule in ("scenes", "record_scenes"):
            side = image_side(item)
            n = item.content["stop"] - item.content["start"]
            # Of a photograph that is made smaller as many pixels go, of contours as long ones.
            smaller = min(1.0, _SHEET_PX / side) ** (1 + (item.rule == "record_scenes"))
            pictures += _PICTURES * min(n, _SHEET_COLUMNS) * smaller * item.work.bytes_disk / n
        rows += rows_read(item) if item.rule == "table" else item.work.bytes_rows
    size = min(_CANVAS + _MARKS * rows, _FULLEST) + pictures
    return Work("pandas", bytes_disk=size, bytes_peak=_DRAWING + 6 * rows, python=1.4e7)


def report(product: Product) -> Work:
    """Count the page, which holds all figures and tables."""
    figures = product.inputs.get("figures", ())
    rows = sum(rows_read(item) for item in product.inputs.get("tables", ()))
    return Work(
        "pandas",
        bytes_disk=2e5 + _ON_PAGE * sum(item.work.bytes_disk for item in figures),
        bytes_peak=5e7 + 5e6 * len(figures) + _FRAME * rows,
        python=1.5e7,
    )
