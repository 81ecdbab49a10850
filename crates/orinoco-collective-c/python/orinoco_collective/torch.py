"""A ``torch.distributed`` back end for CPU tensors.

    import torch.distributed as dist
    import orinoco_collective.torch
    dist.init_process_group("orinoco")

Ranks of one machine are connected by shared memory, others by TCP, authenticated and encrypted with the key in the file that
``ORINOCO_KEY_FILE`` names. ``ORINOCO_TRANSPORT`` chooses ``shm``, ``tcp``, ``tcp-plaintext`` or ``rdma`` instead. ``tcp-plaintext`` does not
encrypt, and does not authenticate ranks of one machine. ``rdma`` needs an RDMA device on each machine; it authenticates ranks, and does not
encrypt.

``send`` and ``recv`` connect the two ranks once for each direction and tag. The connection stays until the process group is destroyed, so a
rank has at most 128 of them: use tags again.

Ranks on several machines reach this one at the IP address from which it reaches the master (``MASTER_ADDR``). Where that is not the right
one, set ``ORINOCO_ADDRESS`` to the machine's own IP address.

On boards that run ``orinocod``, ranks can receive connections from other machines through the TCP port of the daemon instead of one of
their own. Set ``ORINOCO_SHARED_ADDRESS`` on each machine to the ``IP:PORT`` of its daemon, on all machines or on none.
``ORINOCO_PROGRAM_SOCKET`` is the ``program_socket`` of the board file; if unset, ``/run/orinoco/programs.sock``.
"""

import contextlib
import hashlib
import ipaddress
import itertools
import json
import os
import queue
import secrets
import socket
import threading
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work
from torch.futures import Future

from ._group import DATA_TYPES, REDUCTIONS, OrinocoError, join_rdma, join_shm, join_tcp
from ._native import ffi

_DATA_TYPES = {
    torch.float32: DATA_TYPES["f32"],
    torch.float64: DATA_TYPES["f64"],
    torch.float16: DATA_TYPES["f16"],
    torch.bfloat16: DATA_TYPES["bf16"],
    torch.int8: DATA_TYPES["i8"],
    torch.uint8: DATA_TYPES["u8"],
    torch.bool: DATA_TYPES["u8"],
    torch.int32: DATA_TYPES["i32"],
    torch.int64: DATA_TYPES["i64"],
}
_REDUCTIONS = {
    dist.ReduceOp.SUM: REDUCTIONS["sum"],
    dist.ReduceOp.PRODUCT: REDUCTIONS["product"],
    dist.ReduceOp.MIN: REDUCTIONS["min"],
    dist.ReduceOp.MAX: REDUCTIONS["max"],
    dist.ReduceOp.AVG: REDUCTIONS["average"],
}
_BYTES = DATA_TYPES["u8"]
# Most channels of a rank: four tags in each direction with each of 15 others. Over TCP, a channel has 4 of the 1024 descriptors that a process
# has by default, and its group a thread.
_CHANNELS_MAX = 128
# Interval at which a process group that waits for its last operations checks whether it was aborted, in seconds.
_CLOSE_CHECK_S = 0.1


