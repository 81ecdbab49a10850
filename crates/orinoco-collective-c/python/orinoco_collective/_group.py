"""A group over the C library."""

import json
import os
import threading
import weakref

from ._native import ffi, lib

DATA_TYPES = {
    "f32": lib.ORINOCO_F32,
    "f64": lib.ORINOCO_F64,
    "f16": lib.ORINOCO_F16,
    "bf16": lib.ORINOCO_BF16,
    "i8": lib.ORINOCO_I8,
    "u8": lib.ORINOCO_U8,
    "i32": lib.ORINOCO_I32,
    "u32": lib.ORINOCO_U32,
    "i64": lib.ORINOCO_I64,
    "u64": lib.ORINOCO_U64,
}
REDUCTIONS = {
    "sum": lib.ORINOCO_SUM,
    "product": lib.ORINOCO_PRODUCT,
    "min": lib.ORINOCO_MIN,
    "max": lib.ORINOCO_MAX,
    "average": lib.ORINOCO_AVERAGE,
}
ALGORITHMS = {
    "direct": lib.ORINOCO_DIRECT,
    "two-shot": lib.ORINOCO_TWO_SHOT,
    "ring": lib.ORINOCO_RING,
    "recursive-doubling": lib.ORINOCO_RECURSIVE_DOUBLING,
    "halving-doubling": lib.ORINOCO_HALVING_DOUBLING,
    "binomial-tree": lib.ORINOCO_BINOMIAL_TREE,
    "double-binary-tree": lib.ORINOCO_DOUBLE_BINARY_TREE,
    "chain": lib.ORINOCO_CHAIN,
    "bruck": lib.ORINOCO_BRUCK,
    "pairwise": lib.ORINOCO_PAIRWISE,
    "two-level": lib.ORINOCO_TWO_LEVEL,
}
# Operations that can be explained.
OPERATIONS = {
    "barrier": lib.ORINOCO_BARRIER,
    "broadcast": lib.ORINOCO_BROADCAST,
    "reduce": lib.ORINOCO_REDUCE,
    "all_reduce": lib.ORINOCO_ALL_REDUCE,
    "all_gather": lib.ORINOCO_ALL_GATHER,
    "reduce_scatter": lib.ORINOCO_REDUCE_SCATTER,
    "scatter": lib.ORINOCO_SCATTER,
    "gather": lib.ORINOCO_GATHER,
    "all_to_all": lib.ORINOCO_ALL_TO_ALL,
}
_STATUSES = {
    lib.ORINOCO_INVALID_ARGUMENT: "invalid-argument",
    lib.ORINOCO_JOIN_FAILED: "join-failed",
    lib.ORINOCO_MISMATCH: "mismatch",
    lib.ORINOCO_EPOCH_FAILED: "epoch-failed",
    lib.ORINOCO_INTERNAL_ERROR: "internal-error",
}
# Formats of the buffer protocol, as the module struct has them, with the bytes of an element.
_FORMATS = {
    ("f", 4): "f32",
    ("d", 8): "f64",
    ("e", 2): "f16",
    ("b", 1): "i8",
    ("B", 1): "u8",
    ("?", 1): "u8",
    ("c", 1): "u8",
    ("i", 4): "i32",
    ("l", 4): "i32",
    ("I", 4): "u32",
    ("L", 4): "u32",
    ("q", 8): "i64",
    ("l", 8): "i64",
    ("Q", 8): "u64",
    ("L", 8): "u64",
}


class OrinocoError(RuntimeError):
    """A call failed. ``rank`` is the rank that the failure names, or None. ``status`` is ``invalid-argument``, ``join-failed``,
    ``mismatch``, ``epoch-failed`` or ``internal-error``, as in the header of the C library."""

    def __init__(self, message, rank, status=None):
        super().__init__(message)
        self.rank = rank
        self.status = status


def check(status):
    """Raises the failure of a call that this thread made."""
    if status != lib.ORINOCO_OK:
        rank = lib.orinoco_last_error_rank()
        message = ffi.string(lib.orinoco_last_error()).decode()
        raise OrinocoError(message, None if rank < 0 else rank, _STATUSES[status])


