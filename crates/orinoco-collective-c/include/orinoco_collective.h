/* Collective operations (all-reduce, broadcast, all-gather and the like) for small groups of boards.
 *
 * Every function returns a status; `orinoco_last_error` has the message of the last failure on this thread. Results, errors and
 * deadlines are those of the Rust crate `orinoco-collective`. Made by cbindgen: do not edit. */

#ifndef ORINOCO_COLLECTIVE_H
#define ORINOCO_COLLECTIVE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/*
 Data type: IEEE 754 single precision.
 */
#define ORINOCO_F32 0

/*
 Data type: IEEE 754 double precision.
 */
#define ORINOCO_F64 1

/*
 Data type: IEEE 754 half precision.
 */
#define ORINOCO_F16 2

/*
 Data type: the upper half of a single precision number.
 */
#define ORINOCO_BF16 3

/*
 Data type: 8-bit signed integer.
 */
#define ORINOCO_I8 4

/*
 Data type: 8-bit unsigned integer.
 */
#define ORINOCO_U8 5

/*
 Data type: 32-bit signed integer.
 */
#define ORINOCO_I32 6

/*
 Data type: 32-bit unsigned integer.
 */
#define ORINOCO_U32 7

/*
 Data type: 64-bit signed integer.
 */
#define ORINOCO_I64 8

/*
 Data type: 64-bit unsigned integer.
 */
#define ORINOCO_U64 9

/*
 Reduction: sum.
 */
#define ORINOCO_SUM 0

/*
 Reduction: product.
 */
#define ORINOCO_PRODUCT 1

/*
 Reduction: minimum.
 */
#define ORINOCO_MIN 2

/*
 Reduction: maximum.
 */
#define ORINOCO_MAX 3

/*
 Reduction: sum, divided by the number of ranks. Integers are rounded towards zero.
 */
#define ORINOCO_AVERAGE 4

/*
 Color of a rank that takes no part in a split.
 */
#define ORINOCO_NO_COLOR -1

/*
 Format of a flight record or an explanation: a table for people.
 */
#define ORINOCO_TEXT 0

/*
 Format of a flight record or an explanation: one JSON object.
 */
#define ORINOCO_JSON 1

/*
 Operation: `orinoco_barrier`.
 */
#define ORINOCO_BARRIER 0

/*
 Operation: `orinoco_broadcast`.
 */
#define ORINOCO_BROADCAST 1

/*
 Operation: `orinoco_reduce`.
 */
#define ORINOCO_REDUCE 2

/*
 Operation: `orinoco_all_reduce`.
 */
#define ORINOCO_ALL_REDUCE 3

/*
 Operation: `orinoco_all_gather`.
 */
#define ORINOCO_ALL_GATHER 4

/*
 Operation: `orinoco_reduce_scatter`.
 */
#define ORINOCO_REDUCE_SCATTER 5

/*
 Operation: `orinoco_scatter`.
 */
#define ORINOCO_SCATTER 6

/*
 Operation: `orinoco_gather`.
 */
#define ORINOCO_GATHER 7

/*
 Operation: `orinoco_all_to_all`.
 */
#define ORINOCO_ALL_TO_ALL 8

/*
 Algorithm: each rank sends all it has to every rank that needs it, at once. The fastest one for short vectors.
 */
#define ORINOCO_DIRECT 1

/*
 Algorithm: a direct reduce-scatter, then a direct all-gather.
 */
#define ORINOCO_TWO_SHOT 2

/*
 Algorithm: each rank passes blocks to the next one.
 */
#define ORINOCO_RING 3

/*
 Algorithm: partners at distance 1, 2, 4, ... exchange all they have.
 */
#define ORINOCO_RECURSIVE_DOUBLING 4

/*
 Algorithm: partners at distance 1, 2, 4, ... exchange half of what remains, and then return the results.
 */
#define ORINOCO_HALVING_DOUBLING 5

/*
 Algorithm: a binomial tree.
 */
#define ORINOCO_BINOMIAL_TREE 6

/*
 Algorithm: two binary trees, each with half of the vector.
 */
#define ORINOCO_DOUBLE_BINARY_TREE 7

/*
 Algorithm: from rank to rank, in pieces.
 */
#define ORINOCO_CHAIN 8

/*
 Algorithm: blocks at distance 1, 2, 4, ..., for any number of ranks.
 */
#define ORINOCO_BRUCK 9

/*
 Algorithm: one message at a time on each link.
 */
#define ORINOCO_PAIRWISE 10

