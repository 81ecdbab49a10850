"""The Python package by itself: every operation, over every transport, and what errors say."""

import array
import gc
import multiprocessing
import os
import secrets
import signal
import subprocess
import sys
import threading
import time

import pytest

import orinoco_collective as oc


def run(ranks, transport, body, deadline=None):
    """Runs a function as each rank, in processes."""
    path = f"/dev/shm/orinoco-python-{os.getpid()}-{secrets.token_hex(4)}"
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_rank, args=(rank, ranks, transport, path, body, deadline)) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * ranks


def _rank(rank, ranks, transport, path, body, deadline):
    if transport == "shm":
        group = oc.join_shm(path, rank, ranks, deadline=deadline, silence=5)
    elif transport == "pcie":
        group = oc.join_pcie(path, rank, ranks, deadline=deadline, silence=5)
    elif transport == "tcp-settings":
        settings = {"tune": True, "algorithm": "halving-doubling", "uniform": True, "witness": 0, "tcp_connections": 2}
        group = oc.join_tcp("file:" + path, rank, ranks, deadline=deadline, silence=5, **settings)
    else:
        is_plain, encrypt = transport == "tcp-plaintext", transport != "tcp-authenticated"
        group = oc.join_tcp(
            "file:" + path, rank, ranks, plaintext=is_plain, encrypt=encrypt, deadline=deadline, silence=5
        )
    with group:
        body(group)