class ProcessGroupOrinoco(dist.ProcessGroup):
    """The ranks of a ``torch.distributed`` group. Operations run in the background, in order."""

    def __init__(self, store, rank, ranks, timeout):
        super().__init__(rank, ranks)
        self._store = _Store(store, timeout.total_seconds())
        self._own_rank = rank
        self._own_ranks = ranks
        self._deadline = timeout.total_seconds()
        self._master = _master(store)
        self._hosts = _hosts(self._store, rank, ranks, self._master)
        if rank == 0:
            self._store.set("orinoco/token", secrets.token_hex(8))
        self._token = self._store.get("orinoco/token")
        members = list(range(ranks))
        self._operations = _Worker(members, lambda: self._join("all", members))
        self._channels = {}
        self._is_aborted = False
        self._group_name = None

    def getBackendName(self):
        return "orinoco"

    # PyTorch keeps the name with the back ends of the devices, of which a group in Python has none; it needs the name to destroy the group.
    def _set_group_name(self, name):
        self._group_name = name
        super()._set_group_name(name)

    @property
    def group_name(self):
        return self._group_name

    # PyTorch asks the back end of a device for these.
    supports_coalescing = False
    supports_splitting = False

    def _get_backend(self, device):
        return self

    def rank(self):
        return self._own_rank

    def size(self):
        return self._own_ranks

    def shutdown(self):
        """Leaves the group, after the operations that were started. They have the timeout of the group."""
        for worker in self._take_workers():
            worker.close()

    def abort(self):
        """Fails the operations that were started, without waiting for them.

        The C library cannot interrupt an operation that has begun: it goes on in its thread until it ends or its timeout is over, and its tensors may
        be written until then. The rank leaves the group after that."""
        self._is_aborted = True
        for worker in self._take_workers():
            worker.abort()

    def _take_workers(self):
        channels, self._channels = self._channels, {}
        return [self._operations, *channels.values()]

    def allreduce(self, tensors, opts=None):
        op = _reduction(opts.reduceOp if opts else dist.ReduceOp.SUM)

        def run(group):
            for tensor in tensors:
                with _Output(tensor, _reducible(tensor)) as own:
                    group.call("all_reduce", own.address, own.address, own.count, own.data_type, op)

        return self._start(run, tensors, opts)

    def allreduce_coalesced(self, tensors, opts=None):
        op = _reduction(opts.reduceOp if opts else dist.ReduceOp.SUM)

        def run(group):
            with contextlib.ExitStack() as stack:
                outputs = [stack.enter_context(_Output(tensor, _reducible(tensor))) for tensor in tensors]
                # Neighbours of one data type travel together.
                for _, alike in itertools.groupby(outputs, lambda own: own.data_type):
                    group.call_many(list(alike), op)

        return self._start(run, tensors, opts)

    def broadcast(self, tensors, opts=None):
        root = opts.rootRank if opts else 0

        def run(group):
            for tensor in tensors:
                with _Output(tensor) as own:
                    group.call("broadcast", own.address, own.count, own.data_type, root)

        return self._start(run, tensors, opts)

    def reduce(self, tensors, opts=None):
        opts = opts or dist.ReduceOptions()
        op, root = _reduction(opts.reduceOp), opts.rootRank

        def run(group):
            for tensor in tensors:
                source = _Input(tensor, _reducible(tensor))
                # Only the root's tensor gets the result.
                target = torch.empty_like(source.tensor) if self._own_rank == root else None
                address = ffi.NULL if target is None else _address(target)
                group.call("reduce", source.address, address, source.count, source.data_type, op, root)
                if target is not None:
                    tensor.detach().copy_(target)

        return self._start(run, tensors, opts)

    # The C library reads and writes as many blocks as there are ranks, and PyTorch checks neither lists nor sizes: that is done here, before an
    # operation starts. Lists are copied, because the caller may change them while the operation waits for its turn.

    def allgather(self, outputs, inputs, opts=None):
        name, outputs, inputs = "all_gather", _copies(outputs), list(inputs)
        _check_length(name, "list of output lists", outputs, len(inputs), "one for each input")
        for parts, tensor in zip(outputs, inputs):
            self._check_blocks(name, "output", parts, tensor, "the input")

        def run(group):
            for parts, tensor in zip(outputs, inputs):
                source = _Input(tensor)
                gathered = torch.empty(source.count * self._own_ranks, dtype=torch.uint8)
                group.call("all_gather", source.address, _address(gathered), source.count, _BYTES)
                _distribute(gathered, parts)

        return self._start(run, outputs, opts)

    def allgather_coalesced(self, outputs, inputs, opts=None):
        name, outputs, inputs = "all_gather_coalesced", _copies(outputs), list(inputs)
        _check_length(name, "list of output lists", outputs, self._own_ranks, "one for each rank")
        for rank, parts in enumerate(outputs):
            _check_length(name, f"output list {rank}", parts, len(inputs), "one for each input")
        return self.allgather([[parts[i] for parts in outputs] for i in range(len(inputs))], inputs, opts)

    def all_gather_single(self, output, tensor, opts=None):
        return self.all_gather_single_coalesced([output], [tensor], opts)

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        name, outputs, inputs = "all_gather_into_tensor", list(outputs), list(inputs)
        _check_length(name, "list of outputs", outputs, len(inputs), "one for each input")
        for output, tensor in zip(outputs, inputs):
            _check_data_type(name, "the output", output, tensor, "the input")
            _check_count(name, "the output", output, tensor.numel() * self._own_ranks, f"the {tensor.numel()} of the input for each rank")

        def run(group):
            for output, tensor in zip(outputs, inputs):
                source = _Input(tensor)
                with _Output(output) as target:
                    group.call("all_gather", source.address, target.address, source.count, _BYTES)

        return self._start(run, outputs, opts)

    def gather(self, outputs, inputs, opts=None):
        name, outputs, inputs = "gather", _copies(outputs), list(inputs)
        root = opts.rootRank if opts else 0
        if self._own_rank == root:
            _check_length(name, "list of output lists", outputs, len(inputs), "one for each input")
            for parts, tensor in zip(outputs, inputs):
                self._check_blocks(name, "output", parts, tensor, "the input")

        def run(group):
            is_root = self._own_rank == root
            for number, tensor in enumerate(inputs):
                source = _Input(tensor)
                gathered = torch.empty(source.count * self._own_ranks if is_root else 0, dtype=torch.uint8)
                group.call("gather", source.address, _address(gathered), source.count, _BYTES, root)
                if is_root:
                    _distribute(gathered, outputs[number])

        return self._start(run, outputs, opts)

    def scatter(self, outputs, inputs, opts=None):
        name, outputs, inputs = "scatter", list(outputs), _copies(inputs)
        root = opts.rootRank if opts else 0
        if self._own_rank == root:
            _check_length(name, "list of input lists", inputs, len(outputs), "one for each output")
            for tensor, blocks in zip(outputs, inputs):
                self._check_blocks(name, "input", blocks, tensor, "the output")

        def run(group):
            for number, tensor in enumerate(outputs):
                blocks = _concatenated(inputs[number]) if self._own_rank == root else torch.empty(0, dtype=torch.uint8)
                with _Output(tensor) as target:
                    group.call("scatter", _address(blocks), target.address, target.count, _BYTES, root)

        return self._start(run, outputs, opts)

    def reduce_scatter(self, outputs, inputs, opts=None):
        name, outputs, inputs = "reduce_scatter", list(outputs), _copies(inputs)
        op = _reduction(opts.reduceOp if opts else dist.ReduceOp.SUM)
        _check_length(name, "list of input lists", inputs, len(outputs), "one for each output")
        for tensor, blocks in zip(outputs, inputs):
            _check_length(name, "list of inputs", blocks, self._own_ranks, "one for each rank")
            for number, block in enumerate(blocks):
                _check_data_type(name, f"input {number}", block, tensor, "the output")
            # Blocks of several sizes are allowed, as with NCCL.
            _check_count(name, "the output", tensor, blocks[self._own_rank].numel(), "as many as this rank's block of the input")

        def run(group):
            for tensor, blocks in zip(outputs, inputs):
                source = torch.cat([_on_cpu(block).detach().reshape(-1) for block in blocks])
                counts = ffi.new("size_t[]", [block.numel() for block in blocks])
                with _Output(tensor, _reducible(tensor)) as target:
                    group.call("reduce_scatter_v", _address(source), target.address, counts, target.data_type, op)

        return self._start(run, outputs, opts)

    def reduce_scatter_single(self, output, tensor, opts=None):
        return self.reduce_scatter_single_coalesced([output], [tensor], opts)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        name, outputs, inputs = "reduce_scatter_tensor", list(outputs), list(inputs)
        op = _reduction(opts.reduceOp if opts else dist.ReduceOp.SUM)
        _check_length(name, "list of inputs", inputs, len(outputs), "one for each output")
        for output, tensor in zip(outputs, inputs):
            _check_data_type(name, "the input", tensor, output, "the output")
            _check_count(name, "the input", tensor, output.numel() * self._own_ranks, f"the {output.numel()} of the output for each rank")

        def run(group):
            for output, tensor in zip(outputs, inputs):
                source = _Input(tensor, _reducible(tensor))
                with _Output(output, _reducible(output)) as target:
                    group.call("reduce_scatter", source.address, target.address, target.count, target.data_type, op)

        return self._start(run, outputs, opts)

    def all_to_all_single(self, output, tensor, output_split_sizes, input_split_sizes, opts=None):
        name = "all_to_all_single"
        _check_data_type(name, "the output", output, tensor, "the input")
        send = _split_bytes(name, "the input", tensor, input_split_sizes, self._own_ranks)
        receive = _split_bytes(name, "the output", output, output_split_sizes, self._own_ranks)
        sent, received = send[self._own_rank], receive[self._own_rank]
        if sent != received:
            raise ValueError(f"{name}: this rank's own block has {sent} bytes in the input, but {received} in the output; expected as many")

        def run(group):
            source = _Input(tensor)
            with _Output(output) as target:
                group.call("all_to_all_v", source.address, ffi.new("size_t[]", send), target.address, ffi.new("size_t[]", receive), _BYTES)

        return self._start(run, [output], opts)

    def alltoall(self, outputs, inputs, opts=None):
        name, outputs, inputs = "all_to_all", list(outputs), list(inputs)
        own = self._own_rank
        _check_length(name, "list of inputs", inputs, self._own_ranks, "one for each rank")
        _check_length(name, "list of outputs", outputs, self._own_ranks, "one for each rank")
        for kind, tensors in (("input", inputs), ("output", outputs)):
            for number, tensor in enumerate(tensors):
                _check_data_type(name, f"{kind} {number}", tensor, inputs[0], "input 0")
        # The blocks of other ranks are compared with theirs by the C library.
        _check_count(name, f"output {own}", outputs[own], inputs[own].numel(), f"as many as input {own}, this rank's own block")

        def run(group):
            source = _concatenated(inputs)
            received = torch.empty(sum(_size(output) for output in outputs), dtype=torch.uint8)
            send = ffi.new("size_t[]", [_size(tensor) for tensor in inputs])
            receive = ffi.new("size_t[]", [_size(tensor) for tensor in outputs])
            group.call("all_to_all_v", _address(source), send, _address(received), receive, _BYTES)
            _distribute(received, outputs)

        return self._start(run, outputs, opts)

    # Names of the same functions before PyTorch 2.10.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def barrier(self, opts=None):
        return self._start(lambda group: group.barrier(), [], opts)

    def send(self, tensors, destination, tag):
        def run(group):
            for tensor in tensors:
                own = _Input(tensor)
                group.call("send", own.address, own.count, _BYTES, 1)

        return self._channel(self._own_rank, destination, tag).start(run, tensors)

    def recv(self, tensors, source, tag):
        def run(group):
            for tensor in tensors:
                with _Output(tensor) as own:
                    group.call("recv", own.address, own.count, _BYTES, 0)

        return self._channel(source, self._own_rank, tag).start(run, tensors)

    def recv_anysource(self, tensors, tag):
        raise NotImplementedError("the back end orinoco receives from a named rank only: give `src`")

    def _check_blocks(self, operation, kind, tensors, like, name):
        """Fails unless a list has a tensor for each rank, each with the elements of another tensor."""
        _check_length(operation, f"list of {kind}s", tensors, self._own_ranks, "one for each rank")
        for number, tensor in enumerate(tensors):
            _check_data_type(operation, f"{kind} {number}", tensor, like, name)
            _check_count(operation, f"{kind} {number}", tensor, like.numel(), f"as many as {name}")

    def _start(self, run, result, opts):
        return self._operations.start(run, result, getattr(opts, "asyncOp", True))

    def _channel(self, source, destination, tag):
        """The worker for messages in one direction with one tag: a group of two of its own, so that it waits for nothing else.

        None is closed to make room for another: the two ranks may use their tags in different orders, so one would close a channel on which the
        other is about to wait."""
        if self._is_aborted:
            raise _aborted()
        key = (source, destination, tag)
        if key not in self._channels:
            if len(self._channels) >= _CHANNELS_MAX:
                raise OrinocoError(
                    f"this rank sends and receives with {_CHANNELS_MAX} combinations of direction, rank and tag already, the most that a process "
                    "group can have; use tags again, or destroy the process group and make another",
                    None,
                )
            name, members = f"{source}-{destination}-{tag}", [source, destination]
            self._channels[key] = _Worker(members, lambda: self._join(name, members))
        return self._channels[key]

    def _join(self, name, members):
        try:
            return self._join_ranks(name, members)
        except OrinocoError as error:
            message = f"{error} (a group connects its ranks at its first operation, within the timeout of {self._deadline:g} s)"
            raise OrinocoError(message, error.rank) from error

    def _join_ranks(self, name, members):
        rank, ranks = members.index(self._own_rank), len(members)
        is_one_machine = len({self._hosts[member]["memory"] for member in members}) == 1
        transport = os.environ.get("ORINOCO_TRANSPORT") or ("shm" if is_one_machine else "tcp")
        if transport not in ("shm", "tcp", "tcp-plaintext", "rdma"):
            raise ValueError(f"ORINOCO_TRANSPORT is {transport!r}, expected shm, tcp, tcp-plaintext or rdma")
        if not is_one_machine:
            return self._join_machines(name, members, rank, transport)
        path = f"/dev/shm/orinoco-torch-{self._token}-{name}"
        if transport == "shm":
            return join_shm(path, rank, ranks, deadline=self._deadline)
        if transport == "rdma":
            return join_rdma("file:" + path, rank, ranks, deadline=self._deadline)
        is_plain = transport == "tcp-plaintext"
        return join_tcp("file:" + path, rank, ranks, plaintext=is_plain, deadline=self._deadline)

    def _join_machines(self, name, members, rank, transport):
        key_file = os.environ.get("ORINOCO_KEY_FILE")
        if transport == "shm" or key_file is None:
            raise ValueError(
                "the ranks are on several machines, which needs the transport tcp, tcp-plaintext or rdma, and ORINOCO_KEY_FILE with the name of a file "
                "that has the group's key; make one by orinoco_collective.make_key, and copy it to each machine"
            )
        shared = os.environ.get("ORINOCO_SHARED_ADDRESS")
        with contextlib.nullcontext() if shared else _reserve_port(self._own_address(members)) as reserved:
            own = f"shared:{shared}" if shared else _endpoint(reserved)
            rendezvous = self._exchange_addresses(name, members, rank, own)
            settings = {"key_file": key_file, "deadline": self._deadline}
            if transport == "rdma":
                return join_rdma(rendezvous, rank, len(members), **settings)
            return join_tcp(rendezvous, rank, len(members), encrypt=transport == "tcp", **settings)

    def _exchange_addresses(self, name, members, rank, own):
        """Publishes this rank's address, and returns the rendezvous with those of all members."""
        self._store.set(f"orinoco/{name}/address/{rank}", own)
        addresses = [self._store.get(f"orinoco/{name}/address/{member}") for member in range(len(members))]
        is_shared = own.startswith("shared:")
        unlike = [member for member, address in zip(members, addresses) if address.startswith("shared:") != is_shared]
        if unlike:
            here, there = ("set", "not set") if is_shared else ("not set", "set")
            raise ValueError(f"ORINOCO_SHARED_ADDRESS is {here} on this rank, but {there} on ranks {unlike}; set it on all machines, or on none")
        addresses = [address.removeprefix("shared:") for address in addresses]
        if is_shared:
            program_socket = os.environ.get("ORINOCO_PROGRAM_SOCKET") or "/run/orinoco/programs.sock"
            # Such names are short, and those of PyTorch's groups may be long.
            group = hashlib.sha256(f"{self._token}-{name}".encode()).hexdigest()[:28]
            addresses.insert(0, f"shared:{group}@{program_socket}")
        return ",".join(addresses)

    def _own_address(self, members):
        """The IP address at which the other members reach this rank."""
        own = self._hosts[self._own_rank]
        elsewhere = {
            member: [other for other in members if self._hosts[other]["network"] != self._hosts[member]["network"]]
            for member in members
        }
        if not any(elsewhere.values()):
            return own["address"] or "127.0.0.1"
        # A rank without an address takes the one from which it reaches a rank of another machine. All ranks see who has neither.
        unreachable = [
            member
            for member in members
            if not self._hosts[member]["address"] and not any(self._hosts[other]["address"] for other in elsewhere[member])
        ]
        if unreachable:
            raise ValueError(
                f"the group spans several machines, but ranks {unreachable} have no address that other machines can reach: the master's address is "
                f"{self._master!r} on this rank; set MASTER_ADDR on all machines to the IP address of rank 0's machine, or set ORINOCO_ADDRESS on each "
                "machine to its own IP address"
            )
        if own["address"]:
            return own["address"]
        targets = [self._hosts[other]["address"] for other in elsewhere[self._own_rank] if self._hosts[other]["address"]]
        sources = filter(None, map(_source_address, targets))
        source = next(sources, None)
        if source is None:
            raise ValueError(f"this machine has no route to {targets[0]}, the address of another rank; set ORINOCO_ADDRESS on each machine to its own IP address")
        return source