/*
 Algorithm: first among the ranks of a machine, then between machines, then among the ranks of a machine.
 */
#define ORINOCO_TWO_LEVEL 11

/*
 Status of a call.
 */
enum OrinocoStatus
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   It succeeded.
   */
  ORINOCO_OK = 0,
  /*
   An argument is not valid; nothing was sent.
   */
  ORINOCO_INVALID_ARGUMENT = 1,
  /*
   The group could not be joined.
   */
  ORINOCO_JOIN_FAILED = 2,
  /*
   The ranks made different calls. The group has failed.
   */
  ORINOCO_MISMATCH = 3,
  /*
   A rank failed, and the group with it.
   */
  ORINOCO_EPOCH_FAILED = 4,
  /*
   A fault of this library; please report it.
   */
  ORINOCO_INTERNAL_ERROR = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum OrinocoStatus OrinocoStatus;
#else
typedef int32_t OrinocoStatus;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 Ranks that carry out collective operations together, as one of them. Any thread may call it; calls run one after the other.
 */
typedef struct OrinocoGroup OrinocoGroup;

/*
 An operation that runs in the background.
 */
typedef struct OrinocoWork OrinocoWork;

/*
 Settings of a group. Zero stands for the usual value. All ranks give equal ones, apart from the times.
 */
typedef struct OrinocoSettings {
  /*
   Longest wait for a rank that gives signs of life, in ms; usually 60,000.
   */
  uint64_t deadline_ms;
  /*
   Time without a sign of life after which a rank counts as dead, in ms: 10 or more; usually 500.
   */
  uint64_t silence_ms;
  /*
   Whether reductions may combine values in any order. If not, a result has the same bits for every size, algorithm and transport.
   */
  bool fast;
  /*
   Whether messages over TCP are not encrypted where ranks have a key: for networks that nobody else can reach. Ranks are authenticated all
   the same.
   */
  bool plaintext_messages;
  /*
   Whether ranks measure their links when all have joined, to choose algorithms by them, as `orinoco_tune` does. Refused over shared
   memory, which has one algorithm for each operation.
   */
  bool tune;
  /*
   Whether all ranks that are left after a failure, and that reach more than half of the ranks, return the same: all the result, or all
   an error. It adds two barriers to every operation. Refused over shared memory, which has no such agreement.
   */
  bool uniform;
  /*
   Whether `witness` is a rank.
   */
  bool has_witness;
  /*
   TCP connections for the messages between two ranks, 1 to 8; usually 1. Over other transports, it is without effect.
   */
  uint16_t tcp_connections;
  /*
   Algorithm of every operation that has it: ORINOCO_DIRECT or one of those after it. Usually each is chosen by size, or by measured times if
   the group is tuned. Without `fast`, reductions do not use one that combines values in another order. Refused over shared memory.
   */
  uint32_t algorithm;
  /*
   With `has_witness`: the rank of a uniform group with which exactly half of the ranks is enough.
   */
  size_t witness;
} OrinocoSettings;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Joins a group of ranks on one machine, over shared memory, through a file in /dev/shm that all name. Returns when all have
 joined. `settings` may be NULL. The group is to be left by `orinoco_leave`.
 */
OrinocoStatus orinoco_join_shm(const char *path, size_t rank, size_t ranks, const struct OrinocoSettings *settings, struct OrinocoGroup **group);

/*
 Joins a group of ranks on any machines, over TCP, authenticated and, by default, encrypted. Returns when all have joined.

 `rendezvous` is one of:
 - `file:PATH`, for ranks of one machine;
 - `IP:PORT`, the address of rank 0;
 - `IP:PORT,IP:PORT,...`, the addresses of all ranks, in order;
 - `shared:GROUP@SOCKET,IP:PORT,IP:PORT,...`, to use the ports of the daemons. GROUP is the name of the group, SOCKET this board's
   `program_socket`, and each IP:PORT the daemon of one rank's board, in the order of ranks.

 `key_file` is a file with the key of the group, which `orinoco_make_key` makes. It may be NULL with `file:PATH`, where rank 0 makes
 a key. `settings` may be NULL. The group is to be left by `orinoco_leave`.
 */
OrinocoStatus orinoco_join_tcp(const char *rendezvous, const char *key_file, size_t rank, size_t ranks, const struct OrinocoSettings *settings, struct OrinocoGroup **group);

/*
 Joins a group of ranks on one machine, over TCP, without authentication and encryption. Otherwise as `orinoco_join_tcp`.
 */
