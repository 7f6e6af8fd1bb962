"""Addresses of downloads: which ones are taken, and what of them may be shown."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

_LONGEST_NAME = 200  # characters: a file system takes 255, and downloads put something behind it


def check_address(url: str) -> str:
    """Return an address of the web that ends in a file's name, without a user or password.

    ValueError if it is something else; the message shows no part of it.
    """
    try:
        parts = urlsplit(url)
        host, secret = parts.hostname, "@" in parts.netloc
        _ = parts.port
    except ValueError:
        raise ValueError("the address is not valid (host or port)") from None
    name = PurePosixPath(parts.path).name
    if parts.scheme not in ("http", "https"):
        raise ValueError("the address must begin with https:// or http://")
    if secret:
        raise ValueError(
            "the address holds a user or password, which would be written into results; download "
            "the file yourself and set `source.path`"
        )
    if not host:
        raise ValueError(f"the address {redacted(url)} names no host")
    if not re.fullmatch("[!-~]+", url):
        raise ValueError("the address holds spaces or characters beyond ASCII; write them as %20")
    if name in ("", "..") or len(name) > _LONGEST_NAME:
        raise ValueError(f"the address {redacted(url)[:100]} does not end in a file's name")
    return url


def redacted(url: str) -> str:
    """Return an address without its query and fragment, which may hold keys and signatures."""
    address, mark, _ = url.partition("?")
    return address.partition("#")[0] + ("?..." if mark else "")


Address = Annotated[str, AfterValidator(check_address)]
