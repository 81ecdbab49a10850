"""The torch.distributed back end: training with DistributedDataParallel as with Gloo, exchanges in any order, and errors."""

import datetime
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

import orinoco_collective  # noqa: E402
import orinoco_collective.torch  # noqa: E402

RANKS = 2
EXAMPLE = pathlib.Path(__file__).parents[2] / "examples/ddp.py"
# Programs of this repository, if they were built.
PROGRAMS = pathlib.Path(__file__).parents[4] / "target/release"


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(body, *arguments, ranks=RANKS):
    port = _free_port()
    mp.spawn(_rank, (ranks, port, body, arguments), ranks)


def _rank(rank, ranks, port, body, arguments):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    body(rank, ranks, *arguments)
    if dist.is_initialized():
        dist.destroy_process_group()


def _data_parallel(model):
    return torch.nn.parallel.DistributedDataParallel(model)


def _fsdp(model):
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(model, device_id=torch.device("cpu"))


def _fsdp2(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model[-1], mesh=mesh)
    return fully_shard(model, mesh=mesh)


def _train(rank, ranks, backend, wrap, path):
    dist.init_process_group(backend, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 14 * 14, 10)]
    model = wrap(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    torch.manual_seed(rank)
    losses = []
    for _ in range(20):
        loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 3, 16, 16)), torch.randint(10, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    torch.save(losses, f"{path}-{rank}")


def _check_losses(tmp_path, wrap):
    """Compares the losses of a training with those of Gloo, on each rank."""
    for backend in ("orinoco", "gloo"):
        run(_train, backend, wrap, str(tmp_path / backend))
    for rank in range(RANKS):
        ours, gloo = (torch.load(tmp_path / f"{backend}-{rank}") for backend in ("orinoco", "gloo"))
        assert len(ours) == 20 and ours == pytest.approx(gloo, abs=1e-6, rel=0)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_training_has_the_losses_of_gloo(tmp_path, monkeypatch, transport):
    monkeypatch.setenv("ORINOCO_TRANSPORT", transport)
    _check_losses(tmp_path, _data_parallel)


@pytest.mark.parametrize("wrap", [_fsdp, _fsdp2])
def test_sharded_training_has_the_losses_of_gloo(tmp_path, wrap):
    _check_losses(tmp_path, wrap)


def _losses_of_example(*command):
    """The losses that the example prints, by step."""
    output = subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True, timeout=120).stdout
    rows = [line.split() for line in output.splitlines()]
    return {int(step): float(loss) for _, step, _, loss in rows}


def test_the_example_has_the_losses_of_gloo():
    by_itself = _losses_of_example(EXAMPLE)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), EXAMPLE]
    gloo = _losses_of_example(*torchrun, "--backend", "gloo")
    assert list(gloo) == [1, *range(10, 101, 10)]
    assert gloo[100] < gloo[1] / 4
    for losses in (by_itself, _losses_of_example(*torchrun)):
        assert losses == pytest.approx(gloo, abs=1e-6, rel=0)


def _coalesce(rank, ranks):
    dist.init_process_group("orinoco", rank=rank, world_size=ranks)
    calls, call = [], orinoco_collective.Group.call
    orinoco_collective.Group.call = lambda group, name, *arguments: (calls.append(name), call(group, name, *arguments))[1]
    several = [torch.full((count,), float(rank + 1)) for count in (1, 100, 0, 40_000)]
    several.append(torch.full((4, 6), float(rank + 1))[:, ::2])
    dist.all_reduce_coalesced(several)
    total = ranks * (ranks + 1) // 2
    assert all((tensor == total).all() for tensor in several)
    assert calls == ["all_reduce_many"]
    mixed = [torch.full((3,), rank + 1), torch.full((3,), float(rank + 1)), torch.full((5,), float(rank + 1))]
    dist.group.WORLD.allreduce_coalesced(mixed).wait()
    assert all((tensor == total).all() for tensor in mixed)
    # Integers, then floats.
    assert calls == ["all_reduce_many"] * 3