class _Store:
    """The store of a group, for several threads: a thread that waits for a value keeps no other from setting one."""

    def __init__(self, store, deadline):
        self._store = store
        self._deadline = deadline

    def set(self, key, value):
        self._store.set(key, value)

    def get(self, key):
        end = time.monotonic() + self._deadline
        while not self._store.check([key]):
            if time.monotonic() > end:
                raise TimeoutError(f"no rank has set {key} within {self._deadline:.0f} s")
            time.sleep(0.002)
        return self._store.get(key).decode()


class _Worker:
    """Runs operations on a thread of its own, in order. It joins its group at the first."""

    def __init__(self, members, join):
        # Ranks of the process group, by their numbers in this worker's group.
        self._members = members
        self._join = join
        self._group = None
        # Guards the group: held while an operation runs.
        self._lock = threading.Lock()
        self._waiting = queue.SimpleQueue()
        # Futures of the operations that were started and have not ended. Whoever removes one sets it.
        self._pending = set()
        self._is_aborted = False
        # Guards both.
        self._pending_lock = threading.Lock()
        self._thread = None

    def start(self, run, result, is_async=True):
        """Starts an operation, and returns its work. One that the caller waits for anyway runs at once if no other is pending."""
        ended = Future()
        with self._pending_lock:
            if self._is_aborted:
                raise _aborted()
            is_idle = not self._pending
            self._pending.add(ended)
            if is_async or not is_idle:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="orinoco", daemon=True)
                    self._thread.start()
                self._waiting.put((run, ended))
                # An exception in a callback is an error for C++ too, and a future's own exception is not.
                return _Work(ended.then(lambda failure: _result(failure.value(), result)))
        self._run(run, ended)
        failure = ended.value()
        if failure is not None:
            raise failure
        ended = Future()
        ended.set_result(result)
        return _Work(ended)

    def close(self):
        """Leaves the group, after the operations that were started. A worker that was aborted leaves it by itself."""
        if self._thread is not None:
            self._waiting.put(None)
            # Another thread may abort meanwhile.
            while self._thread.is_alive() and not self._is_aborted:
                self._thread.join(_CLOSE_CHECK_S)
        if self._is_aborted:
            return
        self._thread = None
        with self._lock:
            self._leave()

    def abort(self):
        """Fails the operations that were started, and waits for none. The group is left once the one that runs has ended."""
        with self._pending_lock:
            self._is_aborted = True
            pending, self._pending = self._pending, set()
        for ended in pending:
            ended.set_result(_aborted())
        self._waiting.put(None)
        self._leave_if_aborted()

    def _leave(self):
        group, self._group = self._group, None
        if group is not None:
            group.leave()

    def _leave_if_aborted(self):
        # If an operation is running, its thread calls this after it.
        if self._is_aborted and self._lock.acquire(blocking=False):
            try:
                self._leave()
            finally:
                self._lock.release()

    def _work(self):
        while (item := self._waiting.get()) is not None:
            self._run(*item)

    def _run(self, run, ended):
        failure = None
        try:
            with self._lock, torch.no_grad():
                if self._group is None and not self._is_aborted:
                    self._group = self._join()
                if self._is_aborted:
                    raise _aborted()
                try:
                    run(self._group)
                except OrinocoError as error:
                    raise self._explained(error) from error
        except BaseException as error:
            failure = error
        with self._pending_lock:
            is_pending = ended in self._pending
            self._pending.discard(ended)
        if is_pending:
            ended.set_result(failure)
        self._leave_if_aborted()

    def _explained(self, error):
        """The error of an operation, with the rank that this one waited for, and with the numbers that ranks have in the process group."""
        members, message = self._members, str(error)
        if members != list(range(len(members))):
            message += f" (a message from rank {members[0]} to rank {members[1]}, which are ranks 0 and 1 of this error)"
        record = self._group.recent()
        last = record["operations"][-1] if record["failure"] else None
        if last and last["longest"]:
            rank, waited = members[last["longest"]["rank"]], last["longest"]["waited_ms"]
            message += f"; in operation {last['number']} ({last['call']}), this rank waited longest for rank {rank}: {waited:.1f} ms"
        # Over shared memory, the rank is what another process has written there.
        is_member = error.rank is not None and error.rank < len(members)
        return OrinocoError(message, members[error.rank] if is_member else None)


