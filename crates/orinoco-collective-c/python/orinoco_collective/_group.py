"""A group over the C library."""

import json

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
    """A call failed. ``rank`` is the rank that the failure names, or None."""

    def __init__(self, message, rank):
        super().__init__(message)
        self.rank = rank


def check(status):
    """Raises the failure of a call that this thread made."""
    if status != lib.ORINOCO_OK:
        rank = lib.orinoco_last_error_rank()
        raise OrinocoError(ffi.string(lib.orinoco_last_error()).decode(), None if rank < 0 else rank)


def make_key(path):
    """Makes a key for a group, in a new file that only this user can read. Every rank needs a copy of it."""
    check(lib.orinoco_make_key(str(path).encode()))


def join_shm(path, rank, ranks, *, deadline=None, silence=None, fast=False):
    """Joins a group of ranks on one machine, over shared memory, through a file in /dev/shm. Times are in seconds."""
    return Group._join(lib.orinoco_join_shm, [str(path).encode()], rank, ranks, deadline, silence, fast)


def join_tcp(
    rendezvous, rank, ranks, *, key_file=None, plaintext=False, encrypt=True, deadline=None, silence=None, fast=False
):
    """Joins a group of ranks on any machines, over TCP.

    ``rendezvous`` is one of:

    - ``file:PATH``, for ranks of one machine;
    - ``IP:PORT``, the address of rank 0;
    - ``IP:PORT,IP:PORT,...``, the addresses of all ranks, in order;
    - ``shared:GROUP@SOCKET,IP:PORT,IP:PORT,...``, to use the ports of the daemons. GROUP is the name of the group, SOCKET this
      board's ``program_socket``, and each IP:PORT the daemon of one rank's board, in the order of ranks.

    ``key_file`` may be left out with ``file:PATH``. ``plaintext`` goes without authentication and encryption, among ranks of one
    machine. With ``encrypt=False``, ranks are authenticated, but their messages are not encrypted: for networks that nobody else can
    reach.
    """
    text = rendezvous.encode()
    if plaintext:
        return Group._join(lib.orinoco_join_tcp_plaintext, [text], rank, ranks, deadline, silence, fast)
    key = ffi.NULL if key_file is None else str(key_file).encode()
    return Group._join(lib.orinoco_join_tcp, [text, key], rank, ranks, deadline, silence, fast, not encrypt)