def test_tensors_are_reduced_together():
    run(_coalesce)


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


def _has_many_tags(rank, ranks):
    dist.init_process_group("orinoco", rank=rank, world_size=ranks)
    orinoco_collective.torch._CHANNELS_MAX = 3

    def exchange(tag):
        tensor = torch.full((1,), float(tag) if rank == 0 else -1.0)
        dist.send(tensor, 1, tag=tag) if rank == 0 else dist.recv(tensor, 0, tag=tag)
        assert tensor.item() == tag

    for tag in range(3):
        exchange(tag)
    with pytest.raises(Exception, match="3 combinations of direction, rank and tag already"):
        exchange(3)
    # Those that are there can still be used.
    exchange(0)
    own = dist.group.WORLD
    assert len(own._channels) == 3
    own.shutdown()
    assert not own._channels


def test_channels_are_bounded_and_closed_with_their_group():
    run(_has_many_tags)


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


def _with_root(options, root):
    options.rootRank = root
    return options


def _refused_calls(rank, own):
    """Calls whose lists, sizes or data types are wrong, with 2 ranks: by operation, the error and the call."""
    f, d, i = (lambda *shape, dtype=dtype: torch.zeros(shape, dtype=dtype) for dtype in (torch.float32, torch.float64, torch.int32))
    gathers = _with_root(dist.GatherOptions(), rank)
    scatters = _with_root(dist.ScatterOptions(), rank)
    return {
        "all_gather": [
            ("list of outputs has the length 1; expected 2, one for each rank", lambda: dist.all_gather([f(4)], f(4))),
            ("list of outputs has the length 3; expected 2, one for each rank", lambda: dist.all_gather([f(4), f(4), f(4)], f(4))),
            ("output 1 has 3 elements; expected 4, as many as the input", lambda: dist.all_gather([f(4), f(3)], f(4))),
            ("output 0 has 5 elements; expected 4", lambda: dist.all_gather([f(5), f(3)], f(4))),
            ("output 1 has elements of torch.float64, and the input of torch.float32", lambda: own.allgather([[f(4), d(2)]], [f(4)])),
            ("output 0 has elements of torch.int32", lambda: own.allgather([[i(4), i(4)]], [f(4)])),
            ("list of output lists has the length 2; expected 1, one for each input", lambda: own.allgather([[f(4), f(4)]] * 2, [f(4)])),
        ],
        "all_gather_coalesced": [
            ("list of output lists has the length 1; expected 2", lambda: own.allgather_coalesced([[f(4)]], [f(4)])),
            ("output list 1 has the length 2; expected 1, one for each input", lambda: own.allgather_coalesced([[f(4)], [f(4), f(4)]], [f(4)])),
        ],
        "all_gather_into_tensor": [
            ("the output has 7 elements; expected 8, the 4 of the input for each rank", lambda: dist.all_gather_into_tensor(f(7), f(4))),
            ("the output has 9 elements; expected 8", lambda: dist.all_gather_into_tensor(f(9), f(4))),
            ("the output has elements of torch.int32", lambda: dist.all_gather_into_tensor(i(8), f(4))),
            ("the output has elements of torch.float64", lambda: dist.all_gather_into_tensor(d(4), f(4))),
            ("list of outputs has the length 2; expected 1", lambda: own.allgather_into_tensor_coalesced([f(8), f(8)], [f(4)])),
        ],
        "gather": [
            ("list of outputs has the length 1; expected 2, one for each rank", lambda: dist.gather(f(4), [f(4)], rank)),
            ("list of outputs has the length 3; expected 2", lambda: dist.gather(f(4), [f(4)] * 3, rank)),
            ("output 0 has 3 elements; expected 4, as many as the input", lambda: dist.gather(f(4), [f(3), f(5)], rank)),
            ("output 1 has elements of torch.float64", lambda: own.gather([[f(4), d(4)]], [f(4)], gathers)),
            ("list of output lists has the length 0; expected 1", lambda: own.gather([], [f(4)], gathers)),
        ],
        "scatter": [
            ("list of inputs has the length 1; expected 2, one for each rank", lambda: dist.scatter(f(4), [f(4)], rank)),
            ("list of inputs has the length 3; expected 2", lambda: dist.scatter(f(4), [f(4)] * 3, rank)),
            ("input 1 has 3 elements; expected 4, as many as the output", lambda: dist.scatter(f(4), [f(4), f(3)], rank)),
            ("input 0 has 5 elements; expected 4", lambda: dist.scatter(f(4), [f(5), f(3)], rank)),
            ("input 1 has elements of torch.float64", lambda: own.scatter([f(4)], [[f(4), d(4)]], scatters)),
            ("list of input lists has the length 0; expected 1", lambda: own.scatter([f(4)], [], scatters)),
        ],
        "reduce_scatter": [
            ("list of inputs has the length 1; expected 2, one for each rank", lambda: dist.reduce_scatter(f(4), [f(4)])),
            ("list of inputs has the length 3; expected 2", lambda: dist.reduce_scatter(f(4), [f(4)] * 3)),
            ("the output has 3 elements; expected 4, as many as this rank's block", lambda: dist.reduce_scatter(f(3), [f(4), f(4)])),
            ("input 1 has elements of torch.float64", lambda: own.reduce_scatter([f(4)], [[f(4), d(4)]])),
            ("list of input lists has the length 2; expected 1", lambda: own.reduce_scatter([f(4)], [[f(4), f(4)]] * 2)),
        ],
        "reduce_scatter_tensor": [
            ("the input has 7 elements; expected 8, the 4 of the output for each rank", lambda: dist.reduce_scatter_tensor(f(4), f(7))),
            ("the input has 9 elements; expected 8", lambda: dist.reduce_scatter_tensor(f(4), f(9))),
            ("the input has elements of torch.int32, and the output of torch.float64", lambda: dist.reduce_scatter_tensor(d(4), i(8))),
            ("list of inputs has the length 1; expected 2", lambda: own.reduce_scatter_tensor_coalesced([f(4), f(4)], [f(8)])),
        ],
        "all_to_all": [
            ("list of inputs has the length 1; expected 2, one for each rank", lambda: dist.all_to_all([f(4), f(4)], [f(4)])),
            ("list of outputs has the length 1; expected 2, one for each rank", lambda: dist.all_to_all([f(4)], [f(4), f(4)])),
            ("list of outputs has the length 3; expected 2", lambda: dist.all_to_all([f(4)] * 3, [f(4), f(4)])),
            (f"output {rank} has 1 element; expected 4, as many as input {rank}", lambda: dist.all_to_all([f(1), f(1)], [f(4), f(4)])),
            ("output 1 has elements of torch.int32, and input 0 of torch.float32", lambda: own.alltoall([f(4), i(4)], [f(4), f(4)])),
            ("input 1 has elements of torch.float64", lambda: own.alltoall([f(4), f(4)], [f(4), d(4)])),
        ],
        "all_to_all_single": [
            ("the output has elements of torch.int32", lambda: own.alltoall_base(i(8), f(8), [], [])),
            ("the first dimension of the input is 7; expected a multiple of 2", lambda: dist.all_to_all_single(f(8), f(7))),
            (r"own block has 16 bytes in the input, but 12 in the output", lambda: dist.all_to_all_single(f(6), f(8))),
            (r"the split sizes of the input are \[8\]; expected 2", lambda: dist.all_to_all_single(f(8), f(8), [4, 4], [8])),
            (r"the split sizes of the output are \[4, 5\]; .* with the sum 8", lambda: dist.all_to_all_single(f(8), f(8), [4, 5], [4, 4])),
            (r"the split sizes of the input are \[9, -1\]", lambda: dist.all_to_all_single(f(8), f(8), [4, 4], [9, -1])),
            ("the output has no dimension", lambda: dist.all_to_all_single(f(), f(8))),
        ],
    }


