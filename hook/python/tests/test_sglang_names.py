"""The names that the plugin relies on, looked up in the sources of SGLang's wheels."""

import ast
import functools
import pathlib
import unittest

import sglang_wheel
from inflightd_hook.sglang import engine
from inflightd_hook.sglang.names import NAMES

_COMMON = "disaggregation.common.conn:CommonKVManager"
_COPIES = {f"{_COMMON}._kv_replica_factor"}
_DEFERRED = {f"{_COMMON}.deferred_bootstrap"}
_NO_FAILS = {f"{_COMMON}.{name}" for name in ("conclude_failure", "send_kv_status_message")}
_NO_FAILS |= _DEFERRED
_IN_THE_SCHEDULER = {"disaggregation.nixl.conn:NixlKVManager.transfer_queues", *_COPIES, *_NO_FAILS,
                     "managers.schedule_batch:Req.pending_bootstrap"}
_NO_CP = {f"{_COMMON}.{name}" for name in ("attn_cp_rank", "attn_cp_size", "is_dummy_cp_rank")}
_NO_CP |= _IN_THE_SCHEDULER
_NO_CP |= {f"{_COMMON}.{name}" for name in ("failure_records", "failure_lock", "update_status")}
_NO_POOL = {"disaggregation.mooncake.conn:MooncakeKVManager.enable_custom_mem_pool"}
_NO_RANKS = {f"{_COMMON}.{rank}"
             for rank in ("attn_tp_rank", "attn_tp_size", "attn_dp_rank", "system_dp_rank",
                          "pp_rank", "pp_size")}
MISSING = {
    "0.4.10": _NO_CP | _NO_RANKS | _NO_POOL,
    "0.5.5": _NO_CP,
    "0.5.11": _IN_THE_SCHEDULER,
    "0.5.15": _COPIES | _NO_FAILS,
    "0.5.20": _DEFERRED,
    "0.5.23": set(),
}
"""What a version is known to lack; what is lost by it is in ``names.py``."""


def has(version, where):
    """Whether one of the alternatives is there."""
    return any(_has(version, *one.split(":")) for one in where.split("|"))


def _has(version, module, name):
    if sglang_wheel.path(version, module) is None:
        return False
    holder, _, member = name.partition(".")
    members = _members(version, module).get(holder)
    return members is not None and (not member or member in members)


@functools.cache
def _members(version, module):
    """By each name of a module: what is defined in it, or assigned to its ``self``."""
    found = {}
    for node in sglang_wheel.tree(version, module).body:
        for name in _defined(node):
            found[name] = set().union(*map(_names, ast.walk(node)))
    return found


def _names(node):
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return {node.attr} if getattr(node.value, "id", "") == "self" else set()
    return _defined(node)


def _defined(node):
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, ast.AnnAssign):
        return {getattr(node.target, "id", None)}
    targets = node.targets if isinstance(node, ast.Assign) else ()
    return {target.id for target in targets if isinstance(target, ast.Name)}


class Names(unittest.TestCase):
    def test_each_wheel_has_what_it_is_known_to_have(self):
        for version in sglang_wheel.NAMED:
            with self.subTest(version):
                missing = {name.where for name in NAMES if not has(version, name.where)}
                self.assertEqual(missing, MISSING[version])

    def test_a_name_that_is_nowhere_is_missed(self):
        self.assertFalse(has("0.5.23", "managers.scheduler:Scheduler.nothing_of_that_name"))
        self.assertFalse(has("0.5.23", "no.such.module:Scheduler"))

    def test_what_the_plugin_reads_is_listed(self):
        listed = {part for name in NAMES for part in name.where.replace(":", ".").split(".")}
        listed |= {part for name in NAMES for one in name.where.split("|")
                   for part in one.replace(":", ".").split(".")}
        source = ast.parse(pathlib.Path(engine.__file__).read_text())
        read = {node.args[1].value for node in ast.walk(source) if _is_getattr(node)}
        self.assertLessEqual(read - OTHERS, listed)

    def test_the_host_of_warm_ups_is_the_same(self):
        for version in sglang_wheel.NAMED:
            tree = sglang_wheel.tree(version, "disaggregation.utils")
            values = [node.value.value for node in tree.body
                      if "FAKE_BOOTSTRAP_HOST" in _defined(node)]
            self.assertEqual(values, [engine.FAKE_HOST], version)


OTHERS = {
    "__version__", "value", "name", "server_args", "nnodes", "tp_rank", "endpoint", "dst_port",
    "time_stats", "trace_ctx", "root_span_context",
}
"""Read where they are there, without any loss worth a word."""


def _is_getattr(node):
    named = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr"
    return named and len(node.args) > 1 and isinstance(node.args[1], ast.Constant)


if __name__ == "__main__":
    unittest.main()