class _Work(Work):
    """An operation that was started. Whoever waits for it gets its failure as an exception."""

    def __init__(self, future):
        super().__init__()
        self._future = future

    def wait(self, timeout=None):
        # A timeout of 0 is torch's default, and means none: the operation has that of its group.
        if timeout:
            ended = threading.Event()
            self._future.then(lambda _: ended.set())
            if not ended.wait(timeout.total_seconds()):
                seconds = timeout.total_seconds()
                raise OrinocoError(f"the operation has not ended within {seconds:g} s; it goes on, and can be waited for again", None)
        self._future.wait()
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        return self._future.done()

    def is_success(self):
        return self._future.done() and self.exception() is None

    def exception(self):
        try:
            self._future.value()
        except Exception as error:
            return error
        return None

    def get_future(self):
        return self._future

    def result(self):
        return self._future.value()


def _aborted():
    return OrinocoError("the process group was aborted: destroy it, and make another", None)


def _result(failure, result):
    if failure is not None:
        raise failure
    return result


class _Input:
    """Elements of a tensor to be read: as bytes, or of a data type."""

    def __init__(self, tensor, data_type=None):
        self.tensor = _on_cpu(tensor).detach().contiguous()
        self.address = _address(self.tensor)
        self.data_type = _BYTES if data_type is None else data_type
        self.count = _size(self.tensor) if data_type is None else self.tensor.numel()


