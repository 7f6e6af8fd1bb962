"""Downloads that are resumed where they stopped and accepted only with the right checksum."""

from __future__ import annotations

import fcntl
import http.client
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from bindscope.core.addresses import check_address, redacted
from bindscope.core.contents import file_sha256
from bindscope.core.errors import InputError
from bindscope.core.files import disk_errors, require_free_space
from bindscope.core.progress import Progress

log = logging.getLogger(__name__)

CHUNK = 1 << 20
_TRIES = 4
_ALL_THERE = 416  # "range not satisfiable": the server has nothing beyond what is here
_GENOME = (
    "Visual Genome (Krishna et al., IJCV 2017, arXiv 1602.07332) is licensed under CC BY 4.0, "
    "https://creativecommons.org/licenses/by/4.0/: name its authors in what you publish of it or "
    "make from it; its photographs are of Flickr users, each under terms of its own"
)
# What whoever downloads must know, by a part of the address.
LICENCES = {
    "visualgenome": _GENOME,
    "VG_100K": _GENOME,
    "CLEVR_v1.0.zip": "CLEVR v1.0 (Johnson et al., CVPR 2017, arXiv 1612.06890) is licensed under "
    "CC BY 4.0, https://creativecommons.org/licenses/by/4.0/: name its authors in what you "
    "publish of it or make from it",
}


def fetch(url: str, sha256: str, folder: Path | str, wait_s: float = 2.0) -> dict[str, Any]:
    """Download a file (``http:`` or ``https:``) into a folder, unless it is there already.

    What has arrived is kept in ``<file>.part``; another call goes on from there. The second try
    comes after `wait_s` seconds, each further one after twice as long. Returned are `url` (without
    its query), `path`, `bytes`, `sha256`, `licence`. InputError if the address is none to download
    from, the server cannot be reached or stops (after four tries), or the checksum is wrong.
    """
    try:
        name = Path(urlsplit(check_address(url)).path).name
    except ValueError as error:
        raise InputError("url", str(error), "correct the address") from error
    target = Path(folder) / name
    part = target.with_name(f"{name}.part")
    licence = next((text for part, text in LICENCES.items() if part in url), "")
    if licence:
        log.info("%s", licence)
    with disk_errors(target), _alone(part):
        if not target.exists():
            _download(url, part, wait_s)
            _check(part, sha256)
            part.replace(target)
        else:
            _check(target, sha256)
    return {
        "url": redacted(url),
        "path": str(target),
        "bytes": target.stat().st_size,
        "sha256": sha256,
        "licence": licence,
    }


@contextmanager
def _alone(part: Path) -> Iterator[None]:
    """Keep two jobs from writing the same file: the second one waits and finds it."""
    part.parent.mkdir(parents=True, exist_ok=True)
    with part.with_name(f"{part.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _check(path: Path, sha256: str) -> None:
    log.info("checksum of %s", path)
    digest = file_sha256(path)
    if digest != sha256:
        raise InputError(
            str(path),
            f"its SHA-256 is {digest}, not {sha256}",
            "if `source.sha256` is right, the file is damaged or another one: "
            f"delete {path} and run again",
        )


def _download(url: str, part: Path, wait_s: float) -> None:
    for attempt in range(_TRIES):
        try:
            if _go_on(url, part):
                return
            problem = "the connection ended early"
        except HTTPError as error:
            if error.code == _ALL_THERE:
                return
            problem = f"the server says {error.code} {error.reason}"
            if error.code < 500:
                break
        except (URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            problem = str(getattr(error, "reason", error)) or type(error).__name__
        if attempt + 1 < _TRIES:
            log.info("%s; trying again", problem)
            time.sleep(wait_s * 2**attempt)
    have = part.stat().st_size if part.exists() else 0
    raise InputError(
        redacted(url),
        f"the download failed ({problem}); {have:,} bytes are in {part}",
        "check the address and the network and run again, it goes on from there; or bring the "
        "file here yourself and name it in `source.path`",
    )


def _go_on(url: str, part: Path) -> bool:
    """Fetch what is missing; whether all of it came."""
    have = part.stat().st_size if part.exists() else 0
    request = Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    with urlopen(request, timeout=60) as answer:
        if have and answer.status != http.client.PARTIAL_CONTENT:
            have = 0  # this server starts over
        length = int(answer.headers.get("Content-Length", 0))
        require_free_space(part.parent, length, part.name)
        progress = Progress(max(length // CHUNK, 1), "MiB")
        got = 0
        with part.open("ab" if have else "wb") as handle:
            while chunk := answer.read(CHUNK):
                handle.write(chunk)
                got += len(chunk)
                progress.advance()
    return not length or got == length
