"""Plan runs, find products, check and repair them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path

from bindscope import __version__
from bindscope.config.composition import read_configuration
from bindscope.core.errors import BindscopeError, remember_configfiles
from bindscope.core.graph import Graph
from bindscope.studies.build import all_steps, read_graph

DECIDES_NOTHING = True

DEFAULT = "config/config.yaml"
ZOO_PRESET = "config/presets/zoo.yaml"


def load_graph(configfile: str) -> Graph:
    """Read a configuration file and list its products."""
    remember_configfiles([configfile])
    return read_graph(read_configuration(configfile), configfile)


def _path(arguments: argparse.Namespace) -> int:
    if arguments.rule not in all_steps():
        near = get_close_matches(arguments.rule, all_steps(), 5, 0.4) or sorted(all_steps())[:5]
        raise BindscopeError(
            arguments.rule, "is no rule", f"choose {', '.join(near)}, or another of `snakemake -l`"
        )
    outputs = list(all_steps()[arguments.rule].outputs)
    if arguments.output not in (None, *outputs):
        raise BindscopeError(
            arguments.rule, f"has no output {arguments.output!r}", f"choose {', '.join(outputs)}"
        )
    for pair in arguments.names:
        if "=" not in pair:
            raise BindscopeError(pair, "is not NAME=VALUE", "write split=test, for example")
    values = dict(pair.split("=", 1) for pair in arguments.names)
    of_rule = load_graph(arguments.configfile).select(arguments.rule)
    products = [
        product
        for product in of_rule
        if all(product.wildcards.get(name) == value for name, value in values.items())
    ]
    for product in products:
        for output in [arguments.output] if arguments.output else outputs:
            print(product.path(output))
    if not products:
        raise BindscopeError(
            arguments.configfile,
            f"no {arguments.rule} with {' '.join(arguments.names) or 'any name'} is configured",
            f"`bindscope path {arguments.rule} --configfile {arguments.configfile}` lists those "
            "that are"
            if of_rule
            else f"`bindscope plan --all --cost --configfile {arguments.configfile}` counts the "
            "jobs that are",
        )
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    graph = load_graph(arguments.configfile)
    if arguments.cost:
        from bindscope.commands import cost

        products = list(graph.products.values()) if arguments.all else cost.would_run(graph)
        print(*graph.notes, cost.table(products, arguments.configfile), sep="\n")
        cost.refuse(products, 0, arguments.configfile, cost.gpu_memory_mb())
        return 0
    from bindscope.commands.plan import dry_run

    print(*graph.notes, dry_run(arguments.configfile), sep="\n")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from bindscope.commands.show import show

    graph = load_graph(arguments.configfile)
    print(show(graph, Path(arguments.table), arguments.row))
    return 0


def _new(arguments: argparse.Namespace) -> int:
    from bindscope.commands.new import ask, write_new

    if arguments.file is None or not arguments.model:
        return write_new(*ask())
    return write_new(
        Path(arguments.file), arguments.model, arguments.study, arguments.images, arguments.labels
    )


def _verify(arguments: argparse.Namespace) -> int:
    from bindscope.commands.verify import verify_products

    return verify_products(load_graph(arguments.configfile), arguments.repair)


def _gc(arguments: argparse.Namespace) -> int:
    from bindscope.commands.gc import collect

    graphs = [load_graph(name) for name in arguments.configfile or [DEFAULT]]
    return collect(graphs, arguments.delete)


def _zoo(arguments: argparse.Namespace) -> int:
    from bindscope.commands.zoo import write_zoo

    return write_zoo(load_graph(arguments.configfile))


def parser() -> argparse.ArgumentParser:
    """Build the command's parser."""
    top = argparse.ArgumentParser(
        prog="bindscope", description=__doc__, epilog="example: bindscope plan --cost"
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: object, text: str, example: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=f"example: bindscope {name} {example}".rstrip(),
        )
        sub.set_defaults(run=run)
        return sub

    def configfile(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("--configfile", default=DEFAULT, help=f"configuration ({DEFAULT})")

    _add_new(command)
    plan = command(
        "plan",
        _plan,
        "show in a few lines what would run, and why",
        "--configfile config/presets/ci.yaml",
    )
    plan.add_argument("--cost", action="store_true", help="jobs, memory, disk and hours instead")
    plan.add_argument("--all", action="store_true", help="of all jobs, those too that are done")
    configfile(plan)
    path = command("path", _path, "print the paths of products", "codes split=test --output store")
    path.add_argument("rule", metavar="RULE", help="name of the rule that makes it, such as fit")
    path.add_argument("names", nargs="*", metavar="NAME=VALUE", help="dataset=... model=...")
    path.add_argument("--output", help="only this output: manifest, store, rows, ...")
    configfile(path)
    show = command(
        "show",
        _show,
        "trace a row of a table back to codes, weights and configuration",
        "results/tables/binding_information.parquet 12",
    )
    show.add_argument("table", metavar="TABLE", help="results/tables/<name>.parquet")
    show.add_argument("row", metavar="ROW", type=int, help="number of the row, from 0")
    configfile(show)
    verify = command(
        "verify", _verify, "read every product and compare it with its digests", "--repair"
    )
    verify.add_argument("--repair", action="store_true", help="delete bad ones, make them again")
    configfile(verify)
    gc = command("gc", _gc, "list files that no configuration uses", "--delete")
    gc.add_argument("--delete", action="store_true", help="delete them")
    gc.add_argument(
        "--configfile", action="append", help=f"configuration to keep, repeatable ({DEFAULT})"
    )
    zoo = command("zoo", _zoo, "write finished trainings to resources/zoo", "")
    zoo.add_argument("--configfile", default=ZOO_PRESET, help=f"configuration ({ZOO_PRESET})")
    return top


def _add_new(command: Callable[..., argparse.ArgumentParser]) -> None:
    new = command(
        "new",
        _new,
        "write a configuration for your models next to the zoo's",
        "my-run.yaml --model timm:vit_small_patch16_224.augreg_in21k",
    )
    new.add_argument("file", nargs="?", metavar="FILE", help="file to write; left out: questions")
    new.add_argument(
        "--model", nargs="+", help="hf:<repo>@<commit>, timm:<model>, path:<folder>, python:..."
    )
    new.add_argument(
        "--study",
        default="binding_information",
        help="what is measured (binding_information); or same_object, concepts, binding_id",
    )
    new.add_argument(
        "--images", type=Path, metavar="FOLDER", help="your own images (default: rendered scenes)"
    )
    new.add_argument(
        "--labels", type=Path, metavar="FILE", help="their CSV or Parquet, a row per object"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; a user's mistake is one message and exit code 1."""
    parsed = parser().parse_args(arguments)
    if str(Path.cwd()) not in sys.path:  # `python:` models of this folder, as Snakemake finds them
        sys.path.append(str(Path.cwd()))
    try:
        code = int(parsed.run(parsed))
        sys.stdout.flush()
    except BindscopeError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:  # as of `| head`; else the interpreter would flush into it at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
