"""The pins of requirements.lock."""

from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = Path("requirements.lock")
HASHES = Path("requirements.hashes")


def read_pins(file: Path = LOCK) -> dict[str, str]:
    """Return version by project, names as package indexes compare them."""
    lines = [line.strip(" \\") for line in file.read_text().splitlines()]
    pins = [Requirement(line) for line in lines if line and not line.startswith(("#", "--hash"))]
    return {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in pins}