def _correct_calls(rank, ranks):
    """Correct calls of the same operations, with their results, by operation."""
    ours, all_ranks = torch.full((4,), float(rank)), [torch.full((4,), float(other)) for other in range(ranks)]
    total = float(sum(range(ranks)))

    def all_gather():
        dist.all_gather(outputs := [torch.zeros(4) for _ in range(ranks)], ours)
        return torch.stack(outputs), torch.stack(all_ranks)

    def all_gather_coalesced():
        outputs = [[torch.zeros(4), torch.zeros(2)] for _ in range(ranks)]
        dist.group.WORLD.allgather_coalesced(outputs, [ours, ours[:2] + 1]).wait()
        return torch.cat([torch.cat(parts) for parts in outputs]), torch.cat([torch.cat([part, part[:2] + 1]) for part in all_ranks])

    def all_gather_into_tensor():
        dist.all_gather_into_tensor(output := torch.zeros(ranks, 4), ours)
        return output, torch.stack(all_ranks)

    def gather():
        outputs = [torch.zeros(4) for _ in range(ranks)] if rank == 0 else None
        dist.gather(ours, outputs, 0)
        return (torch.stack(outputs), torch.stack(all_ranks)) if rank == 0 else (ours, ours)

    def scatter():
        dist.scatter(output := torch.zeros(4), all_ranks if rank == 1 else None, 1)
        return output, ours

    def reduce_scatter():
        # Blocks of several sizes.
        dist.reduce_scatter(output := torch.zeros(rank + 1), [ours[: other + 1] for other in range(ranks)])
        return output, torch.full((rank + 1,), total)

    def reduce_scatter_tensor():
        dist.reduce_scatter_tensor(output := torch.zeros(2), ours)
        return output, torch.full((2,), total)

    def all_to_all():
        dist.all_to_all(outputs := [torch.zeros(other + 1) for other in range(ranks)], [ours[: rank + 1] for _ in range(ranks)])
        return torch.cat(outputs), torch.cat([part[: other + 1] for other, part in enumerate(all_ranks)])

    def all_to_all_single():
        dist.all_to_all_single(output := torch.zeros(4), ours)
        return output, torch.cat([part[:2] for part in all_ranks])

    return [
        all_gather, all_gather_coalesced, all_gather_into_tensor, gather, scatter, reduce_scatter, reduce_scatter_tensor, all_to_all, all_to_all_single,
    ]