class _Output:
    """Elements of a tensor to be written; one whose elements are not next to one another is written at the end."""

    def __init__(self, tensor, data_type=None):
        self._original = _on_cpu(tensor).detach()
        self._own = self._original.contiguous()
        self.address = _address(self._own)
        self.data_type = _BYTES if data_type is None else data_type
        self.count = _size(self._own) if data_type is None else self._own.numel()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None and self._own.data_ptr() != self._original.data_ptr():
            self._original.copy_(self._own)


def _on_cpu(tensor):
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise NotImplementedError(f"the back end orinoco has dense CPU tensors only, not {tensor.layout} on {tensor.device}")
    return tensor


def _address(tensor):
    return ffi.cast("void *", tensor.data_ptr())


def _size(tensor):
    return tensor.numel() * tensor.element_size()


def _copies(lists):
    return [list(tensors) for tensors in lists]


def _concatenated(tensors):
    """The bytes of tensors, one after the other."""
    return torch.cat([_on_cpu(tensor).detach().contiguous().view(-1).view(torch.uint8) for tensor in tensors])


def _distribute(data, tensors):
    """Copies bytes to tensors, one after the other."""
    start = 0
    for tensor in tensors:
        end = start + _size(tensor)
        # A copy is aligned for every type.
        tensor.detach().copy_(data[start:end].clone().view(tensor.dtype).view(tensor.shape))
        start = end