OrinocoStatus orinoco_join_tcp_plaintext(const char *rendezvous, size_t rank, size_t ranks, const struct OrinocoSettings *settings, struct OrinocoGroup **group);

/*
 Joins a group of ranks over RDMA (RoCE v2). They join over TCP, with `rendezvous` and `key_file` as for `orinoco_join_tcp`, and are
 authenticated; after that, vectors are neither encrypted nor authenticated. Needs libibverbs and an RDMA device on every rank's machine.
 The error says what is missing.

 `device` is the name of the RDMA device, as `rdma link` lists it. With NULL, it is the one that has this rank's addresses of the TCP
 connections. `settings` may be NULL. The group is to be left by `orinoco_leave`. It cannot be split or shrunk.
 */
OrinocoStatus orinoco_join_rdma(const char *rendezvous, const char *key_file, const char *device, size_t rank, size_t ranks, const struct OrinocoSettings *settings, struct OrinocoGroup **group);

/*
 Joins a group of ranks through memory that all can map, at `path`: a PCI BAR that boards share
 (`/sys/bus/pci/devices/0000:01:00.0/resource2`, or `resource2_wc`, which combines writes), or a file. One that does not exist is made by
 rank 0, and removed when all have joined. One group at a time can use the memory. Ranks are authenticated when they join; after
 that, messages are not encrypted.

 `key_file` is a file with the key of the group, which `orinoco_make_key` makes. It may be NULL with an ordinary file: then ranks are not
 authenticated. `settings` may be NULL. The group is to be left by `orinoco_leave`. It cannot be split or shrunk.
 */
OrinocoStatus orinoco_join_pcie(const char *path, const char *key_file, size_t rank, size_t ranks, const struct OrinocoSettings *settings, struct OrinocoGroup **group);

/*
 Makes a key for a group, in a new file that only this user can read. Every rank needs a copy of it.
 */
OrinocoStatus orinoco_make_key(const char *key_file);

/*
 Makes groups of a group's ranks, as MPI_Comm_split does. Ranks that name the same color, from 0 to 2^32 - 1, form one, in the order
 of their keys and then of their ranks. A rank with the color ORINOCO_NO_COLOR belongs to none, and gets NULL. All ranks must call
 it. The new group is independent, and to be left by `orinoco_leave`. Making it takes about as long as joining: make it
 once, and use it again and again. Groups over RDMA and PCIe cannot be split.
 */
OrinocoStatus orinoco_split(const struct OrinocoGroup *group, int64_t color, int32_t key, struct OrinocoGroup **part);

/*
 Makes a group of the ranks that are left after a failure, as ncclCommShrink does, in the order of their ranks in `group`. All ranks
 that are left must call it, usually after an operation has failed. Ranks that have ended or left, give no signs of life or were too
 late for an operation are left out. All ranks that are left get the same group, or an error. A group is shrunk once; after that,
 leave it by `orinoco_leave`. The new group is independent, has the settings of the old one, and is to be left by itself. Groups over
 RDMA and PCIe cannot be shrunk.

 ORINOCO_JOIN_FAILED: not all ranks that give signs of life called it before the deadline of the settings, or they could not connect;
 it can be called again then. It cannot be called again if the other ranks go on without this one, or if it has returned a group.
 */
OrinocoStatus orinoco_shrink(const struct OrinocoGroup *group, struct OrinocoGroup **smaller);

/*
 Leaves a group, after all operations that were started have ended. `group` is not valid after that. NULL is ignored.
 */
OrinocoStatus orinoco_leave(struct OrinocoGroup *group);

/*
 This rank's number; 0 for NULL.
 */
size_t orinoco_rank(const struct OrinocoGroup *group);

/*
 Number of ranks; 0 for NULL.
 */
size_t orinoco_ranks(const struct OrinocoGroup *group);

/*
 Message of the last failure on this thread. It is valid until the next failure on this thread, and empty if there was none.
 */
const char *orinoco_last_error(void);

/*
 The rank that the last failure on this thread names, or -1 if it names none.
 */
int32_t orinoco_last_error_rank(void);

/*
 Measures the links of a group, its copies and its reductions, and chooses algorithms by them from now on. All ranks must call it. It
 takes some tenths of a second. Results have the same bits as before, unless the group is `fast`. Groups of more than 16 ranks keep
 their choices by size, and ORINOCO_OK is returned. A group over shared memory has one algorithm for each operation:
 ORINOCO_INVALID_ARGUMENT.
 */
OrinocoStatus orinoco_tune(const struct OrinocoGroup *group);

