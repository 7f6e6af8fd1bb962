"""List what docs/development.md, "Words and names", rules out; fail where there is more of it.

`python tools/words.py` compares each file with tools/words.json and prints where there is more,
`--list PATH...` prints every case of these files, `--write` replaces the counts if no total rises.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BASELINE = ROOT / "tools" / "words.json"
NAMES = frozenset(
    [
        "found",
        "own",
        "one",
        "other",
        "told",
        "shown",
        "asked",
        "wanted",
        "given",
        "made",
        "kept",
        "held",
        "left",
        "said",
        "seen",
        "taken",
    ]
)
SIDES = frozenset(["right", "top", "bottom"])  # "left" next to one of these is a side
VERBLESS = frozenset(["of", "at", "told_apart", "made_anew"])
CLASSES = frozenset(["Told", "Given", "Taken", "Seen", "Opened", "Measured", "Held", "Found"])
LONGEST = 35  # words of a sentence
WIDEST = 92  # characters of a line of code on a page: as many as the site shows (site.css)
UNREADABLE = re.compile(
    r"specification, (?:section|E\d)|\bspec \d\b|\.\./shared\b|\bshared/\w+\.md"
    r"|as the specification"
)
# The glossary has another word for them; the concept binding paper's "bag of concepts" is a name.
TERM = re.compile(
    r"\b(?:concept types?|feature values?|kinds? of values?|perceptrons?"
    r"|groups? of (?:features|values|seeds|models|tokens))\b",
    re.IGNORECASE,
)
ITEM = re.compile(r"([-*+]|\d+\.) ")
# They name what they look for.
QUOTING = (Path(__file__), ROOT / "tests" / "project" / "test_words.py")
CODE = ("src", "workflow", "tests", "tools", "benchmarks")
Case = tuple[int, str, str]  # line, kind, text


def _sides(node: ast.AST) -> list[ast.AST]:
    """Return where `left` is a side: next to others in a tuple, in parameters or fields."""
    if isinstance(node, ast.Tuple):
        named: dict[ast.AST, str] = {x: x.id for x in node.elts if isinstance(x, ast.Name)}
    elif isinstance(node, ast.arguments):
        named = {x: x.arg for x in node.args}
    elif isinstance(node, ast.ClassDef):
        fields = (x.target for x in node.body if isinstance(x, ast.AnnAssign))
        named = {x: x.id for x in fields if isinstance(x, ast.Name)}
    else:
        return []
    return [x for x, name in named.items() if name == "left"] if SIDES & {*named.values()} else []


def names(source: str) -> Iterator[Case]:
    """Yield the banned names that a module defines.

    Parameters
    ----------
    source
        Python.
    """
    tree = ast.parse(source)
    sides = {id(name) for node in ast.walk(tree) for name in _sides(node)}
    for node in ast.walk(tree):
        if id(node) in sides:
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name, banned = node.name, NAMES | VERBLESS
        elif isinstance(node, ast.ClassDef):
            name, banned = node.name, CLASSES
        elif isinstance(node, ast.arg):
            name, banned = node.arg, NAMES
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name, banned = node.id, NAMES
        else:
            continue
        if name.lstrip("_") in banned:
            yield node.lineno, "name", name


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield the first line and the words of each sentence of a page, without code and tables."""
    text = re.sub(r"(?ms)^ *```.*?^ *```", lambda m: "\n" * m[0].count("\n"), text)
    block: list[str] = []
    start = 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        bare = line.strip()
        item = ITEM.match(bare)
        if not bare or item or bare.startswith(("#", "|", "<", "!!!", "    ", ":::")):
            for sentence in re.split(r"(?<=[.!?])\s+(?=\S)", " ".join(block)):
                yield start, sentence
            block, start = [], number
        if bare and not bare.startswith(("#", "|", "<", "!!!", ":::")):
            start = start if block else number
            block.append(bare[item.end() :] if item else bare)


def layout(text: str) -> Iterator[Case]:
    """Yield the lines of code that a page cuts off, and the items that it shows as no item."""
    code, follows_text = None, False  # follows_text: of an item that is above it
    for number, line in enumerate(text.splitlines(), 1):
        indent = len(line) - len(line.lstrip())
        if line.lstrip().startswith("```"):
            code = (line.strip("` "), indent) if code is None else None
        elif code and code[0] not in ("", "text") and len(line) - code[1] > WIDEST:
            yield number, "wide", line
        elif code is None and ITEM.match(line) and follows_text:
            yield number, "item", f"no empty line above: {line}"
        follows_text = line[:4].isspace() and not ITEM.match(line.lstrip())


def cases(path: Path) -> list[Case]:
    """Return what one file has of what is ruled out: line, kind and text."""
    text = path.read_text(encoding="utf-8")
    listed = [] if path.suffix != ".py" else list(names(text))
    if path not in QUOTING:
        listed += [
            (n, kind, line.strip())
            for n, line in enumerate(text.splitlines(), 1)
            for kind, pattern in (("unreadable", UNREADABLE), ("term", TERM))
            if pattern.search(line)
        ]
    if path.suffix == ".md" and path.name not in ("CHANGELOG.md", "configuration.md"):
        for line, sentence in sentences(text):
            if len(sentence.split()) > LONGEST:
                listed.append((line, "sentence", sentence))
        listed += layout(text) if path.name != "README.md" else []
    return sorted(listed)


def files() -> Iterator[Path]:
    """Yield the code and the pages that are checked."""
    for folder in CODE:
        yield from sorted((ROOT / folder).rglob("*.py"))
    yield from (ROOT / "README.md", ROOT / "config" / "README.md")
    yield from sorted((ROOT / "docs").rglob("*.md"))


def counts() -> dict[str, dict[str, int]]:
    """Count the cases of each file by kind; files without any are left out."""
    listed = {str(p.relative_to(ROOT)): Counter(kind for _, kind, _ in cases(p)) for p in files()}
    return {path: dict(sorted(kinds.items())) for path, kinds in listed.items() if kinds}


def risen(now: dict[str, dict[str, int]], before: dict[str, dict[str, int]]) -> list[str]:
    """Return a line for each file and kind of which there is more than before."""
    return [
        f"{path}: {count} of kind '{kind}', {before.get(path, {}).get(kind, 0)} allowed"
        for path, kinds in now.items()
        for kind, count in kinds.items()
        if count > before.get(path, {}).get(kind, 0)
    ]


def totals(counted: dict[str, dict[str, int]]) -> Counter[str]:
    """Add the counts of all files, by kind."""
    return sum((Counter(kinds) for kinds in counted.values()), Counter())


def main() -> int:
    """Compare with the committed counts, list cases, or replace the counts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--list", nargs="+", type=Path, metavar="PATH", help="print every case")
    parser.add_argument("--write", action="store_true", help="replace the committed counts")
    options = parser.parse_args()
    if options.list:
        for path in options.list:
            for line, kind, text in cases(path):
                print(f"{path}:{line}: {kind}: {text}")
        return 0
    before = json.loads(BASELINE.read_text()) if BASELINE.exists() else None
    now = counts()
    print("totals:", *(f"{kind} {count}" for kind, count in sorted(totals(now).items())))
    if options.write:
        if before is not None and (more := totals(now) - totals(before)):
            print(f"not written, because totals rise: {dict(more)}")
            return 1
        lines = (f"{json.dumps(path)}: {json.dumps(n)}" for path, n in sorted(now.items()))
        BASELINE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        return 0
    lines = risen(now, before or {})
    print(*lines, sep="\n")
    if lines:
        print("fix: see them with `python tools/words.py --list PATH`; for a moved file, `--write`")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
