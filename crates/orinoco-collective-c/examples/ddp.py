"""Trains a small model on two ranks with DistributedDataParallel, and prints its loss.

    python ddp.py                                       # starts two ranks on this machine
    torchrun --nproc-per-node 2 ddp.py                  # the same
    torchrun --nnodes 2 --node-rank 0 --nproc-per-node 1 --master-addr 10.0.0.1 --master-port 29500 ddp.py

The last line is for two machines: run it on each, with the number of the machine as ``--node-rank``, and set ``ORINOCO_KEY_FILE``
on both to a copy of one key file (``orinoco_collective.make_key``). ``--backend gloo`` trains with Gloo instead.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import orinoco_collective.torch  # noqa: F401 (registers the back end "orinoco")

STEPS = 100
BATCH = 32


def main():
    parser = argparse.ArgumentParser(description="Trains a small model on two ranks.")
    parser.add_argument("--backend", default="orinoco", help="back end of torch.distributed: orinoco (default) or gloo")
    backend = parser.parse_args().backend
    if "RANK" not in os.environ:
        # Not started by torchrun: that starts this program again, once for each rank.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *sys.argv]
        os.execv(sys.executable, [sys.executable, *ranks])

    dist.init_process_group(backend)
    train(dist.get_rank())
    dist.destroy_process_group()


def train(rank):
    torch.manual_seed(0)  # the same weights on all ranks
    layers = [torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    # The model learns which of four random directions an input is nearest to.
    directions = torch.randn(16, 4)

    torch.manual_seed(1 + rank)  # other data on each rank
    for step in range(1, STEPS + 1):
        inputs = torch.randn(BATCH, 16)
        labels = (inputs @ directions).argmax(dim=1)
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()  # the gradients are averaged over the ranks meanwhile
        optimizer.step()

        mean = loss.detach().clone()
        dist.all_reduce(mean)
        mean /= dist.get_world_size()
        if rank == 0 and (step == 1 or step % 10 == 0):
            print(f"step {step:3}  loss {mean.item():.8f}", flush=True)


if __name__ == "__main__":
    main()