def _changes_lists(rank, ranks):
    """Changes lists while an operation waits for its turn: it has the tensors with which it was started."""
    ones, totals, parts = torch.ones(4), torch.zeros(4), [torch.zeros(4) for _ in range(ranks)]
    blocks, gathered, exchanged = [ones] * ranks, list(parts), [torch.zeros(4) for _ in range(ranks)]
    received = list(exchanged)
    with dist.group.WORLD._operations._lock:
        works = [
            dist.reduce_scatter(totals, blocks, async_op=True),
            dist.gather(ones, gathered if rank == 0 else None, 0, async_op=True),
            dist.all_to_all(received, blocks, async_op=True),
        ]
        for tensors in (blocks, gathered, received):
            tensors.clear()
    for work in works:
        work.wait()
    assert totals.tolist() == [ranks] * 4
    assert torch.equal(torch.stack(parts), torch.full((ranks, 4), 1.0 if rank == 0 else 0.0))
    assert torch.equal(torch.stack(exchanged), torch.ones(ranks, 4))


def _refuses(rank, ranks):
    dist.init_process_group("orinoco", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=60))
    refused = _refused_calls(rank, dist.group.WORLD)
    correct = {call.__name__: call for call in _correct_calls(rank, ranks)}
    assert list(refused) == list(correct)
    for name, calls in refused.items():
        for message, call in calls:
            kind = TypeError if "elements of" in message else ValueError
            with pytest.raises(kind, match=f"^{name}: .*{message}"):
                call()
        result, expected = correct[name]()
        assert torch.equal(result, expected), (name, result, expected)
    _changes_lists(rank, ranks)
    # Only the two ranks together can tell that a block between them has two sizes. It is the last call: the group fails.
    inputs = [torch.zeros(4), torch.zeros(4)]
    outputs = [torch.zeros(4), torch.zeros(4)]
    outputs[1 - rank] = torch.zeros(3)
    with pytest.raises(Exception, match="rank"):
        dist.all_to_all(outputs, inputs)