class Group:
    """Ranks that carry out collective operations together, as one of them.

    All ranks call the same operations in the same order, with the same sizes; a send and its recv concern two ranks only. Times are in
    seconds.
    """

    def __init__(self, pointer):
        self._pointer = pointer
        self.rank = lib.orinoco_rank(pointer)
        self.ranks = lib.orinoco_ranks(pointer)

    @classmethod
    def _join(cls, function, meeting, rank, ranks, deadline, silence, fast, plaintext_messages=False):
        settings = ffi.new("OrinocoSettings *")
        settings.deadline_ms = 0 if deadline is None else max(1, round(deadline * 1000))
        settings.silence_ms = 0 if silence is None else max(1, round(silence * 1000))
        settings.fast = fast
        settings.plaintext_messages = plaintext_messages
        place = ffi.new("OrinocoGroup **")
        meeting = [item if item is ffi.NULL else ffi.new("char[]", item) for item in meeting]
        check(function(*meeting, rank, ranks, settings, place))
        return cls(place[0])

    def split(self, color, key=0):
        """Makes groups of this group's ranks. Ranks that name the same color (0 to 2**32 - 1) form one, in the order of their keys and
        then of their ranks. With the color None a rank belongs to no new group, and gets None. All ranks must call it.

        Making a group takes about as long as joining one: make it once, and use it again and again.
        """
        if color is not None and color < 0:
            raise ValueError(f"{color} is no color: they are 0 to {2**32 - 1}, or None")
        place = ffi.new("OrinocoGroup **")
        check(lib.orinoco_split(self._pointer, lib.ORINOCO_NO_COLOR if color is None else color, key, place))
        return None if place[0] == ffi.NULL else Group(place[0])

    def shrink(self):
        """Makes a group of the ranks that are left after a failure, in the order of their ranks here. All ranks that are left must call it,
        usually after an operation has raised an error. Ranks that have ended or left, give no signs of life or were too late for an
        operation are left out. All ranks that are left get the same group, or an error.

        It can be called again after an error, unless the other ranks go on without this one. A group is shrunk once; the old one is of
        no use after that, and can be left.
        """
        place = ffi.new("OrinocoGroup **")
        check(lib.orinoco_shrink(self._pointer, place))
        return Group(place[0])

    def leave(self):
        """Leaves the group. Nothing may be called after that."""
        pointer, self._pointer = self._pointer, ffi.NULL
        check(lib.orinoco_leave(pointer))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.leave()

    def call(self, name, *arguments):
        """Calls a function of the C library, without the handle for work in the background."""
        check(getattr(lib, "orinoco_" + name)(self._pointer, *arguments, ffi.NULL))

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
        self.call("reduce", source.address, target.address, source.count, source.data_type, REDUCTIONS[reduction], root)

    def all_gather(self, source, target):
        """Concatenates the sources of all ranks in the target of each."""
        source, target = _Vector(source), _Vector(target, True)
        self._check(target.count == source.count * self.ranks, "the target has room for the sources of all ranks")
        self.call("all_gather", source.address, target.address, source.count, source.data_type)

    def reduce_scatter(self, source, target, reduction="sum"):
        """Reduces the sources of all ranks, which hold a block for each, and gives each rank its block."""
        source, target = _Vector(source), _Vector(target, True)
        self._check(source.count == target.count * self.ranks, "the source has a block for each rank")
        self.call(
            "reduce_scatter", source.address, target.address, target.count, target.data_type, REDUCTIONS[reduction]
        )

    def all_to_all(self, source, target):
        """Sends each rank its block of the source, and receives a block from each."""
        source, target = _Vector(source), _Vector(target, True)
        self._check(source.count == target.count and source.count % self.ranks == 0, "equal blocks for each rank")
        self.call("all_to_all", source.address, target.address, source.count // self.ranks, source.data_type)

    def send(self, vector, to):
        """Sends a vector to another rank, which calls ``recv`` with one of the same length."""
        own = _Vector(vector)
        self.call("send", own.address, own.count, own.data_type, to)

    def recv(self, vector, source):
        """Receives a vector that another rank sends."""
        own = _Vector(vector, True)
        self.call("recv", own.address, own.count, own.data_type, source)

    def recent(self):
        """The flight record of this rank, as a dictionary: its last 64 operations, how long each waited and for which rank longest, and
        the waits for each rank. After a failure, the last operation is the one that failed, and the rank it waited for longest is the
        late one. The header of the C library, at ``orinoco_recent``, describes the keys. Times are in milliseconds.
        """
        return json.loads(self._recent(lib.ORINOCO_JSON))

    def recent_text(self):
        """The flight record of this rank, as a table for people."""
        return self._recent(lib.ORINOCO_TEXT)

    def _recent(self, record_format):
        # Enough for 64 operations of a few ranks.
        capacity, length = 1 << 15, ffi.new("size_t *")
        while True:
            buffer = ffi.new("char[]", capacity)
            check(lib.orinoco_recent(self._pointer, record_format, buffer, capacity, length))
            if length[0] < capacity:
                return ffi.string(buffer).decode()
            capacity = 2 * length[0]

    @staticmethod
    def _check(condition, expected):
        if not condition:
            raise ValueError("wrong length: expected that " + expected)


class _Vector:
    """A vector that Python lends, with its address."""

    def __init__(self, vector, is_written=False):
        if vector is None:
            self.address, self.count, self.data_type = ffi.NULL, 0, lib.ORINOCO_U8
            return
        view = memoryview(vector)
        if not view.c_contiguous:
            raise ValueError("the vector's elements are not next to one another in memory")
        name = _FORMATS.get((view.format.lstrip("@=<"), view.itemsize))
        if name is None:
            raise TypeError(f"there is no data type for elements of the format {view.format!r}")
        self.address = ffi.from_buffer(vector, require_writable=is_written)
        self.count = view.nbytes // view.itemsize
        self.data_type = DATA_TYPES[name]
