"""Collective operations (all-reduce, broadcast, all-gather and the like) for small groups of boards.

    import array, orinoco_collective as oc
    group = oc.join_shm("/dev/shm/group", rank=0, ranks=2)
    vector = array.array("f", [1, 2, 3])
    group.all_reduce(vector, "sum")

A vector is any object with the buffer protocol: a numpy array, an ``array.array``, a ``bytearray``. ``orinoco_collective.torch``
registers a back end for ``torch.distributed``.
"""

from ._group import Group, OrinocoError, join_pcie, join_rdma, join_shm, join_tcp, make_key

__all__ = ["Group", "OrinocoError", "join_pcie", "join_rdma", "join_shm", "join_tcp", "make_key"]