def test_lists_sizes_and_data_types_that_do_not_fit_are_refused():
    run(_refuses)


def _aborts(rank, ranks):
    dist.init_process_group("orinoco", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=120))
    dist.barrier()
    own = dist.group.WORLD
    if rank == 0:
        # It has the store, and makes no call until the other rank has aborted.
        own._store.get("end")
        os._exit(0)
    # One that runs, one that waits for it, and one that waits for the other rank to join.
    works = [dist.all_reduce(torch.ones(4), async_op=True), dist.all_reduce(torch.ones(4), async_op=True), dist.irecv(torch.ones(1), 0)]
    while not own._operations._group._handle._calls:
        time.sleep(0.001)
    start = time.monotonic()
    own.abort()
    for work in works:
        with pytest.raises(Exception, match="the process group was aborted"):
            work.wait()
        assert work.is_completed() and not work.is_success()
    for call in (lambda: dist.all_reduce(torch.ones(1)), lambda: dist.send(torch.ones(1), 0)):
        with pytest.raises(Exception, match="the process group was aborted"):
            call()
    dist.destroy_process_group()
    assert time.monotonic() - start < 30
    assert own._operations._group is not None, "the operation still runs"
    own._store.set("end", "")
    # It fails when the other rank ends, and the group is left then.
    own._operations._thread.join(60)
    assert own._operations._group is None


def test_an_abort_does_not_wait_for_a_rank_that_is_late():
    run(_aborts)


def _aborts_at_rest(rank, ranks):
    dist.init_process_group("orinoco", rank=rank, world_size=ranks)
    dist.barrier()
    own = dist.group.WORLD
    assert own._operations._group is not None
    own.abort()
    assert own._operations._group is None
    with pytest.raises(Exception, match="the process group was aborted"):
        dist.barrier()


def test_an_abort_leaves_a_group_without_operations():
    run(_aborts_at_rest, ranks=1)


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


def _is_late(rank, ranks):
    dist.init_process_group("orinoco", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=3))
    dist.barrier()
    if rank == 2:
        dist.send(torch.ones(1), 0)
        time.sleep(15)
        os._exit(0)
    operations = [lambda: dist.all_reduce(torch.ones(1000))]
    if rank == 0:
        dist.recv(torch.ones(1), 2)
        operations.append(lambda: dist.recv(torch.ones(1), 2))
    for operation in operations:
        with pytest.raises(Exception, match=r"this rank waited longest for rank 2: \d+\.\d ms") as error:
            operation()
    if rank == 0:
        assert "a message from rank 2 to rank 0, which are ranks 0 and 1 of this error" in str(error.value)
    os._exit(0)


def test_an_error_names_the_rank_that_is_late():
    run(_is_late, ranks=3)


def _waits_for_a_time(rank, ranks):
    dist.init_process_group("orinoco", rank=rank, world_size=ranks)
    tensor = torch.ones(4)
    if rank == 0:
        work = dist.irecv(tensor, src=1)
        start = time.monotonic()
        with pytest.raises(RuntimeError, match="has not ended within 0.3 s"):
            work.wait(datetime.timedelta(seconds=0.3))
        assert 0.3 <= time.monotonic() - start < 10
        # The message is still received.
        dist.send(torch.zeros(1), dst=1, tag=7)
        assert work.wait(datetime.timedelta(seconds=30)) and work.wait()
        assert tensor.tolist() == [2, 2, 2, 2]
    else:
        dist.recv(torch.zeros(1), src=0, tag=7)
        dist.send(2 * tensor, dst=0)


def test_a_wait_has_the_timeout_that_it_is_given():
    run(_waits_for_a_time)


