"""Run every job of a configuration without Snakemake: `python forked.py config/quick.yaml`.

Started in a clone with its `src/` on PYTHONPATH. Each job has a process of its own, forked from
this one, which has imported the large libraries: an interpreter per job imports them for longer
than a small job computes. A job gets what Snakemake would give it, and checks it in the same way
(`bindscope.run_job`). What only Snakemake does is for others to test: rules and their paths.
"""

import importlib
import os
import runpy
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType, SimpleNamespace
from typing import Any, NoReturn

from bindscope.commands.warm import LIBRARIES, Imported
from bindscope.config.composition import read_configuration
from bindscope.core import keys
from bindscope.core.graph import Product
from bindscope.studies.build import read_graph, stem

CALLS = "FORKED_CALLS"  # a folder, for a file per job


class Calls:
    """Definitions of the library that a job calls, as ``module:name``; for `sys.settrace`.

    Left out are calls by what is in no key (`keys.is_outside`), and those of imports. A profile
    function would be called for the functions of C, too, and when each returns.
    """

    FUNCTION = 1  # CO_OPTIMIZED: no module, no body of a class

    def __init__(self, clone: Path) -> None:
        self.clone, self.source = f"{clone}{os.sep}", f"{clone / 'src'}{os.sep}"
        # By identity: the hash of a code object goes over all of its code, at every call.
        self.seen: dict[int, CodeType] = {}
        self.names: set[str] = set()

    def __call__(self, frame: FrameType | None, event: str, _: object) -> None:
        """Note a call; the lines of its function are not traced."""
        if event != "call" or not frame or id(code := frame.f_code) in self.seen:
            return
        if code.co_filename.startswith(self.source) and code.co_flags & self.FUNCTION:
            callers = self._callers(frame)
            if any(
                caller.co_name == "<module>" and caller.co_filename.startswith(self.source)
                for caller in callers
            ):
                return  # a module computes a constant while it is imported
            name, called = self._module(code), code.co_qualname.partition(".")[0]
            by = next((self._module(c) for c in callers), "")
            if keys.is_outside(name) or keys.is_outside(by):
                return
            # Else it is in a constant, or in a template.
            if called.isidentifier() and code.co_filename.endswith(".py"):
                self.names.add(f"{name}:{called}")
        self.seen[id(code)] = code

    def _callers(self, frame: FrameType) -> list[CodeType]:
        """Return those of the clone, the nearest first."""
        codes, above = [], frame.f_back
        while above:
            if above.f_code.co_filename.startswith(self.clone):
                codes.append(above.f_code)
            above = above.f_back
        return codes

    def _module(self, code: CodeType) -> str:
        path = Path(code.co_filename.removeprefix(self.source)).with_suffix("")
        return ".".join(path.parts).removesuffix(".__init__")


class Names(dict[str, Any]):
    """Values by name, as items and as attributes, like Snakemake's lists."""

    __getattr__ = dict.__getitem__


def run(product: Product) -> None:
    """Run a product's script, as Snakemake does."""
    script = Path("workflow/scripts", product.step.script or f"{product.rule}.py").absolute()
    outputs = {name: product.path(name) for name in product.step.outputs}
    for path in outputs.values():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    log = f"results/logs/{stem(product.rule).format(**product.wildcards)}.log"
    snakemake = SimpleNamespace(
        rule=product.rule,
        input=Names(product.files()),
        output=Names(outputs),
        log=[log],
        params=SimpleNamespace(spec=product.spec, code=product.code),
        scriptdir=script.parent,
        wildcards=Names(product.wildcards),
        resources=Names(units=product.work.units),
    )
    runpy.run_path(str(script), {"snakemake": snakemake})
    missing = [path for path in outputs.values() if not Path(path).exists()]
    assert not missing, missing


def run_here(product: Product) -> NoReturn:
    """Run it in this process, which was forked for it and ends with it."""
    code = 1
    calls = Calls(Path.cwd()) if CALLS in os.environ else None
    threading.settrace(calls)
    sys.settrace(calls)
    # A fork's first use of torch replaces its pool of threads; two threads at once, as those that
    # load weights, may find none ("Invalid thread pool").
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(sys.modules["torch"].get_num_threads())
    sys.meta_path.insert(0, Imported(name.partition(".")[0] for name in LIBRARIES))
    try:
        run(product)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())  # a job's own, which says it in its log
    finally:
        if calls:
            sys.settrace(None)
            file = Path(os.environ[CALLS]) / product.path().replace("/", ":")
            file.write_text("\n".join(sorted(calls.names)))
        sys.stderr.flush()
        os._exit(code)


def run_forked(product: Product) -> None:
    """Run it in a process of its own.

    Raises
    ------
    SystemExit
        If that fails.
    """
    child = os.fork()
    if not child:
        run_here(product)
    _, status, used = os.wait4(child, 0)
    print(f"{used.ru_utime + used.ru_stime:.2f} s: {product.path()}", flush=True)
    if status:
        log = f"results/logs/{stem(product.rule).format(**product.wildcards)}.log"
        raise SystemExit(f"{product.path()} failed ({status}):\n{Path(log).read_text()}")


if __name__ == "__main__":
    for name in LIBRARIES:
        importlib.import_module(name)
    # A product is added after its inputs.
    for each in read_graph(read_configuration(sys.argv[1]), sys.argv[1]).products.values():
        run_forked(each)
