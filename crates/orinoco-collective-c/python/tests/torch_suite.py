"""PyTorch's own tests of collective operations, written for Gloo, on the back end orinoco.

    python torch_suite.py [-k NAME]

Wherever a test asks for Gloo, it gets orinoco. Tests that PyTorch itself skips for Gloo on this machine (no GPU, fewer ranks) are skipped, and those of
DIFFERENT, with the reason. All others must pass.
"""

import os
import sys
import tempfile
import unittest

_FOLDER = tempfile.mkdtemp() if "TEMP_DIR" not in os.environ else os.environ["TEMP_DIR"]
os.environ.update(BACKEND="gloo", TEMP_DIR=_FOLDER)
os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("INIT_METHOD", "env://")
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29531")
for name in ("barrier", "test_dir", "init_dir"):
    os.makedirs(os.path.join(_FOLDER, name), exist_ok=True)

import torch.distributed as dist  # noqa: E402

import orinoco_collective.torch  # noqa: E402,F401

_init, _new = dist.init_process_group, dist.new_group


def _ours(backend):
    return "orinoco" if backend in (None, "gloo", "cpu:gloo") else backend


def _init_process_group(backend=None, *arguments, **named):
    return _init(_ours(backend), *arguments, **named)


def _new_group(ranks=None, timeout=None, backend=None, *arguments, **named):
    return _new(ranks, timeout, _ours(backend), *arguments, **named)


dist.init_process_group = _init_process_group
dist.new_group = _new_group

from torch.testing._internal.common_utils import run_tests  # noqa: E402
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402


_ANY_SOURCE = "a receive names its sender: there is none from any rank"
_MONITORED = "monitored_barrier calls Gloo itself; every operation of orinoco names the rank that is missing"
DIFFERENT = {
    "test_get_backend": "the back end has another name than Gloo",
    "test_monitored_barrier_gloo": _MONITORED,
    "test_monitored_barrier_gloo_rank_0_timeout": _MONITORED,
    "test_monitored_barrier_gloo_subgroup": _MONITORED,
    "test_send_recv_any_source": _ANY_SOURCE,
    "test_send_recv_any_source_autograd_profiler": _ANY_SOURCE,
    "test_send_recv_any_source_torch_profiler": _ANY_SOURCE,
    "test_sparse_all_reduce_sum": "tensors are dense",
}


class TestOrinoco(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()


for _name, _reason in DIFFERENT.items():
    setattr(TestOrinoco, _name, unittest.skip(_reason)(getattr(TestOrinoco, _name)))


if __name__ == "__main__":
    run_tests()