def _sum_over_machines(rank, ranks, variables):
    """Sums as if each rank had a machine of its own, with these variables of the environment of each rank."""
    os.environ.update(variables[rank])
    orinoco_collective.torch._memory = lambda: str(rank)
    dist.init_process_group("orinoco", rank=rank, world_size=ranks)
    tensor = torch.full((1000,), float(1 + rank))
    dist.all_reduce(tensor)
    assert tensor.tolist() == [3.0] * 1000
    if rank == 0:
        dist.send(tensor, 1)
    else:
        dist.recv(tensor.zero_(), 0)
        assert tensor.tolist() == [3.0] * 1000


@pytest.fixture
def key_file(tmp_path):
    path = str(tmp_path / "group.key")
    orinoco_collective.make_key(path)
    return path


def test_ranks_on_several_machines_meet_with_a_key(key_file):
    run(_sum_over_machines, [{"ORINOCO_KEY_FILE": key_file}] * RANKS)


def _sum_by_rdma(rank, ranks, variables):
    """Sums with the transport `rdma`, in place of which TCP carries the messages."""
    joined = []

    def join_rdma(rendezvous, *place, **settings):
        joined.append(sorted(settings))
        return orinoco_collective.join_tcp(rendezvous, *place, **settings)

    orinoco_collective.torch.join_rdma = join_rdma
    own = {**variables, "ORINOCO_TRANSPORT": "rdma"}
    if "ORINOCO_KEY_FILE" in variables:
        _sum_over_machines(rank, ranks, [own] * ranks)
        # The group, and the channel of the message.
        assert joined == [["deadline", "key_file"]] * 2
    else:
        os.environ.update(own)
        dist.init_process_group("orinoco", rank=rank, world_size=ranks)
        dist.barrier()
        assert joined == [["deadline"]]


def test_ranks_are_connected_by_rdma_where_it_is_chosen(key_file):
    for variables in ({}, {"ORINOCO_KEY_FILE": key_file}):
        run(_sum_by_rdma, variables)


def _master_is_loopback(rank, ranks, key_file):
    os.environ["ORINOCO_KEY_FILE"] = key_file
    orinoco_collective.torch._memory = orinoco_collective.torch._network = lambda: str(rank)
    dist.init_process_group("orinoco", rank=rank, world_size=ranks)
    with pytest.raises(Exception, match=r"ranks \[0, 1\] have no address .* '127.0.0.1' .* MASTER_ADDR .* ORINOCO_ADDRESS"):
        dist.barrier()
    # Rank 0 has the store, and stays until rank 1 needs it no more.
    if rank == 1:
        dist.group.WORLD._store.set("end", "")
    else:
        dist.group.WORLD._store.get("end")
    os._exit(0)


def test_no_address_for_other_machines_is_an_error_on_all_ranks(key_file):
    run(_master_is_loopback, key_file)


@pytest.mark.parametrize("address", ["127.0.0.1", "192.0.2.1", "a name"])
def test_an_address_that_others_cannot_reach_is_an_error(monkeypatch, address):
    monkeypatch.setenv("ORINOCO_ADDRESS", address)
    with pytest.raises(ValueError, match=f"ORINOCO_ADDRESS is '{address}', expected an IP address of this machine"):
        orinoco_collective.torch._address_in_group("127.0.0.1")


def test_a_reserved_port_is_given_to_nobody_else():
    with orinoco_collective.torch._reserve_port("127.0.0.1") as reserved:
        place = reserved.getsockname()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(place)
        with socket.create_server(place) as listener, socket.create_connection(place):
            listener.accept()[0].close()


# Addresses of two networks that connect two machines.
ADDRESSES = [("10.203.0.1", "10.204.0.1"), ("10.203.0.2", "10.204.0.2")]