def _operations(group):
    rank, ranks = group.rank, group.ranks
    total = ranks * (ranks + 1) // 2
    for code in "fdbBiIqQ":
        vector = array.array(code, [rank + 1] * 1000)
        group.all_reduce(vector, "sum")
        assert list(vector) == [total] * 1000, code
    several = [array.array("f", [rank + 1] * count) for count in (1, 0, 100, 30000)]
    group.all_reduce_many(several)
    assert [set(vector) for vector in several] == [{total}, set(), {total}, {total}]
    group.all_reduce_many([])
    vector = array.array("f", range(rank, rank + 200))
    group.all_reduce_int8(vector)
    # At most 1/127 of the largest magnitudes of all ranks together.
    bound = (199 * ranks + total) / 127 * 1.001
    assert all(abs(value - (i * ranks + total - ranks)) <= bound for i, value in enumerate(vector))
    vector = array.array("d", [rank + 1] * 4)
    group.all_reduce(vector, "average")
    assert list(vector) == [total / ranks] * 4
    data = bytearray(b"%d" % rank * 5)
    group.broadcast(data, ranks - 1)
    assert data == b"%d" % (ranks - 1) * 5
    gathered = bytearray(3 * ranks)
    group.all_gather(bytes([rank] * 3), gathered)
    assert list(gathered) == [i // 3 for i in range(3 * ranks)]
    source = array.array("i", [10 * rank + to for to in range(ranks)])
    target = array.array("i", [0] * ranks)
    group.all_to_all(source, target)
    assert list(target) == [10 * source + rank for source in range(ranks)]
    own = array.array("i", [0])
    group.reduce_scatter(source, own, "max")
    assert list(own) == [10 * (ranks - 1) + rank]
    result = array.array("f", [0] * 2) if rank == 0 else None
    group.reduce(array.array("f", [rank + 1] * 2), result, 0, "product")
    if rank == 0:
        assert result[0] == [1, 1, 2, 6][ranks]
    if ranks > 1 and rank == 0:
        group.send(b"a message", 1)
    if rank == 1:
        received = bytearray(9)
        group.recv(received, 0)
        assert received == b"a message"
    group.barrier()
    _blocks(group)


def _blocks(group):
    """Operations with a block for each rank, of one size and of several."""
    rank, ranks = group.rank, group.ranks
    whole = array.array("i", range(2 * ranks)) if rank == 0 else None
    block = array.array("i", [0, 0])
    group.scatter(whole, block, 0)
    assert list(block) == [2 * rank, 2 * rank + 1]
    gathered = array.array("i", [0] * 2 * ranks) if rank == ranks - 1 else None
    group.gather(block, gathered, ranks - 1)
    assert gathered is None or list(gathered) == list(range(2 * ranks))
    # Rank i has i + 1 elements, each 10 * i.
    counts = [i + 1 for i in range(ranks)]
    everything = [10 * i for i in range(ranks) for _ in range(i + 1)]
    own = array.array("i", [10 * rank] * counts[rank])
    gathered = array.array("i", [0] * sum(counts))
    group.all_gather_v(own, gathered, counts)
    assert list(gathered) == everything
    part = array.array("i", [0] * counts[rank])
    group.reduce_scatter_v(gathered, part, counts)
    assert list(part) == [ranks * 10 * rank] * counts[rank]
    group.scatter_v(gathered if rank == 0 else None, part, counts, 0)
    assert list(part) == list(own)
    gathered = array.array("i", [0] * sum(counts)) if rank == 0 else None
    group.gather_v(part, gathered, counts, 0)
    assert gathered is None or list(gathered) == everything
    # Rank i sends i + 1 elements to each rank.
    received = array.array("i", [0] * sum(counts))
    group.all_to_all_v(array.array("i", [10 * rank] * ranks * (rank + 1)), [rank + 1] * ranks, received, counts)
    assert list(received) == everything


@pytest.mark.parametrize("transport", ["shm", "tcp", "tcp-authenticated", "tcp-plaintext", "tcp-settings", "pcie"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_operations(ranks, transport):
    run(ranks, transport, _operations)


def _splits(group):
    part = group.split(None if group.rank == 1 else 5, -group.rank)
    assert (part is None) == (group.rank == 1)
    if part is not None:
        with part:
            assert (part.rank, part.ranks) == (1 - group.rank // 2, 2)
            own = array.array("i", [group.rank])
            part.all_reduce(own)
            assert list(own) == [2]
    group.barrier()
    with pytest.raises(ValueError, match="-1 is no color"):
        group.split(-1)


@pytest.mark.parametrize("transport", ["shm", "tcp", "tcp-plaintext"])
def test_splits(transport):
    run(3, transport, _splits)


def _shrinks(group):
    part = group.split(0, group.rank)
    if group.rank == 1:
        part.leave()
    else:
        with part:
            with pytest.raises(oc.OrinocoError):
                part.all_reduce(array.array("i", [1]))
            smaller = part.shrink()
        with smaller:
            assert (smaller.rank, smaller.ranks) == (group.rank // 2, 2)
            own = array.array("i", [group.rank])
            smaller.all_reduce(own)
            assert list(own) == [2]
    group.barrier()


@pytest.mark.parametrize("transport", ["shm", "tcp", "tcp-plaintext"])
def test_shrinks(transport):
    run(3, transport, _shrinks)


def _repeats(group):
    """The example of the README: an operation is repeated without the ranks that fail."""
    gradients = [1.0, 2.0]
    group = group.split(0, group.rank)
    if group.rank == 1:
        group.leave()
        return
    for attempt in range(3):
        sums = array.array("f", gradients)
        try:
            group.all_reduce(sums)
            break
        except oc.OrinocoError as error:
            if error.status != "epoch-failed" or attempt == 2:
                raise
            failed, group = group, group.shrink()
            failed.leave()
    with group:
        assert group.ranks == 2 and attempt > 0
        assert list(sums) == [2.0, 4.0]


def test_an_operation_is_repeated_without_the_ranks_that_fail():
    run(3, "tcp-settings", _repeats)


def _explains(group):
    with pytest.raises(ValueError, match="no operation 'sum'; expected one of barrier, broadcast"):
        group.explain("sum", 1)
    with pytest.raises(ValueError, match="no data type 'float'"):
        group.explain("all_reduce", 1, "float")
    with pytest.raises(oc.OrinocoError, match="not tuned") as error:
        group.explain("all_reduce", 1000)
    assert error.value.status == "invalid-argument"
    group.tune()
    explanation = group.explain("all_reduce", 1000)
    assert (explanation["operation"], explanation["data_type"]) == ("all_reduce", "f32")
    assert (explanation["bytes"], explanation["ranks"], explanation["measured"]) == (4000, 2, None)
    candidates = {candidate["algorithm"]: candidate for candidate in explanation["candidates"]}
    chosen = candidates[explanation["algorithm"]]
    assert 0 < explanation["bound_us"] <= chosen["predicted_at_once_us"] and chosen["predicted_after_barrier_us"] > 0
    for _ in range(3):
        group.all_reduce(array.array("f", [1] * 1000))
    measured = group.explain("all_reduce", 1000)["measured"]
    assert measured["calls"] == 3 and measured["median_us"] > 0 and measured["last_us"] > 0
    assert measured["bound_share"] == pytest.approx(explanation["bound_us"] / measured["median_us"])
    assert group.explain("all_gather", 100, "i8")["bytes"] == 200
    text = group.explain_text("broadcast", 1000, "f64", root=1)
    assert text.startswith("broadcast of f64, 8000 bytes, 2 ranks\n") and "lower bound" in text


@pytest.mark.parametrize("transport", ["tcp", "pcie"])
def test_a_group_that_is_tuned_explains_its_choices(transport):
    run(2, transport, _explains)


def _has_settings(group):
    # Tuned when it was joined.
    assert group.explain("all_reduce", 1000)["algorithm"] == "halving-doubling"


def test_settings_reach_the_group():
    run(2, "tcp-settings", _has_settings)


def _cannot_be_tuned(group):
    for call in (group.tune, lambda: group.explain("barrier", 0)):
        with pytest.raises(oc.OrinocoError, match="one algorithm for each operation"):
            call()


def test_shared_memory_has_nothing_to_tune():
    run(2, "shm", _cannot_be_tuned)


def _has_no_parts(group):
    with pytest.raises(oc.OrinocoError, match="a group over PCIe cannot be split"):
        group.split(0)
    with pytest.raises(oc.OrinocoError, match="a group over PCIe cannot be shrunk"):
        group.shrink()


def test_a_group_over_pcie_has_no_parts():
    run(2, "pcie", _has_no_parts)


def test_a_group_over_pcie_takes_a_key(tmp_path):
    oc.make_key(tmp_path / "key")
    with oc.join_pcie(tmp_path / "window", 0, 1, key_file=tmp_path / "key") as group:
        group.barrier()
    with pytest.raises(oc.OrinocoError, match="reading .*/none"):
        oc.join_pcie(tmp_path / "window", 0, 1, key_file=tmp_path / "none")


def test_a_device_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(oc.OrinocoError, match="connecting by RDMA: ") as error:
        oc.join_rdma(f"file:{tmp_path}/group", 0, 1, device="no-device")
    assert error.value.status == "join-failed"


@pytest.mark.parametrize(
    ("settings", "kind", "expected"),
    [
        ({"algorithm": "best"}, ValueError, "no algorithm 'best'; expected one of direct, two-shot"),
        ({"uniform": True, "witness": 1}, oc.OrinocoError, "the witness cannot be rank 1: there is no such rank among 1"),
        ({"witness": 0}, oc.OrinocoError, "only a uniform group has a witness"),
        ({"tcp_connections": 9}, oc.OrinocoError, "`tcp_connections` is 9"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, kind, expected):
    with pytest.raises(kind, match=expected):
        oc.join_tcp("127.0.0.1:0", 0, 1, **settings)


def _errors(group):
    with pytest.raises(TypeError, match="format 'u'|format 'w'"):
        group.all_reduce(array.array("u", "text"))
    with pytest.raises(ValueError, match="next to one another"):
        group.all_reduce(memoryview(bytearray(8))[::2])
    with pytest.raises(TypeError, match="different data types"):
        group.all_reduce_many([array.array("f", [1]), array.array("d", [1])])
    own = bytearray(8)
    with pytest.raises(oc.OrinocoError, match="vectors 0 and 1 share memory"):
        group.all_reduce_many([own, memoryview(own)[4:]])
    with pytest.raises(oc.OrinocoError, match="cannot be quantized"):
        group.all_reduce_int8(own)
    with pytest.raises(BufferError):
        group.all_reduce(b"read-only")
    with pytest.raises(ValueError, match="room for the sources"):
        group.all_gather(b"12", bytearray(3))
    floats, own = array.array("f", [0, 0]), bytearray(4)
    for call in (
        lambda: group.all_gather(floats, own),
        lambda: group.reduce(floats, bytearray(2), group.rank),
        lambda: group.reduce_scatter(floats, bytearray(1)),
        lambda: group.all_to_all(floats, bytearray(2)),
        lambda: group.scatter(floats, bytearray(1), group.rank),
        lambda: group.gather(floats, own, group.rank),
        lambda: group.all_gather_v(floats, own, [2, 2]),
        lambda: group.all_to_all_v(floats, [1, 1], bytearray(2), [1, 1]),
    ):
        with pytest.raises(TypeError, match="the source has elements of f32, and the target of u8"):
            call()
    with pytest.raises(ValueError, match="a count for each rank"):
        group.all_gather_v(own, own, [4])
    with pytest.raises(oc.OrinocoError, match="no rank 7 among 2") as error:
        group.broadcast(bytearray(1), 7)
    assert error.value.rank is None and error.value.status == "invalid-argument"
    with pytest.raises(oc.OrinocoError) as error:
        group.all_reduce(bytearray(group.rank + 1))
    assert error.value.rank in (0, 1) and error.value.status in ("mismatch", "epoch-failed")


def test_errors():
    run(2, "shm", _errors)


def _leaves_during_a_call(group):
    part = group.split(0, group.rank)
    if group.rank == 1:
        group.barrier()
        time.sleep(0.5)
        part.barrier()
        part.leave()
        return
    ended = []

    def wait():
        try:
            part.barrier()
            ended.append(None)
        except oc.OrinocoError as error:
            ended.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while not part._handle._calls:
        time.sleep(0.001)
    group.barrier()
    part.leave()
    assert ended == [None] and not part._handle._calls
    thread.join()
    # Those that begin later are refused, and leaving again does nothing.
    for call in (part.barrier, part.recent, part.shrink, part.tune, lambda: part.split(0)):
        with pytest.raises(oc.OrinocoError, match="this rank has left the group") as error:
            call()
        assert error.value.status == "invalid-argument"
    part.leave()


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_leaving_waits_for_the_calls_of_other_threads(transport):
    run(2, transport, _leaves_during_a_call)


def test_a_signal_handler_cannot_leave_during_a_call_of_its_thread():
    group = oc.join_shm(f"/dev/shm/orinoco-python-{os.getpid()}-{secrets.token_hex(4)}", 0, 1)

    def handle(*_):
        with pytest.raises(RuntimeError, match="a signal handler cannot leave"):
            group.leave()
        handled.append(None)

    handled, before = [], signal.signal(signal.SIGUSR1, handle)
    try:
        # In place of a function of the C library, during which the signal comes.
        group._handle.call(lambda _: os.kill(os.getpid(), signal.SIGUSR1) or 0)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert handled == [None]
    group.barrier()
    group.leave()


def _is_forgotten(group):
    part = group.split(0, group.rank)
    part.barrier()
    if group.rank == 1:
        del part
        gc.collect()
    else:
        with pytest.raises(oc.OrinocoError, match="rank 1 left"):
            part.barrier()
        part.leave()
    group.barrier()


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_group_that_is_forgotten_is_left(transport):
    run(2, transport, _is_forgotten)


def _has_a_copy(group):
    part = group.split(0, group.rank)
    child = os.fork()
    if child == 0:
        del part
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with part:
        part.barrier()


def test_the_copy_of_a_group_in_a_forked_process_leaves_nothing():
    run(2, "shm", _has_a_copy)


def test_a_program_that_ends_leaves_its_group():
    path = f"/dev/shm/orinoco-python-{os.getpid()}-{secrets.token_hex(4)}"
    program = f"import orinoco_collective as oc\ngroup = oc.join_tcp('file:{path}', 1, 2)\ngroup.barrier()\n"
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        with oc.join_tcp("file:" + path, 0, 2) as group:
            group.barrier()
            with pytest.raises(oc.OrinocoError, match="rank 1 left"):
                group.barrier()
        assert process.wait(60) == 0


def _recorded(group):
    for _ in range(70):
        group.barrier()
    record = group.recent()
    assert (record["rank"], record["failure"], len(record["waits"])) == (group.rank, None, 2)
    assert [operation["number"] for operation in record["operations"]] == list(range(7, 71))
    assert {(operation["call"], operation["state"]) for operation in record["operations"]} == {("barrier", "done")}
    assert group.recent_text().startswith(f"Last operations of rank {group.rank} (64 of 70).")
    if group.rank == 1:
        # Alive, and late, also where ranks get few turns.
        time.sleep(6)
        return
    with pytest.raises(oc.OrinocoError, match="rank 1"):
        group.all_reduce(array.array("f", [1]))
    record = group.recent()
    assert "rank 1" in record["failure"]
    last = record["operations"][-1]
    assert (last["call"], last["state"]) == ("all_reduce of 1 f32, sum", "failed")
    assert last["longest"]["rank"] == 1 and last["longest"]["waited_ms"] > 500
    assert record["waits"][1]["longest_ms"] > 500 and record["waits"][0]["count"] == 0


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_the_record_names_the_rank_that_is_late(transport):
    run(2, transport, _recorded, deadline=1)


def test_a_key_is_made_once(tmp_path):
    path = tmp_path / "key"
    oc.make_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(oc.OrinocoError, match="key"):
        oc.make_key(path)