def make_key(path):
    """Makes a key for a group, in a new file that only this user can read. Every rank needs a copy of it."""
    check(lib.orinoco_make_key(str(path).encode()))


def join_shm(path, rank, ranks, *, deadline=None, silence=None, fast=False):
    """Joins a group of ranks on one machine, over shared memory, through a file in /dev/shm. Times are in seconds."""
    settings = _settings(deadline, silence, fast)
    return Group._join(lib.orinoco_join_shm, [str(path)], rank, ranks, settings)


def join_tcp(
    rendezvous,
    rank,
    ranks,
    *,
    key_file=None,
    plaintext=False,
    encrypt=True,
    tcp_connections=1,
    deadline=None,
    silence=None,
    fast=False,
    tune=False,
    algorithm=None,
    uniform=False,
    witness=None,
):
    """Joins a group of ranks on any machines, over TCP. All ranks give the same settings, apart from the times.

    ``rendezvous`` is one of:

    - ``file:PATH``, for ranks of one machine;
    - ``IP:PORT``, the address of rank 0;
    - ``IP:PORT,IP:PORT,...``, the addresses of all ranks, in order;
    - ``shared:GROUP@SOCKET,IP:PORT,IP:PORT,...``, to use the ports of the daemons. GROUP is the name of the group, SOCKET this
      board's ``program_socket``, and each IP:PORT the daemon of one rank's board, in the order of ranks.

    ``key_file`` may be left out with ``file:PATH``. ``plaintext`` goes without authentication and encryption, among ranks of one
    machine. With ``encrypt=False``, ranks are authenticated, but their messages are not encrypted: for networks that nobody else can
    reach. ``tcp_connections``, 1 to 8, are those for the messages between two ranks.

    With ``tune``, ranks measure their links when all have joined, to choose algorithms by them, as ``Group.tune`` does. ``algorithm`` is
    used for every operation that has it: one of ``direct``, ``two-shot``, ``ring``, ``recursive-doubling``, ``halving-doubling``,
    ``binomial-tree``, ``double-binary-tree``, ``chain``, ``bruck``, ``pairwise`` and ``two-level``. Without ``fast``, reductions do not use
    one that combines values in another order.

    With ``uniform``, all ranks that are left after a failure, and that reach more than half of the ranks, return the same: all the
    result, or all an error. With exactly half of them, the half with the rank ``witness`` counts.
    """
    settings = _settings(deadline, silence, fast, tune, algorithm, uniform, witness)
    settings.tcp_connections = tcp_connections
    settings.plaintext_messages = not encrypt
    if plaintext:
        return Group._join(lib.orinoco_join_tcp_plaintext, [rendezvous], rank, ranks, settings)
    return Group._join(lib.orinoco_join_tcp, [rendezvous, key_file], rank, ranks, settings)


def join_rdma(
    rendezvous,
    rank,
    ranks,
    *,
    key_file=None,
    device=None,
    deadline=None,
    silence=None,
    fast=False,
    tune=False,
    algorithm=None,
    uniform=False,
    witness=None,
):
    """Joins a group of ranks over RDMA (RoCE v2), which needs libibverbs and an RDMA device on every rank's machine. Ranks join over TCP,
    with the settings of ``join_tcp``, and are authenticated; after that, vectors are neither encrypted nor authenticated.

    ``device`` is the name of the RDMA device, as ``rdma link`` lists it, instead of the one that has this rank's addresses of the TCP
    connections. The group cannot be split or shrunk.
    """
    settings = _settings(deadline, silence, fast, tune, algorithm, uniform, witness)
    return Group._join(lib.orinoco_join_rdma, [rendezvous, key_file, device], rank, ranks, settings)


