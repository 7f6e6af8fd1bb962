"""Pages of the site made from code: commands, errors, figures, published numbers."""

from __future__ import annotations

import argparse
import ast
import csv
import html
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bindscope.cli import parser
from bindscope.core.registries import studies

ROOT = Path(__file__).parents[1]
ERRORS = ("ConfigError", "InputError", "ModelError", "StoreError", "BindscopeError")
_TITLES = {
    "ConfigError": "Configuration",
    "InputError": "Arguments of functions",
    "ModelError": "Models",
    "StoreError": "Stores and tables",
    "BindscopeError": "Other",
}
_PUBLISHED = {
    "binding_information.csv": "Binding problem paper, main table",
    "trends.csv": "Binding problem paper, trends",
    "same_object.csv": "IsSameObject paper, probes",
    "same_object_ablation.csv": "IsSameObject paper, ablation",
    "concepts.csv": "Concept binding paper",
    "binding_id.csv": "Binding ID papers",
}


def error_page() -> str:
    """Return a page with a heading, cause and remedy for each error message of the code."""
    calls: dict[str, dict[str, tuple[str, str]]] = {name: {} for name in ERRORS}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for kind, where, problem, remedy in _messages(path.read_text(encoding="utf-8")):
            calls[kind].setdefault(problem, (where, remedy))
    count = sum(len(messages) for messages in calls.values())
    lines = [
        "---\nhide: [toc]\nsearch: {boost: 0.01}\n---\n# Error messages\n",
        "Every message says where the problem is, what it is and how to fix it. This page",
        f"lists the {count} messages with a fixed text. `<...>` stands for what a run fills in.",
        "Search this page for a few words of your message.\n",
    ]
    for kind, messages in calls.items():
        lines.append(f"## {_TITLES[kind]} (`{kind}`)\n" if messages else "")
        for problem, (where, remedy) in sorted(messages.items()):
            lines += [f"### {_plain(problem)}\n", f"- Where: {_plain(where)}"]
            lines += [f"- Remedy: {_plain(remedy)}\n"]
    return "\n".join(lines) + "\n"


def _messages(source: str) -> Iterator[tuple[str, str, str, str]]:
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        if node.func.id not in ERRORS or len(node.args) != 3:
            continue
        where, problem, remedy = (_text(argument) for argument in node.args)
        if re.search(r"[a-z]{3}.* ", re.sub("<.*?>", "", problem)):
            yield node.func.id, where, problem, remedy


def _text(node: ast.expr) -> str:
    """Return a string of the source with `<...>` for each value that a run fills in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    if isinstance(node, ast.FormattedValue):
        return _text(node.value)
    name = ast.unparse(node)
    return f"<{name}>" if name.isidentifier() else "<...>"


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is."""
    parts = re.split("(`[^`]*`)", " ".join(text.split()))
    parts[::2] = [re.sub(r"([\[\]*_|#])", r"\\\1", html.escape(part, False)) for part in parts[::2]]
    return "".join(parts)