/*
 Writes the flight record of this rank to `buffer`, of `capacity` bytes, as a string that ends with a null character: the last 64
 operations, how long each waited, for which rank longest, and the waits for each rank. After a failure, the last operation is the
 one that failed, and the rank it waited for longest is the late one.

 `length` receives the bytes of the whole string, without the null character. If that is not less than `capacity`, the string in the
 buffer is cut off: call again with a larger buffer. With a capacity of 0, `buffer` may be NULL. The function does not wait for other
 ranks, but for the operations of this one that were started in the background.

 `format` is ORINOCO_TEXT or ORINOCO_JSON. The object has the keys `rank`, `operations` (oldest first), `waits` (one entry for each
 rank) and `failure` (the message of the first failure, or null). An operation has `number`, `call`, `state` ("done", "failed" or
 "under way"), `began_ms` and `ended_ms` since the group was joined, `waited_ms`, and `longest`: null, or an object with `rank` and
 `waited_ms`. A wait has `count`, `waited_ms` and `longest_ms`.
 */
OrinocoStatus orinoco_recent(const struct OrinocoGroup *group, uint32_t format, char *buffer, size_t capacity, size_t *length);

/*
 Writes the reasons for the choice of an operation's algorithm in a group that is tuned (by `orinoco_tune`, or the setting `tune`), as
 `orinoco_recent` writes a flight record: the algorithm that is used, the predicted times of all that could be, the least time that
 the links allow, and the times of the calls so far at this rank.

 `operation` is ORINOCO_BARRIER or one of those after it. `count` is the number of elements as in the function of that operation, and `root`
 its root; both are without effect where the function has none. The functions with a count for each rank are explained if all counts
 are equal. The largest vector of a rank has at most 64 GiB. The function does not wait for other ranks.

 The object has the keys `operation`, `data_type`, `bytes` (of the largest vector), `ranks`, `algorithm` (the one that is used),
 `candidates` (the fastest one first), `bound_us` (the least time) and `measured`. A candidate has `algorithm`, `predicted_at_once_us`
 (if all ranks begin at once) and `predicted_after_barrier_us` (in a benchmark that times each call after a barrier). `measured` is
 null if there was no such call, or an object with `calls`, `last_us`, `median_us` and `bound_share` (the least time divided by the
 median).
 */
OrinocoStatus orinoco_explain(const struct OrinocoGroup *group, uint32_t operation, size_t count, uint32_t data_type, size_t root, uint32_t format, char *buffer, size_t capacity, size_t *length);

/*
 Waits until an operation that was started in the background has ended, and returns its status. `work` is not valid after that.
 */
OrinocoStatus orinoco_wait(struct OrinocoWork *work);

/*
 Whether an operation that was started in the background has ended. `orinoco_wait` is still to be called.
 */
bool orinoco_is_done(const struct OrinocoWork *work);

/*
 Returns when all ranks have called it. Here and below, `work` is NULL, and the function returns when the operation has ended; or
 else the operation runs in the background, `work` receives a handle for `orinoco_wait`, and the vectors stay lent until then.
 */
OrinocoStatus orinoco_barrier(const struct OrinocoGroup *group, struct OrinocoWork **work);

/*
 Copies the vector of `root`, of `count` elements, to all ranks.
 */
OrinocoStatus orinoco_broadcast(const struct OrinocoGroup *group, void *vector, size_t count, uint32_t data_type, size_t root, struct OrinocoWork **work);

/*
 Reduces the inputs of all ranks, of `count` elements, into the output of `root`. The output of other ranks may be NULL.
 */
OrinocoStatus orinoco_reduce(const struct OrinocoGroup *group, const void *input, void *output, size_t count, uint32_t data_type, uint32_t reduction, size_t root, struct OrinocoWork **work);

/*
 Reduces the inputs of all ranks, of `count` elements, into the output of each, which may be the input.
 */
OrinocoStatus orinoco_all_reduce(const struct OrinocoGroup *group, const void *input, void *output, size_t count, uint32_t data_type, uint32_t reduction, struct OrinocoWork **work);

/*
 Reduces several vectors of one data type, in place, as `orinoco_all_reduce` does, in fewer exchanges: short vectors that follow one
 another travel together. `vectors` has the addresses of the `number` vectors, and `counts` the elements of each. Both lists are read
 before the function returns. All ranks name vectors of the same lengths, in the same order, and no two of a rank share memory. The
 results are those of single calls, to the bit.
 */
OrinocoStatus orinoco_all_reduce_many(const struct OrinocoGroup *group, void *const *vectors, const size_t *counts, size_t number, uint32_t data_type, uint32_t reduction, struct OrinocoWork **work);