def join_pcie(
    path,
    rank,
    ranks,
    *,
    key_file=None,
    deadline=None,
    silence=None,
    fast=False,
    tune=False,
    algorithm=None,
    uniform=False,
    witness=None,
):
    """Joins a group of ranks through memory that all can map: a PCI BAR that boards share, such as
    ``/sys/bus/pci/devices/0000:01:00.0/resource2``, or a file. A file that does not exist is made by rank 0, and removed when all have
    joined. Settings are those of ``join_tcp``. Ranks are authenticated; after that, messages are not encrypted.

    ``key_file`` may be left out with an ordinary file: then ranks are not authenticated. The group cannot be split or shrunk.
    """
    settings = _settings(deadline, silence, fast, tune, algorithm, uniform, witness)
    return Group._join(lib.orinoco_join_pcie, [str(path), key_file], rank, ranks, settings)


def _settings(deadline, silence, fast, tune=False, algorithm=None, uniform=False, witness=None):
    """Settings for the C library, where zero stands for the usual value."""
    settings = ffi.new("OrinocoSettings *")
    settings.deadline_ms = 0 if deadline is None else max(1, round(deadline * 1000))
    settings.silence_ms = 0 if silence is None else max(1, round(silence * 1000))
    settings.fast = fast
    settings.tune = tune
    settings.algorithm = 0 if algorithm is None else _number(ALGORITHMS, algorithm, "algorithm")
    settings.uniform = uniform
    settings.has_witness = witness is not None
    settings.witness = 0 if witness is None else witness
    return settings


def _number(numbers, name, kind):
    if name not in numbers:
        raise ValueError(f"there is no {kind} {name!r}; expected one of {', '.join(numbers)}")
    return numbers[name]