def command_page() -> str:
    """Return a page with every command of the command line and its options."""
    lines = [
        "# Command line\n",
        "Every command has `--help`. An error is one message with a remedy and exit code 1. Runs",
        "start with `make run`, see [development](../development.md#commands).\n",
    ]
    (commands,) = (a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        words = command.format_usage().removeprefix("usage: ").split()
        usage = textwrap.fill(" ".join(words), 88, subsequent_indent="    ")
        lines += [f"## bindscope {name}\n", f"{_plain(command.description or '')}\n"]
        lines += [f"```bash\n{usage}\n```\n", "| argument | effect |", "|---|---|"]
        for action in command._actions[1:]:
            names = ", ".join(action.option_strings) or action.metavar or action.dest
            lines.append(f"| `{names}` | {_plain(action.help or '')} |")
        example = (command.epilog or "").removeprefix("example: ")
        lines += ["", f"Example: `{example}`\n"]
    return "\n".join(lines) + "\n"


def gallery_page() -> str:
    """Return a page with every figure of the studies: name, title, caption, image."""
    lines = [
        "# Gallery of figures\n",
        "A run writes `results/figures/<name>.png` and `.svg` if the study is configured.",
        "Images come from the default run or a small preset, if one draws the figure, else from",
        "reduced presets on toys or random weights, which show only the form of a figure.\n",
    ]
    for study in studies().values():
        lines.append(f"## {study.title}\n" if study.figures else "")
        for entry in study.wide_figures:
            lines += [f"### `{entry.name}`: {entry.title}\n"]
            lines += [f"![{entry.title}](../images/{entry.name}.png)\n"]
            lines += [entry.full_caption.replace("<", "&lt;"), ""]
    return "\n".join(lines) + "\n"


PAPERS = {  # file of docs/papers: the paper it goes through, item by item
    "binding_information": "Binding information ([2606.03976](https://arxiv.org/abs/2606.03976))",
    "same_object": "IsSameObject ([2510.24709](https://arxiv.org/abs/2510.24709))",
    "concepts": "Concept binding ([2605.31503](https://arxiv.org/abs/2605.31503))",
    "binding_id": "Binding IDs ([2505.22200](https://arxiv.org/abs/2505.22200))",
}
PAPER_COLUMNS = ("item", "shows", "preset", "figure", "protocol", "reason")
PROTOCOLS = ("same", "differs", "not possible here")


def papers_page() -> str:
    """Return a page with every figure, table and number of the papers, and where it is here."""
    lines = [
        "# The papers, item by item\n",
        "Each row is a figure, a table or a number of a paper: the preset that measures it, our",
        "figure or table of it, and whether the protocol is the paper's. A preset is run by",
        "`make run CONFIG=config/presets/<preset>.yaml`; [presets](presets.md) says what it",
        "needs.\n",
        "*Same*: data, sizes, splits, fit and selection are the paper's; random draws (patches,",
        "order of scenes) may be ours, and resized photos are rounded to 8 bits. *Differs*: the",
        "reason says how.",
        "*Not possible here*: the reason says what is missing. No preset ran on the papers'",
        "weights where bindscope was built: *same* is about the protocol, not about a number.\n",
    ]
    for study, title in PAPERS.items():
        rows = paper_items(study)
        counts = Counter(row["protocol"] for row in rows)
        lines += [f"## {title} {{#{study}}}\n"]
        lines += [", ".join(f"{name}: {counts[name]}" for name in PROTOCOLS) + ".\n"]
        lines += ["| " + " | ".join(PAPER_COLUMNS) + " |", "|---" * len(PAPER_COLUMNS) + "|"]
        for row in rows:
            names = {key: f"`{row[key]}`" for key in ("preset", "figure") if row[key]}
            cells = {**row, **names}
            lines.append("| " + " | ".join(_cell(cells[name]) for name in PAPER_COLUMNS) + " |")
        lines.append("")
    return "\n".join(lines)


def paper_items(study: str) -> list[dict[str, str]]:
    """Return the rows of a paper's file in docs/papers."""
    path = ROOT / "docs" / "papers" / f"{study}.csv"
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def published_tables() -> str:
    """Return the published numbers of resources/published as Markdown tables, a heading each."""
    lines: list[str] = []
    for name, title in _PUBLISHED.items():
        with (ROOT / "resources" / "published" / name).open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        lines += [f"### {title}\n", f"`resources/published/{name}`, {len(rows)} numbers.\n"]
        lines += ["| source | what | quantity | published | note |", "|---|---|---|---|---|"]
        for row in rows:
            lines.append("| " + " | ".join(map(_cell, _published_row(row))) + " |")
        lines.append("")
    return "\n".join(lines)


def _published_row(row: dict[str, str]) -> list[str]:
    named = ("paper", "version", "source", "table", "study", "quantity", "value", "unit", "note")
    source = [row["paper"], row.get("version", ""), row.get("source", ""), row.get("table", "")]
    what = [value for key, value in row.items() if key not in named and value]
    value = " ".join(filter(None, (row["value"] or "no number", row["unit"])))
    return [", ".join(filter(None, source)), ", ".join(what), row["quantity"], value, row["note"]]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
