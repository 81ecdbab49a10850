"""The torch.distributed back end: training with DistributedDataParallel as with Gloo, exchanges in any order, and errors."""

import os
import socket

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

import orinoco_collective.torch  # noqa: E402,F401

RANKS = 2


def run(body, *arguments, ranks=RANKS):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(_rank, (ranks, port, body, arguments), ranks)


def _rank(rank, ranks, port, body, arguments):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    body(rank, ranks, *arguments)
    if dist.is_initialized():
        dist.destroy_process_group()


def _train(rank, ranks, backend, path):
    dist.init_process_group(backend, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 14 * 14, 10)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    torch.manual_seed(rank)
    losses = []
    for _ in range(20):
        loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 3, 16, 16)), torch.randint(10, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if rank == 0:
        torch.save(losses, path)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_training_has_the_losses_of_gloo(tmp_path, monkeypatch, transport):
    monkeypatch.setenv("ORINOCO_TRANSPORT", transport)
    run(_train, "orinoco", tmp_path / "ours")
    run(_train, "gloo", tmp_path / "gloo")
    ours, gloo = torch.load(tmp_path / "ours"), torch.load(tmp_path / "gloo")
    assert len(ours) == 20 and ours == pytest.approx(gloo, abs=1e-6)


def _exchange(rank, ranks):
    dist.init_process_group("orinoco", rank=rank, world_size=ranks)
    following, previous = (rank + 1) % ranks, (rank - 1) % ranks
    # Long enough that a send waits for its receive.
    own, received = torch.full((1_000_000,), float(rank)), torch.empty(1_000_000)
    work = [dist.irecv(received, previous), dist.isend(own, following)]
    # Operations of all go on meanwhile, and messages with other tags pass.
    small = torch.ones(1)
    dist.all_reduce(small)
    assert small.item() == ranks
    late, early = torch.zeros(1), torch.zeros(1)
    work += [dist.isend(torch.tensor([1.0]), following, tag=1), dist.isend(torch.tensor([2.0]), following, tag=2)]
    dist.recv(late, previous, tag=2)
    dist.recv(early, previous, tag=1)
    assert (early.item(), late.item()) == (1, 2)
    for item in work:
        item.wait()
    assert (received == previous).all()
    strided = torch.zeros(4, 6)
    dist.all_reduce(strided[:, ::2].add_(1))
    view = torch.zeros(6, 4).t()
    dist.broadcast(view.add_(rank + 1), 1)
    assert (view == 2).all()


@pytest.mark.parametrize("ranks", [2, 3])
def test_messages_and_operations_do_not_wait_for_one_another(ranks):
    run(_exchange, ranks=ranks)


def test_operations_that_do_not_exist_say_so():
    run(_no_such_operation, ranks=1)


def _no_such_operation(rank, ranks):
    dist.init_process_group("orinoco", rank=rank, world_size=ranks)
    with pytest.raises(Exception, match="no reduction"):
        dist.all_reduce(torch.ones(1, dtype=torch.int32), dist.ReduceOp.BXOR)
    with pytest.raises(Exception, match="cannot reduce torch.int16"):
        dist.all_reduce(torch.ones(1, dtype=torch.int16))
    with pytest.raises(Exception, match="named rank"):
        dist.recv(torch.ones(1))


def _die(rank, ranks):
    dist.init_process_group("orinoco", rank=rank, world_size=ranks)
    dist.barrier()
    if rank == 1:
        os._exit(0)
    with pytest.raises(Exception, match="rank 1"):
        for _ in range(100_000):
            dist.all_reduce(torch.ones(1000))
    started = dist.all_reduce(torch.ones(1000), async_op=True)
    with pytest.raises(Exception, match="rank 1"):
        started.wait()
    assert started.is_completed() and not started.is_success()
    os._exit(0)


def test_a_rank_that_dies_is_named():
    run(_die)
