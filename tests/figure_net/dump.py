"""What a figure shows, as plain data: every artist of every axes, and all words."""

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_hex
from matplotlib.figure import Figure


def plain(value):
    """Return numbers and words that JSON can hold; floats in full precision."""
    if isinstance(value, np.ma.MaskedArray):
        value = value.filled(np.nan)
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    return value if isinstance(value, (int, str, bool, type(None))) else str(value)


def colour(value):
    """Return a colour as hexadecimal digits with its opacity."""
    if isinstance(value, str) and value in ("auto", "none"):
        return value
    return to_hex(value, keep_alpha=True)


def line(one):
    """Return a line's points and look."""
    marker = one.get_marker()
    return {
        "xy": np.asarray(one.get_xydata(), float), "color": colour(one.get_color()),
        "marker": str(marker), "size": one.get_markersize() if marker != "None" else 0,
        "face": colour(one.get_markerfacecolor()), "edge": colour(one.get_markeredgecolor()),
        "edgewidth": one.get_markeredgewidth(), "width": one.get_linewidth(),
        "dashes": one._unscaled_dash_pattern, "style": one.get_linestyle(),
        "alpha": one.get_alpha(), "z": one.get_zorder(),
        "label": "" if one.get_label().startswith("_") else one.get_label(),
    }  # fmt: skip


def collection(one):
    """Return the segments or areas of a collection."""
    return {
        "kind": type(one).__name__, "paths": [path.vertices for path in one.get_paths()],
        "offsets": one.get_offsets(), "face": [colour(c) for c in one.get_facecolor()],
        "edge": [colour(c) for c in one.get_edgecolor()], "width": one.get_linewidth(),
        "alpha": one.get_alpha(), "hatch": one.get_hatch(), "z": one.get_zorder(),
        "dashes": one.get_linestyle(),
    }  # fmt: skip


def patch(one):
    """Return the outline of a patch."""
    return {
        "kind": type(one).__name__, "xy": one.get_path().transformed(
            one.get_patch_transform()).vertices,
        "face": colour(one.get_facecolor()), "edge": colour(one.get_edgecolor()),
        "width": one.get_linewidth(), "alpha": one.get_alpha(), "hatch": one.get_hatch(),
        "z": one.get_zorder(), "dashes": one.get_linestyle(), "label": one.get_label(),
    }  # fmt: skip


def text(one):
    """Return words and where they are."""
    return {
        "text": one.get_text(), "xy": plain(one.get_position()),
        "of": plain(getattr(one, "xy", None)), "coords": str(getattr(one, "xycoords", "")),
        "size": one.get_fontsize(), "color": colour(one.get_color()),
        "weight": str(one.get_fontweight()), "slant": one.get_fontstyle(),
        "align": [one.get_ha(), one.get_va()], "turn": one.get_rotation(),
    }  # fmt: skip


def image(one):
    """Return the values of an image, and how they become colours."""
    return {
        "array": np.asarray(one.get_array(), float) if one.get_array() is not None else None,
        "clim": one.get_clim(), "map": one.get_cmap().name, "norm": type(one.norm).__name__,
        "extent": one.get_extent(), "alpha": one.get_alpha(), "origin": one.origin,
        "interpolation": one.get_interpolation(),
    }  # fmt: skip


def legend(one):
    """Return a legend's entries."""
    entries = [
        {**(line(h) if isinstance(h, mpl.lines.Line2D) else patch(h)), "label": t.get_text()}
        for h, t in zip(one.legend_handles, one.get_texts(), strict=True)
    ]
    for entry in entries:
        entry.pop("xy")
    return {"entries": entries, "columns": one._ncols, "loc": str(one._loc)}


def axis(one):
    """Return an axis' scale, ends, ticks and words."""
    ticks = one.get_major_ticks()
    shown = [tick.label1.get_visible() for tick in ticks[:1]]
    words = (
        [label.get_text() for label in one.get_ticklabels()]
        if type(one.get_major_formatter()).__name__ in ("FixedFormatter", "FuncFormatter")
        else type(one.get_major_formatter()).__name__
    )
    first = ticks[0].label1 if ticks else None
    return {
        "scale": one.get_scale(), "ticks": one.get_majorticklocs(), "words": words,
        "shown": shown, "minor": len(one.get_minorticklocs()),
        "size": first.get_fontsize() if first else None,
        "turn": first.get_rotation() if first else None,
        "grid": [tick.gridline.get_visible() for tick in ticks[:1]],
        "label": text(one.label), "length": ticks[0]._size if ticks else None,
    }  # fmt: skip


def axes(one):
    """Return everything on an axes."""
    spec = one.get_subplotspec()
    place = None
    if spec is not None:
        grid = spec.get_gridspec()
        place = [*spec.get_geometry(), grid.get_height_ratios(), grid.get_width_ratios()]
    return {
        "place": place if place else one.get_position().bounds, "on": one.axison,
        "kind": type(one).__name__, "frame": one.get_frame_on(),
        "titles": [text(t) for t in (one._left_title, one.title, one._right_title)],
        "x": axis(one.xaxis), "y": axis(one.yaxis), "xlim": one.get_xlim(), "ylim": one.get_ylim(),
        "lines": [line(x) for x in one.lines], "texts": [text(x) for x in one.texts],
        "collections": [collection(x) for x in one.collections],
        "patches": [patch(x) for x in one.patches], "images": [image(x) for x in one.images],
        "spines": [s.get_visible() for s in one.spines.values()], "face": colour(
            one.get_facecolor()),
        "legend": legend(one.get_legend()) if one.get_legend() else None,
    }  # fmt: skip


def dump(figure: Figure):
    """Return all of a figure."""
    parts = [figure, *figure.subfigs]
    return plain({
        "size": figure.get_size_inches(),
        "axes": [axes(one) for one in figure.axes],
        "legends": [legend(one) for part in parts for one in part.legends],
        "texts": [text(one) for part in parts for one in part.texts],
    })  # fmt: skip
