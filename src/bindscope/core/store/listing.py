"""Listings: one small JSON that stands for many stores, with a digest of each.

Jobs name a listing among their inputs instead of every store in it. It changes with any of them,
and a store that is not the one that was listed is refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bindscope.core.errors import StoreError
from bindscope.core.files import parse_json
from bindscope.core.store.manifest import Manifest, remedy

if TYPE_CHECKING:
    from bindscope.core.store.reader import Store


def entry(manifest: Manifest, folder: Path | str) -> dict[str, Any]:
    """Describe a store for a listing in `folder`; StoreError if its arrays differ in scenes.

    ``manifest`` (relative to `folder`, so that results can be moved), ``n_scenes``, ``spec_key``
    and ``digest`` (of the manifest).
    """
    numbers = {layout.n_rows for layout in manifest.arrays.values()}
    if len(numbers) != 1:
        raise StoreError(
            str(manifest.path),
            f"its arrays hold different numbers of scenes ({sorted(numbers)})",
            remedy(manifest.path),
        )
    return {
        "manifest": os.path.relpath(manifest.path, folder),
        "n_scenes": numbers.pop(),
        "spec_key": manifest.spec_key,
        "digest": manifest.digest,
    }


def read_listing(path: Path, what: str, keys: tuple[str, ...]) -> dict[str, Any]:
    """Read a listing, called `what` in messages; StoreError if it is damaged or lacks a key."""
    try:
        content = parse_json(path.read_bytes())
        whole = isinstance(content, dict) and set(keys) <= content.keys()
    except FileNotFoundError:
        raise StoreError(str(path), f"there is no such {what}", remedy(path)) from None
    except ValueError:
        whole = False
    if not whole:
        raise StoreError(str(path), f"the {what} is truncated or was changed", remedy(path))
    listing: dict[str, Any] = content
    return listing


def open_listed(path: Path, listed: Mapping[str, Any], code: str) -> Store:
    """Open the store that is `listed` in the listing at `path`; `code` must have made it.

    StoreError if the store is missing, damaged, or not the one that was listed.
    """
    # It imports zarr, which writing a listing need not.
    from bindscope.core.store.reader import open_store

    manifest = path.parent / listed["manifest"]
    store = open_store(manifest, code=code, spec_key=listed["spec_key"])
    if store.manifest.digest != listed["digest"]:
        raise StoreError(str(path), f"is older than its shard {manifest}", remedy(path))
    return store
