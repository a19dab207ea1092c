"""SGLang's own code, taken out of its wheels' sources and run without what it imports.

``cargo xtask setup`` unpacks the wheels into ``target/parts/sglang``.
"""

import ast
import builtins
import functools
import os
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[3]
WHEELS = Path(os.environ.get("INFLIGHTD_SGLANG_WHEELS", ROOT / "target" / "parts" / "sglang"))

RUN = ("0.5.11", "0.5.20", "0.5.23")
"""Versions whose code the contract tests run."""
NAMED = ("0.4.10", "0.5.5", "0.5.11", "0.5.15", "0.5.20", "0.5.23")
"""Versions whose names are checked."""


def path(version, module):
    """The file of ``sglang.srt.<module>``; None where that version has none."""
    package = WHEELS / version / "sglang" / "srt"
    if not package.is_dir():
        raise AssertionError(f"SGLang {version} is not in {WHEELS}: run `cargo xtask setup`")
    file = package / (module.replace(".", "/") + ".py")
    return file if file.exists() else None


@functools.cache
def tree(version, module):
    """The module's syntax tree."""
    return ast.parse(path(version, module).read_text())


class _Names(dict):
    """Builtins; any other name stands for nothing in particular."""

    def __missing__(self, name):
        self[name] = mock.MagicMock(name=name)
        return self[name]


def lift(version, module, *names, **given):
    """The named functions, classes and ``Class.method`` of a module, run as they are but for
    decorators and annotations. ``given`` are names that they find; others are mocks."""
    scope = {"__builtins__": _Names(vars(builtins)), "__name__": module, **given}
    found = [_find(tree(version, module), name) for name in names]
    body = [_bare(node) for node in found]
    exec(compile(ast.Module(body, []), str(path(version, module)), "exec"), scope)  # noqa: S102
    return [scope[node.name] for node in found]


def _find(tree, name):
    node = tree
    for part in name.split("."):
        node = next(child for child in node.body if getattr(child, "name", None) == part)
    return node


def _bare(node):
    for inner in ast.walk(node):
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            keep = [d for d in inner.decorator_list if getattr(d, "id", "") in KEPT]
            inner.decorator_list, inner.returns = keep, None
            every = inner.args.posonlyargs + inner.args.args + inner.args.kwonlyargs
            for argument in every:
                argument.annotation = None
    return ast.fix_missing_locations(node)


KEPT = ("staticmethod", "classmethod", "property")
