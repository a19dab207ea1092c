"""What lets an unmodified SGLang wheel serve on a machine without a GPU.

Nothing on the way of a request's KV is replaced: a placeholder stands for the package of GPU
kernels, SGLang's own processes are forked rather than spawned, and two fields that SGLang
itself has say that the KV lies in host memory.
"""

import importlib.abc
import importlib.machinery
import multiprocessing
import os
import sys
import types

PLACEHOLDERS = ("sgl_kernel",)
"""Packages that exist for GPUs only and are imported at module scope."""

SETTINGS = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # The library is there, for torch needs it, and wants GPUs: without it ranks speak by gloo.
    "SGLANG_NCCL_SO_PATH": "none: this is a CPU",
    # What several ranks would compile with their first request takes minutes on two cores.
    "TORCH_COMPILE_DISABLE": "1",
    # With UCX's default transports on one host a frozen peer does not stall a write.
    "UCX_TLS": "tcp,self",
    "UCX_NET_DEVICES": "lo",
    "UCX_LOG_LEVEL": "error",
}

MODULES = (
    "sglang.launch_server",
    "sglang.srt.entrypoints.http_server",
    "sglang.srt.managers.scheduler",
    "sglang.srt.managers.detokenizer_manager",
    "sglang.srt.disaggregation.prefill",
    "sglang.srt.disaggregation.decode",
    "sglang.srt.disaggregation.nixl.conn",
)
"""What a server needs: imported once, before it is forked."""


class _Missing:
    """Can be imported; fails by name where it is called."""

    def __init__(self, name):
        self._name = name

    def __call__(self, *_args, **_kwargs):
        raise RuntimeError(f"{self._name} is a GPU kernel; this server runs on a CPU")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Missing(f"{self._name}.{name}")


class _Placeholder(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Missing(f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds placeholders where the real package is not asked."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in PLACEHOLDERS:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = _Placeholder(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module):
        pass


def prepare():
    """Import SGLang once. Takes 20 to 30 CPU seconds, so servers are forks of the caller."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    sys.meta_path.insert(0, _Finder())
    start = multiprocessing.set_start_method
    multiprocessing.set_start_method = lambda _method, force=False: start("fork", force=True)
    for module in MODULES:
        importlib.import_module(module)
    import torch

    torch.set_num_threads(1)
    _kv_in_host_memory()


def _kv_in_host_memory():
    """NIXL registers KV as GPU memory unless `kv_data_mem_kinds` says otherwise, which SGLang
    sets for its own mixed pools only; Mooncake's sender has a plain path beside the one with
    CUDA events."""
    from sglang.srt.disaggregation.nixl import conn

    init = conn.NixlKVManager.__init__

    def with_kinds(self, args, *rest, **named):
        args.kv_data_mem_kinds = ["DRAM"] * len(args.kv_data_ptrs)
        init(self, args, *rest, **named)

    conn.NixlKVManager.__init__ = with_kinds
    try:
        from sglang.srt.disaggregation.mooncake import conn as mooncake
    except ImportError:
        return
    mooncake.MooncakeKVSender.supports_host_tensor_indices = False