def _split_bytes(operation, name, tensor, sizes, ranks):
    """Bytes of the blocks of a tensor that is split along its first dimension."""
    if not tensor.dim():
        raise ValueError(f"{operation}: {name} has no dimension along which it can be split; expected at least one")
    rows = tensor.shape[0]
    if not sizes:
        if rows % ranks:
            raise ValueError(f"{operation}: the first dimension of {name} is {rows}; expected a multiple of {ranks}, or a list of split sizes")
        sizes = [rows // ranks] * ranks
    if len(sizes) != ranks or sum(sizes) != rows or min(sizes) < 0:
        raise ValueError(f"{operation}: the split sizes of {name} are {list(sizes)}; expected {ranks}, one for each rank, with the sum {rows}")
    row = _size(tensor) // rows if rows else 0
    return [size * row for size in sizes]


def _check_length(operation, name, tensors, expected, why):
    if len(tensors) != expected:
        raise ValueError(f"{operation}: the {name} has the length {len(tensors)}; expected {expected}, {why}")


def _check_count(operation, name, tensor, expected, why):
    if tensor.numel() != expected:
        raise ValueError(f"{operation}: {name} has {_elements(tensor.numel())}; expected {expected}, {why}")


def _check_data_type(operation, name, tensor, like, other):
    if tensor.dtype != like.dtype:
        raise TypeError(f"{operation}: {name} has elements of {tensor.dtype}, and {other} of {like.dtype}; expected the same data type")


def _elements(count):
    return "1 element" if count == 1 else f"{count} elements"


def _reducible(tensor):
    data_type = _DATA_TYPES.get(tensor.dtype)
    if data_type is None:
        raise TypeError(f"the back end orinoco cannot reduce {tensor.dtype}")
    return data_type


def _reduction(op):
    for known, number in _REDUCTIONS.items():
        if op == known:
            return number
    raise NotImplementedError(f"the back end orinoco has no reduction {op}: use SUM, PRODUCT, MIN, MAX or AVG")


def _hosts(store, rank, ranks, master):
    """Where each rank runs: ranks with the same "memory" share /dev/shm, those with the same "network" reach one another at 127.0.0.1.
    "address" is the rank's IP address for the others, or empty if it is not known."""
    own = {"memory": _memory(), "network": _network(), "address": _address_in_group(master)}
    store.set(f"orinoco/host/{rank}", json.dumps(own))
    return [json.loads(store.get(f"orinoco/host/{other}")) for other in range(ranks)]


def _boot():
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


# Containers of one machine have a /dev/shm each, and often a network namespace.
def _memory():
    return f"{_boot()}/{os.stat('/dev/shm').st_dev}"


def _network():
    return f"{_boot()}/{os.stat('/proc/self/ns/net').st_ino}"


def _master(store):
    """The address of the process with the store, as this rank names it."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return getattr(store, "host", None) or os.environ.get("MASTER_ADDR") or "127.0.0.1"


def _address_in_group(master):
    """The IP address at which other machines reach this one: that of ORINOCO_ADDRESS, or the one from which this machine reaches the master."""
    named = os.environ.get("ORINOCO_ADDRESS")
    if not named:
        # On the master's machine, the master's name is often one of loopback: as in /etc/hosts of Debian, which has 127.0.1.1 for the host's name.
        return _source_address(master) or ""
    try:
        is_usable = not ipaddress.ip_address(named).is_loopback
        _reserve_port(named).close()
    except (ValueError, OSError):
        is_usable = False
    if not is_usable:
        raise ValueError(f"ORINOCO_ADDRESS is {named!r}, expected an IP address of this machine that other machines can reach")
    return named


def _source_address(target):
    """The IP address from which this machine reaches another, or None if it is not one that other machines can reach."""
    try:
        candidates = socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    for family, kind, protocol, _, address in candidates:
        with socket.socket(family, kind, protocol) as probe:
            try:
                # Nothing is sent: the system only chooses the address.
                probe.connect(address)
            except OSError:
                continue
            source = ipaddress.ip_address(probe.getsockname()[0].partition("%")[0])
        # A link-local address of IPv6 means nothing without the name of an interface.
        if not source.is_loopback and not (source.version == 6 and source.is_link_local):
            return str(source)
    return None


def _reserve_port(address):
    """A socket that keeps a port of this address from other programs until this rank listens there.

    Two sockets with SO_REUSEADDR, as the library's is, may have one port while only one of them listens. The system gives the port to nobody
    who asks for any port, nor to a connection."""
    reserved = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((address, 0))
    except OSError:
        reserved.close()
        raise
    return reserved


def _endpoint(bound):
    """The IP:PORT of a socket."""
    address, port = bound.getsockname()[:2]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _create(store, rank, ranks, timeout):
    return ProcessGroupOrinoco(store, rank, ranks, timeout)


dist.Backend.register_backend("orinoco", _create, devices=["cpu"])

__all__ = ["OrinocoError", "ProcessGroupOrinoco"]