/*
 Sums the inputs of all ranks, of `count` elements, into the output of each, which may be the input, as 8-bit integers with a scale
 for each 256 elements. It sends about a quarter of the bytes of an all-reduce of ORINOCO_F32, and the result is rounded: an element
 differs from the sum by at most about 1/127 of the sum of the ranks' largest magnitudes among those 256. All ranks get the same
 bits. The data type is ORINOCO_F32, ORINOCO_F16 or ORINOCO_BF16. The Rust function `all_reduce_int8` has the exact bound.
 */
OrinocoStatus orinoco_all_reduce_int8(const struct OrinocoGroup *group, const void *input, void *output, size_t count, uint32_t data_type, struct OrinocoWork **work);

/*
 Concatenates the inputs of all ranks, of `count` elements each, in the output of each.
 */
OrinocoStatus orinoco_all_gather(const struct OrinocoGroup *group, const void *input, void *output, size_t count, uint32_t data_type, struct OrinocoWork **work);

/*
 Reduces the inputs of all ranks, which hold a block of `count` elements for each, and gives each rank its block.
 */
OrinocoStatus orinoco_reduce_scatter(const struct OrinocoGroup *group, const void *input, void *output, size_t count, uint32_t data_type, uint32_t reduction, struct OrinocoWork **work);

/*
 Sends block `i` of the input of `root`, of `count` elements, to rank `i`. The input of other ranks may be NULL.
 */
OrinocoStatus orinoco_scatter(const struct OrinocoGroup *group, const void *input, void *output, size_t count, uint32_t data_type, size_t root, struct OrinocoWork **work);

/*
 Concatenates the inputs of all ranks, of `count` elements each, in the output of `root`. The output of other ranks may be NULL.
 */
OrinocoStatus orinoco_gather(const struct OrinocoGroup *group, const void *input, void *output, size_t count, uint32_t data_type, size_t root, struct OrinocoWork **work);

/*
 Sends each rank its block of the input, of `count` elements, and receives a block from each.
 */
OrinocoStatus orinoco_all_to_all(const struct OrinocoGroup *group, const void *input, void *output, size_t count, uint32_t data_type, struct OrinocoWork **work);

/*
 Concatenates the inputs of all ranks in the output of each. `counts` has the elements of each rank's input.
 */
OrinocoStatus orinoco_all_gather_v(const struct OrinocoGroup *group, const void *input, void *output, const size_t *counts, uint32_t data_type, struct OrinocoWork **work);

/*
 Reduces the inputs of all ranks, and gives each rank its block. `counts` has the elements of each block.
 */
OrinocoStatus orinoco_reduce_scatter_v(const struct OrinocoGroup *group, const void *input, void *output, const size_t *counts, uint32_t data_type, uint32_t reduction, struct OrinocoWork **work);

/*
 Sends block `i` of the input of `root` to rank `i`. `counts` has the elements of each block. The input of other ranks may be NULL.
 */
OrinocoStatus orinoco_scatter_v(const struct OrinocoGroup *group, const void *input, void *output, const size_t *counts, uint32_t data_type, size_t root, struct OrinocoWork **work);

/*
 Concatenates the inputs of all ranks in the output of `root`. `counts` has the elements of each rank's input. The output of other
 ranks may be NULL.
 */
OrinocoStatus orinoco_gather_v(const struct OrinocoGroup *group, const void *input, void *output, const size_t *counts, uint32_t data_type, size_t root, struct OrinocoWork **work);

/*
 Sends each rank its block of the input, and receives a block from each. `send` and `receive` are this rank's: the elements of the
 block for each rank, and of the block from each.
 */
OrinocoStatus orinoco_all_to_all_v(const struct OrinocoGroup *group, const void *input, const size_t *send, void *output, const size_t *receive, uint32_t data_type, struct OrinocoWork **work);

/*
 Sends a vector of `count` elements to another rank, which calls `orinoco_recv` with as many. Two ranks make all the calls that
 concern both in the same order.
 */
OrinocoStatus orinoco_send(const struct OrinocoGroup *group, const void *vector, size_t count, uint32_t data_type, size_t to_rank, struct OrinocoWork **work);

/*
 Receives a vector that another rank sends.
 */
OrinocoStatus orinoco_recv(const struct OrinocoGroup *group, void *vector, size_t count, uint32_t data_type, size_t from_rank, struct OrinocoWork **work);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ORINOCO_COLLECTIVE_H */
