"""The Python package by itself: every operation, over every transport, and what errors say."""

import array
import multiprocessing
import os
import secrets
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


@pytest.mark.parametrize("transport", ["shm", "tcp", "tcp-authenticated", "tcp-plaintext"])
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
    with pytest.raises(oc.OrinocoError, match="no rank 7 among 2") as error:
        group.broadcast(bytearray(1), 7)
    assert error.value.rank is None
    with pytest.raises(oc.OrinocoError) as error:
        group.all_reduce(bytearray(group.rank + 1))
    assert error.value.rank in (0, 1)


def test_errors():
    run(2, "shm", _errors)


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