class Group:
    """Ranks that carry out collective operations together, as one of them.

    All ranks call the same operations in the same order, with the same sizes; a send and its recv concern two ranks only. Times are in
    seconds.
    """

    def __init__(self, pointer):
        self._handle = _Handle(pointer)
        self.rank = lib.orinoco_rank(pointer)
        self.ranks = lib.orinoco_ranks(pointer)
        weakref.finalize(self, self._handle.leave_unused)

    @classmethod
    def _join(cls, function, meeting, rank, ranks, settings):
        place = ffi.new("OrinocoGroup **")
        meeting = [ffi.NULL if item is None else ffi.new("char[]", str(item).encode()) for item in meeting]
        check(function(*meeting, rank, ranks, settings, place))
        return cls(place[0])

    def split(self, color, key=0):
        """Makes groups of this group's ranks. Ranks that name the same color (0 to 2**32 - 1) form one, in the order of their keys and
        then of their ranks. With the color None a rank belongs to no new group, and gets None. All ranks must call it.

        Making a group takes about as long as joining one: make it once, and use it again and again. Groups over RDMA and PCIe cannot be
        split.
        """
        if color is not None and color < 0:
            raise ValueError(f"{color} is no color: they are 0 to {2**32 - 1}, or None")
        place = ffi.new("OrinocoGroup **")
        self._handle.call(lib.orinoco_split, lib.ORINOCO_NO_COLOR if color is None else color, key, place)
        return None if place[0] == ffi.NULL else Group(place[0])

    def shrink(self):
        """Makes a group of the ranks that are left after a failure, in the order of their ranks here. All ranks that are left must call it,
        usually after an operation has raised an error. Ranks that have ended or left, give no signs of life or were too late for an
        operation are left out. All ranks that are left get the same group, or an error.

        It can be called again after an error, unless the other ranks go on without this one. A group is shrunk once; the old one is of
        no use after that, and can be left. Groups over RDMA and PCIe cannot be shrunk.
        """
        place = ffi.new("OrinocoGroup **")
        self._handle.call(lib.orinoco_shrink, place)
        return Group(place[0])

    def leave(self):
        """Leaves the group, after the calls that other threads are in. Calls that begin later raise an error. A group that is no longer
        referenced, or that is there at the end of the program, is left, too."""
        self._handle.leave()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.leave()

    def call(self, name, *arguments):
        """Calls a function of the C library, without the handle for work in the background."""
        self._handle.call(getattr(lib, "orinoco_" + name), *arguments, ffi.NULL)

    def barrier(self):
        """Returns when all ranks have called it."""
        self.call("barrier")

    def broadcast(self, vector, root):
        """Copies the vector of ``root`` to all ranks."""
        own = _Vector(vector, True)
        self.call("broadcast", own.address, own.count, own.data_type, root)

    def all_reduce(self, vector, reduction="sum"):
        """Reduces the vectors of all ranks into the vector of each."""
        own = _Vector(vector, True)
        self.call("all_reduce", own.address, own.address, own.count, own.data_type, REDUCTIONS[reduction])

    def all_reduce_many(self, vectors, reduction="sum"):
        """Reduces several vectors of one data type as ``all_reduce`` does, in fewer exchanges: short vectors that follow one another
        travel together. All ranks name vectors of the same lengths, in the same order, and no two of a rank share memory. The results
        are those of single calls, to the bit.
        """
        self.call_many([_Vector(vector, True) for vector in vectors], REDUCTIONS[reduction])

    def call_many(self, vectors, reduction):
        """Reduces several vectors, given by address, count and data type."""
        data_types = {vector.data_type for vector in vectors}
        if len(data_types) > 1:
            raise TypeError("the vectors have different data types")
        addresses = ffi.new("void *[]", [ffi.cast("void *", vector.address) for vector in vectors])
        counts = ffi.new("size_t[]", [vector.count for vector in vectors])
        self.call("all_reduce_many", addresses, counts, len(vectors), *(data_types or {lib.ORINOCO_U8}), reduction)

    def all_reduce_int8(self, vector):
        """Sums the vectors of all ranks into the vector of each, as 8-bit integers with a scale for each 256 elements, for ``f32``,
        ``f16`` and ``bf16``.

        It sends about a quarter of the bytes of an ``all_reduce`` of ``f32``, and the result is rounded: an element differs from the
        sum by at most about 1/127 of the sum of the ranks' largest magnitudes among those 256. All ranks get the same bits.
        """
        own = _Vector(vector, True)
        self.call("all_reduce_int8", own.address, own.address, own.count, own.data_type)

    def reduce(self, source, target, root, reduction="sum"):
        """Reduces the sources of all ranks into the target of ``root``, which may be None at the others."""
        source, target = _Vector(source), _Vector(target, True)
        self._check(self.rank != root or target.count == source.count, "the target is as long as the source")
        data_type = _common(source, target)
        self.call("reduce", source.address, target.address, source.count, data_type, REDUCTIONS[reduction], root)

    def all_gather(self, source, target):
        """Concatenates the sources of all ranks in the target of each."""
        source, target = _Vector(source), _Vector(target, True)
        self._check(target.count == source.count * self.ranks, "the target has room for the sources of all ranks")
        self.call("all_gather", source.address, target.address, source.count, _common(source, target))

    def reduce_scatter(self, source, target, reduction="sum"):
        """Reduces the sources of all ranks, which hold a block for each, and gives each rank its block."""
        source, target = _Vector(source), _Vector(target, True)
        self._check(source.count == target.count * self.ranks, "the source has a block for each rank")
        data_type = _common(source, target)
        self.call("reduce_scatter", source.address, target.address, target.count, data_type, REDUCTIONS[reduction])

    def all_to_all(self, source, target):
        """Sends each rank its block of the source, and receives a block from each."""
        source, target = _Vector(source), _Vector(target, True)
        self._check(source.count == target.count and source.count % self.ranks == 0, "equal blocks for each rank")
        self.call("all_to_all", source.address, target.address, source.count // self.ranks, _common(source, target))

    def scatter(self, source, target, root):
        """Sends each rank its block of the source of ``root``, which may be None at the others."""
        source, target = _Vector(source), _Vector(target, True)
        self._check(self.rank != root or source.count == target.count * self.ranks, "the source has a block for each rank")
        self.call("scatter", source.address, target.address, target.count, _common(source, target), root)

    def gather(self, source, target, root):
        """Concatenates the sources of all ranks in the target of ``root``, which may be None at the others."""
        source, target = _Vector(source), _Vector(target, True)
        has_room = self.rank != root or target.count == source.count * self.ranks
        self._check(has_room, "the target has room for the sources of all ranks")
        self.call("gather", source.address, target.address, source.count, _common(source, target), root)

    def all_gather_v(self, source, target, counts):
        """Concatenates the sources of all ranks in the target of each. ``counts`` has the elements of each rank's source."""
        source, target, own = _Vector(source), _Vector(target, True), self._counts(counts)
        self._check(source.count == counts[self.rank], "the source has this rank's number of elements")
        self._check(target.count == sum(counts), "the target has room for the sources of all ranks")
        self.call("all_gather_v", source.address, target.address, own, _common(source, target))

    def reduce_scatter_v(self, source, target, counts, reduction="sum"):
        """Reduces the sources of all ranks, and gives each rank its block. ``counts`` has the elements of each block."""
        source, target, own = _Vector(source), _Vector(target, True), self._counts(counts)
        self._check(source.count == sum(counts), "the source has a block for each rank")
        self._check(target.count == counts[self.rank], "the target has room for this rank's block")
        data_type = _common(source, target)
        self.call("reduce_scatter_v", source.address, target.address, own, data_type, REDUCTIONS[reduction])

    def scatter_v(self, source, target, counts, root):
        """Sends each rank its block of the source of ``root``, which may be None at the others. ``counts`` has the elements of each
        block."""
        source, target, own = _Vector(source), _Vector(target, True), self._counts(counts)
        self._check(self.rank != root or source.count == sum(counts), "the source has a block for each rank")
        self._check(target.count == counts[self.rank], "the target has room for this rank's block")
        self.call("scatter_v", source.address, target.address, own, _common(source, target), root)

    def gather_v(self, source, target, counts, root):
        """Concatenates the sources of all ranks in the target of ``root``, which may be None at the others. ``counts`` has the elements
        of each rank's source."""
        source, target, own = _Vector(source), _Vector(target, True), self._counts(counts)
        self._check(source.count == counts[self.rank], "the source has this rank's number of elements")
        self._check(self.rank != root or target.count == sum(counts), "the target has room for the sources of all ranks")
        self.call("gather_v", source.address, target.address, own, _common(source, target), root)

    def all_to_all_v(self, source, send, target, receive):
        """Sends each rank its block of the source, and receives a block from each. ``send`` and ``receive`` are this rank's: the elements
        of the block for each rank, and of the block from each."""
        source, target = _Vector(source), _Vector(target, True)
        sent, received = self._counts(send), self._counts(receive)
        self._check(source.count == sum(send) and target.count == sum(receive), "as many elements as the counts add up to")
        self.call("all_to_all_v", source.address, sent, target.address, received, _common(source, target))

    def send(self, vector, to):
        """Sends a vector to another rank, which calls ``recv`` with one of the same length."""
        own = _Vector(vector)
        self.call("send", own.address, own.count, own.data_type, to)

    def recv(self, vector, source):
        """Receives a vector that another rank sends."""
        own = _Vector(vector, True)
        self.call("recv", own.address, own.count, own.data_type, source)

    def tune(self):
        """Measures the links of the group, its copies and its reductions, and chooses algorithms by them from now on. All ranks must call
        it. It takes some tenths of a second. Groups of more than 16 ranks keep their choices by size. A group over shared memory has one
        algorithm for each operation, and cannot be tuned.
        """
        self._handle.call(lib.orinoco_tune)

    def explain(self, operation, count, data_type="f32", root=0):
        """Explains the choice of the algorithm of an operation, such as ``all_reduce``, in a group that is tuned, as a dictionary: the
        algorithm that is used, the predicted times of all that could be, the least time that the links allow, and the times of the calls
        so far. ``count`` is the number of elements of a rank's vector; of its block, for operations with a block for each rank. The header of
        the C library, at ``orinoco_explain``, describes the keys. Times are in microseconds.
        """
        return json.loads(self._explain(operation, count, data_type, root, lib.ORINOCO_JSON))

    def explain_text(self, operation, count, data_type="f32", root=0):
        """Explains the choice of the algorithm of an operation, as a table for people."""
        return self._explain(operation, count, data_type, root, lib.ORINOCO_TEXT)

    def _explain(self, operation, count, data_type, root, text_format):
        operation = _number(OPERATIONS, operation, "operation")
        data_type = _number(DATA_TYPES, data_type, "data type")
        return self._text(lib.orinoco_explain, operation, count, data_type, root, text_format)

    def recent(self):
        """The flight record of this rank, as a dictionary: its last 64 operations, how long each waited and for which rank longest, and
        the waits for each rank. After a failure, the last operation is the one that failed, and the rank it waited for longest is the
        late one. The header of the C library, at ``orinoco_recent``, describes the keys. Times are in milliseconds.
        """
        return json.loads(self._text(lib.orinoco_recent, lib.ORINOCO_JSON))

    def recent_text(self):
        """The flight record of this rank, as a table for people."""
        return self._text(lib.orinoco_recent, lib.ORINOCO_TEXT)

    def _text(self, function, *arguments):
        # Enough for 64 operations of a few ranks.
        capacity, length = 1 << 15, ffi.new("size_t *")
        while True:
            buffer = ffi.new("char[]", capacity)
            self._handle.call(function, *arguments, buffer, capacity, length)
            if length[0] < capacity:
                return ffi.string(buffer).decode()
            capacity = 2 * length[0]

    def _counts(self, counts):
        self._check(len(counts) == self.ranks, "there is a count for each rank")
        return ffi.new("size_t[]", list(counts))

    @staticmethod
    def _check(condition, expected):
        if not condition:
            raise ValueError("wrong length: expected that " + expected)


class _Handle:
    """A group of the C library, which stays valid while a call uses it: Python's lock is released during calls."""

    def __init__(self, pointer):
        self._pointer = pointer
        self._process = os.getpid()
        # Threads of the calls that have not returned, by call.
        self._calls = {}
        self._has_left = False
        # Guards the others. A signal handler may get it again.
        self._changed = threading.Condition(threading.RLock())

    def call(self, function, *arguments):
        """Calls a function with the group, and raises its failure."""
        call = object()
        try:
            with self._changed:
                if self._has_left:
                    raise OrinocoError("this rank has left the group; join another", None, "invalid-argument")
                self._calls[call] = threading.get_ident()
            check(function(self._pointer, *arguments))
        finally:
            with self._changed:
                self._calls.pop(call, None)
                self._changed.notify_all()

    def leave(self):
        with self._changed:
            if threading.get_ident() in self._calls.values():
                raise RuntimeError("a signal handler cannot leave the group during a call of its thread")
            self._has_left = True
            self._changed.wait_for(lambda: not self._calls)
            pointer, self._pointer = self._pointer, ffi.NULL
        check(lib.orinoco_leave(pointer))

    def leave_unused(self):
        """Leaves a group whose owner is gone, or that is there at the end of the program."""
        # The process of a fork has a copy, but is no rank.
        if os.getpid() != self._process:
            return
        with self._changed:
            # At the end of the program, a thread may be in a call still. The other ranks notice that the process ends.
            if self._calls:
                return
            self._has_left = True
            pointer, self._pointer = self._pointer, ffi.NULL
        lib.orinoco_leave(pointer)


class _Vector:
    """A vector that Python lends, with its address."""

    def __init__(self, vector, is_written=False):
        if vector is None:
            self.address, self.count, self.data_type, self.name = ffi.NULL, 0, lib.ORINOCO_U8, None
            return
        view = memoryview(vector)
        if not view.c_contiguous:
            raise ValueError("the vector's elements are not next to one another in memory")
        name = _FORMATS.get((view.format.lstrip("@=<"), view.itemsize))
        if name is None:
            raise TypeError(f"there is no data type for elements of the format {view.format!r}")
        self.address = ffi.from_buffer(vector, require_writable=is_written)
        self.count = view.nbytes // view.itemsize
        self.data_type, self.name = DATA_TYPES[name], name


def _common(source, target):
    """The data type of a source and a target, one of which may be None."""
    if source.data_type != target.data_type and None not in (source.name, target.name):
        raise TypeError(f"the source has elements of {source.name}, and the target of {target.name}")
    return target.data_type if source.name is None else source.data_type