@pytest.fixture
def machines():
    """Two network namespaces with a cable between them, as commands that run a program in each, with a /dev/shm of its own."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("skipped: network namespaces need root and the program ip")
    names = [f"orinoco-{os.getpid()}-{number}" for number in range(2)]

    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True)

    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1])
        for name, addresses in zip(names, ADDRESSES):
            for address in addresses:
                ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            for link in ("lo", "cable"):
                ip("-n", name, "link", "set", link, "up")
        mount = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
        yield [["ip", "netns", "exec", name, "sh", "-c", mount, "sh"] for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def sum_of_machine(rank, expected):
    """Sums as one rank, and checks the network through which the others are to reach it."""
    dist.init_process_group("orinoco", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=60))
    tensor = torch.full((1000,), float(1 + rank))
    dist.all_reduce(tensor)
    assert tensor.tolist() == [3.0] * 1000
    address = dist.group.WORLD._store.get(f"orinoco/all/address/{rank}")
    assert address.rpartition(":")[0] == expected, address
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("network", [None, 1])
def test_machines_reach_a_master_whose_name_is_loopback_at_home(machines, key_file, network):
    """Debian has the line `127.0.1.1 NAME` in /etc/hosts. `network`: that of ORINOCO_ADDRESS, instead of the master's."""
    processes = []
    for rank, machine in enumerate(machines):
        environment = {**os.environ, "ORINOCO_KEY_FILE": key_file, "MASTER_PORT": "29500"}
        environment["MASTER_ADDR"] = "127.0.1.1" if rank == 0 else ADDRESSES[0][0]
        if network is not None:
            environment["ORINOCO_ADDRESS"] = ADDRESSES[rank][network]
        body = f"import test_torch; test_torch.sum_of_machine({rank}, {ADDRESSES[rank][network or 0]!r})"
        command = [*machine, sys.executable, "-c", body]
        processes.append(subprocess.Popen(command, env=environment, cwd=pathlib.Path(__file__).parent))
    assert [process.wait(120) for process in processes] == [0, 0]


@pytest.fixture
def daemon(tmp_path):
    """A daemon that shares its port. Gives its address and its socket for programs."""
    if not all((PROGRAMS / name).exists() for name in ("orinoco", "orinocod")):
        pytest.skip("skipped: orinoco and orinocod are not built (make build)")

    def key_of(*arguments):
        output = subprocess.run([PROGRAMS / "orinoco", "cluster", *arguments], check=True, cwd=tmp_path, capture_output=True, text=True)
        return next(word for word in output.stdout.replace('"', " ").split() if len(word) == 64)

    address = f"127.0.0.1:{_free_port()}"
    seat = key_of("keygen", "seat.key")
    (tmp_path / "list").write_text(f"orinoco-cluster 1\nname crossing\nserial 1\nseat a {address} {seat}\n")
    operator = key_of("sign", "list", "--key", "operator.key", "--output", "members")
    program_socket = tmp_path / "programs.sock"
    (tmp_path / "board.toml").write_text(
        f"version = 1\n[control]\nsocket = false\n[cluster]\nlist = 'members'\noperator_key = '{operator}'\nkey = 'seat.key'\n"
        f"program_socket = '{program_socket}'\n[[stream]]\nname = 'gate'\nsource = 'test://ball?pace=pts'\nmodels = []\n"
    )
    environment = {**os.environ, "STATE_DIRECTORY": str(tmp_path)}
    board = str(tmp_path / "board.toml")
    with subprocess.Popen([PROGRAMS / "orinocod", "--board", board], env=environment, stderr=subprocess.DEVNULL) as process:
        for _ in range(2000):
            if program_socket.exists():
                break
            assert process.poll() is None, "the daemon has ended"
            time.sleep(0.01)
        yield address, str(program_socket)
        process.terminate()


def test_ranks_on_several_machines_share_the_ports_of_their_daemons(daemon, key_file):
    address, program_socket = daemon
    variables = {"ORINOCO_KEY_FILE": key_file, "ORINOCO_SHARED_ADDRESS": address, "ORINOCO_PROGRAM_SOCKET": program_socket}
    run(_sum_over_machines, [variables] * RANKS)


def test_an_address_of_a_daemon_on_some_machines_only_is_an_error(key_file):
    variables = {"ORINOCO_KEY_FILE": key_file}
    with pytest.raises(Exception, match="ORINOCO_SHARED_ADDRESS is (not )?set on this rank, but"):
        run(_sum_over_machines, [variables, {**variables, "ORINOCO_SHARED_ADDRESS": "127.0.0.1:4711"}])
