/* Checks every function of the library as one rank: TRANSPORT RENDEZVOUS RANK RANKS. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "orinoco_collective.h"

#define LEN 5000
#define RANKS_MAX 4

static size_t rank, ranks;

static void fail(const char *what, int line) {
  fprintf(stderr, "line %d: %s (%s)\n", line, what, orinoco_last_error());
  exit(1);
}

#define MUST(call) ((call) == ORINOCO_OK ? (void)0 : fail(#call, __LINE__))
#define CHECK(condition) ((condition) ? (void)0 : fail(#condition, __LINE__))

static bool is(const char *text, const char *other) { return strcmp(text, other) == 0; }

static OrinocoGroup *join(const char *transport, const char *rendezvous) {
  OrinocoGroup *group = NULL;
  OrinocoSettings settings = {.deadline_ms = 20000, .silence_ms = 5000, .fast = false};
  if (is(transport, "tcp-settings")) {
    settings.tune = settings.uniform = settings.has_witness = true;
    settings.tcp_connections = 2;
    settings.algorithm = ORINOCO_HALVING_DOUBLING;
  }
  char key_file[4096];
  snprintf(key_file, sizeof key_file, "%s.key", rendezvous);
  if (is(transport, "shm"))
    MUST(orinoco_join_shm(rendezvous, rank, ranks, &settings, &group));
  else if (is(transport, "pcie"))
    MUST(orinoco_join_pcie(rendezvous, NULL, rank, ranks, &settings, &group));
  else if (is(transport, "pcie-key"))
    MUST(orinoco_join_pcie(rendezvous, key_file, rank, ranks, &settings, &group));
  else if (is(transport, "tcp-plaintext"))
    MUST(orinoco_join_tcp_plaintext(rendezvous, rank, ranks, &settings, &group));
  else
    MUST(orinoco_join_tcp(rendezvous, NULL, rank, ranks, &settings, &group));
  return group;
}

static double value(size_t rank, size_t i) { return (double)(rank * 100000 + i); }

static double input[RANKS_MAX * LEN], output[RANKS_MAX * LEN];

static void fill(size_t len) {
  for (size_t i = 0; i < len; i++) input[i] = value(rank, i);
  memset(output, 0, sizeof output);
}

static double total(size_t i) {
  double sum = 0;
  for (size_t r = 0; r < ranks; r++) sum += value(r, i);
  return sum;
}

static void check_uniform(OrinocoGroup *group) {
  size_t last = ranks - 1;
  fill(LEN);
  MUST(orinoco_all_reduce(group, input, output, LEN, ORINOCO_F64, ORINOCO_SUM, NULL));
  for (size_t i = 0; i < LEN; i++) CHECK(output[i] == total(i));
  MUST(orinoco_all_reduce(group, input, input, LEN, ORINOCO_F64, ORINOCO_AVERAGE, NULL));
  for (size_t i = 0; i < LEN; i++) CHECK(input[i] == total(i) / (double)ranks);
  fill(LEN);
  MUST(orinoco_reduce(group, input, rank == last ? output : NULL, LEN, ORINOCO_F64, ORINOCO_SUM, last, NULL));
  for (size_t i = 0; i < LEN && rank == last; i++) CHECK(output[i] == total(i));
  MUST(orinoco_broadcast(group, input, LEN, ORINOCO_F64, last, NULL));
  for (size_t i = 0; i < LEN; i++) CHECK(input[i] == value(last, i));
  fill(LEN);
  MUST(orinoco_all_gather(group, input, output, LEN, ORINOCO_F64, NULL));
  for (size_t i = 0; i < ranks * LEN; i++) CHECK(output[i] == value(i / LEN, i % LEN));
  /* In place, as FSDP does: the input is this rank's block of the output. */
  memset(output, 0, sizeof output);
  memcpy(output + rank * LEN, input, LEN * sizeof *input);
  MUST(orinoco_all_gather(group, output + rank * LEN, output, LEN, ORINOCO_F64, NULL));
  for (size_t i = 0; i < ranks * LEN; i++) CHECK(output[i] == value(i / LEN, i % LEN));
  fill(ranks * LEN);
  MUST(orinoco_reduce_scatter(group, input, output, LEN, ORINOCO_F64, ORINOCO_SUM, NULL));
  for (size_t i = 0; i < LEN; i++) CHECK(output[i] == total(rank * LEN + i));
  MUST(orinoco_all_to_all(group, input, output, LEN, ORINOCO_F64, NULL));
  for (size_t i = 0; i < ranks * LEN; i++) CHECK(output[i] == value(i / LEN, rank * LEN + i % LEN));
  MUST(orinoco_scatter(group, rank == 0 ? input : NULL, output, LEN, ORINOCO_F64, 0, NULL));
  for (size_t i = 0; i < LEN; i++) CHECK(output[i] == value(0, rank * LEN + i));
  MUST(orinoco_gather(group, input, rank == 0 ? output : NULL, LEN, ORINOCO_F64, 0, NULL));
  for (size_t i = 0; i < ranks * LEN && rank == 0; i++) CHECK(output[i] == value(i / LEN, i % LEN));
  MUST(orinoco_barrier(group, NULL));
}

static void check_uneven(OrinocoGroup *group) {
  size_t counts[RANKS_MAX], send[RANKS_MAX], receive[RANKS_MAX], before = 0, all = 0;
  for (size_t r = 0; r < ranks; r++) {
    counts[r] = 100 * (r + 1);
    send[r] = 10 * rank + r;
    receive[r] = 10 * r + rank;
    before += r < rank ? counts[r] : 0;
    all += counts[r];
  }
  fill(LEN);
  MUST(orinoco_all_gather_v(group, input, output, counts, ORINOCO_F64, NULL));
  size_t at = 0;
  for (size_t r = 0; r < ranks; r++)
    for (size_t i = 0; i < counts[r]; i++) CHECK(output[at++] == value(r, i));
  memset(output, 0, sizeof output);
  MUST(orinoco_gather_v(group, input, output, counts, ORINOCO_F64, 0, NULL));
  CHECK(output[all - 1] == (rank == 0 ? value(ranks - 1, counts[ranks - 1] - 1) : 0.0));
  MUST(orinoco_scatter_v(group, input, output, counts, ORINOCO_F64, 0, NULL));
  CHECK(output[0] == value(0, before));
  MUST(orinoco_reduce_scatter_v(group, input, output, counts, ORINOCO_F64, ORINOCO_SUM, NULL));
  CHECK(output[0] == total(before));
  MUST(orinoco_all_to_all_v(group, input, send, output, receive, ORINOCO_F64, NULL));
  at = 0;
  for (size_t r = 0; r < ranks; r++) {
    size_t start = 0;
    for (size_t to = 0; to < rank; to++) start += 10 * r + to;
    for (size_t i = 0; i < receive[r]; i++) CHECK(output[at++] == value(r, start + i));
  }
}

static void check_messages_and_background(OrinocoGroup *group) {
  fill(LEN);
  OrinocoWork *work[3] = {NULL, NULL, NULL};
  if (ranks > 1 && rank == 0) MUST(orinoco_send(group, input, LEN, ORINOCO_F64, 1, NULL));
  if (ranks > 1 && rank == 1) {
    MUST(orinoco_recv(group, output, LEN, ORINOCO_F64, 0, NULL));
    for (size_t i = 0; i < LEN; i++) CHECK(output[i] == value(0, i));
  }
  static int32_t counts[3][100];
  for (int w = 0; w < 3; w++) {
    for (int i = 0; i < 100; i++) counts[w][i] = w;
    MUST(orinoco_all_reduce(group, counts[w], counts[w], 100, ORINOCO_I32, ORINOCO_SUM, &work[w]));
  }
  for (int w = 0; w < 3; w++) {
    MUST(orinoco_wait(work[w]));
    CHECK(counts[w][99] == w * (int32_t)ranks);
  }
  /* From now on all operations run in the background, and stay in order. */
  MUST(orinoco_barrier(group, NULL));
}

/* Several vectors at once have the bits of single calls: short ones, an empty one, and one that is too long to travel with others. */
static void check_many(OrinocoGroup *group) {
  static float single[40000], several[40000];
  const size_t counts[] = {1, 300, 0, 2000, 30000, 7};
  void *vectors[6];
  size_t at = 0;
  for (size_t i = 0; i < 40000; i++) single[i] = several[i] = 0.1f * (float)(i % 1000) + (float)rank;
  for (int v = 0; v < 6; v++) {
    vectors[v] = several + at;
    MUST(orinoco_all_reduce(group, single + at, single + at, counts[v], ORINOCO_F32, ORINOCO_SUM, NULL));
    at += counts[v];
  }
  MUST(orinoco_all_reduce_many(group, vectors, counts, 6, ORINOCO_F32, ORINOCO_SUM, NULL));
  CHECK(memcmp(single, several, sizeof single) == 0);
  OrinocoWork *work = NULL;
  MUST(orinoco_all_reduce_many(group, vectors, counts, 6, ORINOCO_F32, ORINOCO_MAX, &work));
  MUST(orinoco_wait(work));
  CHECK(memcmp(single, several, sizeof single) == 0);
  MUST(orinoco_all_reduce_many(group, NULL, NULL, 0, ORINOCO_F32, ORINOCO_SUM, NULL));
  CHECK(orinoco_all_reduce_many(group, NULL, counts, 1, ORINOCO_F32, ORINOCO_SUM, NULL) == ORINOCO_INVALID_ARGUMENT);
  CHECK(orinoco_all_reduce_many(group, vectors, NULL, 1, ORINOCO_F32, ORINOCO_SUM, NULL) == ORINOCO_INVALID_ARGUMENT);
  vectors[3] = several + 300;
  CHECK(orinoco_all_reduce_many(group, vectors, counts, 6, ORINOCO_F32, ORINOCO_SUM, NULL) == ORINOCO_INVALID_ARGUMENT);
  CHECK(strcmp(orinoco_last_error(), "vectors 1 and 3 share memory") == 0);
}

static void check_int8(OrinocoGroup *group) {
  static float vector[1000], sums[1000];
  for (int i = 0; i < 1000; i++) vector[i] = (float)(i % 255 - 127) + (float)rank;
  MUST(orinoco_all_reduce_int8(group, vector, sums, 1000, ORINOCO_F32, NULL));
  /* The bound of the documentation: each rank has magnitudes of up to 127 and its number. */
  float bound = (127.0f * (float)ranks + (float)(ranks * (ranks - 1) / 2)) / 127.0f * 1.001f;
  for (int i = 0; i < 1000; i++) {
    float error = sums[i] - ((float)ranks * (float)(i % 255 - 127) + (float)(ranks * (ranks - 1) / 2));
    CHECK(error <= bound && -error <= bound);
    CHECK(vector[i] == (float)(i % 255 - 127) + (float)rank);
  }
  MUST(orinoco_all_reduce_int8(group, vector, vector, 1000, ORINOCO_F32, NULL));
  CHECK(memcmp(vector, sums, sizeof sums) == 0);
  static int32_t integers[1];
  CHECK(orinoco_all_reduce_int8(group, integers, integers, 1, ORINOCO_I32, NULL) == ORINOCO_INVALID_ARGUMENT);
}

/* Before and after operations in the background: a group is split on the caller's thread, or on that of its queue. */
static void check_split(OrinocoGroup *group) {
  OrinocoGroup *part = NULL;
  MUST(orinoco_split(group, rank == 0 ? ORINOCO_NO_COLOR : 7, -(int32_t)rank, &part));
  CHECK((part == NULL) == (rank == 0));
  if (part != NULL) {
    CHECK(orinoco_ranks(part) == ranks - 1 && orinoco_rank(part) == ranks - 1 - rank);
    uint32_t sum = (uint32_t)rank;
    MUST(orinoco_all_reduce(part, &sum, &sum, 1, ORINOCO_U32, ORINOCO_SUM, NULL));
    CHECK(sum == ranks * (ranks - 1) / 2);
  }
  MUST(orinoco_leave(part));
  MUST(orinoco_barrier(group, NULL));
  CHECK(orinoco_split(group, -2, 0, &part) == ORINOCO_INVALID_ARGUMENT);
  CHECK(orinoco_split(group, 0, 0, NULL) == ORINOCO_INVALID_ARGUMENT);
}

/* There are neither smaller groups over PCIe nor groups of their parts. */
static void check_no_parts(OrinocoGroup *group) {
  OrinocoGroup *part = NULL;
  CHECK(orinoco_split(group, 0, 0, &part) == ORINOCO_INVALID_ARGUMENT);
  CHECK(strstr(orinoco_last_error(), "a group over PCIe cannot be split") != NULL);
  CHECK(orinoco_shrink(group, &part) == ORINOCO_INVALID_ARGUMENT);
  CHECK(strstr(orinoco_last_error(), "a group over PCIe cannot be shrunk") != NULL);
  CHECK(part == NULL);
}

/* The last rank leaves, and the others go on without it: once on the caller's thread, once on that of the queue. */
static void check_shrink(OrinocoGroup *group) {
  OrinocoGroup *part = NULL, *smaller = NULL;
  CHECK(orinoco_shrink(NULL, &smaller) == ORINOCO_INVALID_ARGUMENT);
  CHECK(orinoco_shrink(group, NULL) == ORINOCO_INVALID_ARGUMENT);
  MUST(orinoco_split(group, 0, 0, &part));
  if (ranks > 1 && rank == ranks - 1) {
    MUST(orinoco_leave(part));
    MUST(orinoco_barrier(group, NULL));
    return;
  }
  uint32_t sum = (uint32_t)rank;
  OrinocoStatus status = orinoco_all_reduce(part, &sum, &sum, 1, ORINOCO_U32, ORINOCO_SUM, NULL);
  CHECK(status == (ranks > 1 ? ORINOCO_EPOCH_FAILED : ORINOCO_OK));
  MUST(orinoco_shrink(part, &smaller));
  CHECK(orinoco_shrink(part, &smaller) == ORINOCO_JOIN_FAILED);
  MUST(orinoco_leave(part));
  size_t left = ranks > 1 ? ranks - 1 : 1;
  CHECK(orinoco_ranks(smaller) == left && orinoco_rank(smaller) == rank);
  sum = (uint32_t)rank;
  MUST(orinoco_all_reduce(smaller, &sum, &sum, 1, ORINOCO_U32, ORINOCO_SUM, NULL));
  CHECK(sum == left * (left - 1) / 2);
  MUST(orinoco_leave(smaller));
  MUST(orinoco_barrier(group, NULL));
}

static char record[1 << 16];

/* Whether the flight record has a text. */
static bool has_recorded(OrinocoGroup *group, uint32_t format, const char *text) {
  size_t length = 0;
  MUST(orinoco_recent(group, format, record, sizeof record, &length));
  CHECK(length < sizeof record && strlen(record) == length);
  return strstr(record, text) != NULL;
}

static void check_record(OrinocoGroup *group) {
  size_t whole = 0, length = 0;
  MUST(orinoco_barrier(group, NULL));
  CHECK(has_recorded(group, ORINOCO_TEXT, "Last operations of rank "));
  CHECK(has_recorded(group, ORINOCO_JSON, "\"failure\":null") && has_recorded(group, ORINOCO_JSON, "\"call\":\"barrier\""));
  CHECK(!has_recorded(group, ORINOCO_JSON, "\"failed\""));
  MUST(orinoco_recent(group, ORINOCO_TEXT, NULL, 0, &whole));
  memset(record, 'x', 12);
  MUST(orinoco_recent(group, ORINOCO_TEXT, record, 10, &length));
  CHECK(length == whole && strcmp(record, "Last oper") == 0 && record[10] == 'x');
  CHECK(orinoco_recent(group, ORINOCO_TEXT, NULL, 1, &length) == ORINOCO_INVALID_ARGUMENT);
  CHECK(orinoco_recent(group, ORINOCO_TEXT, record, 1, NULL) == ORINOCO_INVALID_ARGUMENT);
  CHECK(orinoco_recent(group, 2, record, 1, &length) == ORINOCO_INVALID_ARGUMENT);
  CHECK(orinoco_recent(NULL, ORINOCO_TEXT, record, 1, &length) == ORINOCO_INVALID_ARGUMENT);
}

/* Explains an all-reduce of LEN elements, and returns whether the explanation has a text. */
static bool has_explained(OrinocoGroup *group, uint32_t format, const char *text) {
  size_t length = 0;
  MUST(orinoco_explain(group, ORINOCO_ALL_REDUCE, LEN, ORINOCO_F64, 0, format, record, sizeof record, &length));
  CHECK(length < sizeof record && strlen(record) == length);
  return strstr(record, text) != NULL;
}

static OrinocoStatus explain(OrinocoGroup *group, uint32_t operation, size_t count, uint32_t data_type, size_t root) {
  size_t length = 0;
  return orinoco_explain(group, operation, count, data_type, root, ORINOCO_JSON, record, sizeof record, &length);
}

static void check_explanation(OrinocoGroup *group, const char *transport) {
  size_t whole = 0, length = 0;
  if (is(transport, "shm")) {
    CHECK(orinoco_tune(group) == ORINOCO_INVALID_ARGUMENT);
    CHECK(strstr(orinoco_last_error(), "one algorithm for each operation") != NULL);
    CHECK(explain(group, ORINOCO_ALL_REDUCE, LEN, ORINOCO_F64, 0) == ORINOCO_INVALID_ARGUMENT);
    CHECK(strstr(orinoco_last_error(), "one algorithm for each operation") != NULL);
    return;
  }
  if (is(transport, "tcp-settings")) {
    CHECK(has_explained(group, ORINOCO_JSON, "\"candidates\":[{\"algorithm\":"));
    /* Its ranks gave an algorithm, which they use where they have a choice. */
    CHECK(ranks == 1 || has_explained(group, ORINOCO_JSON, "{\"algorithm\":\"halving-doubling\""));
  } else {
    CHECK(explain(group, ORINOCO_ALL_REDUCE, LEN, ORINOCO_F64, 0) == ORINOCO_INVALID_ARGUMENT);
    CHECK(strstr(orinoco_last_error(), "the group is not tuned") != NULL);
  }
  MUST(orinoco_tune(group));
  fill(LEN);
  CHECK(has_explained(group, ORINOCO_JSON, "\"bytes\":40000") && has_explained(group, ORINOCO_JSON, "\"measured\":null"));
  MUST(orinoco_all_reduce(group, input, output, LEN, ORINOCO_F64, ORINOCO_SUM, NULL));
  MUST(orinoco_all_reduce(group, input, output, LEN, ORINOCO_F64, ORINOCO_SUM, NULL));
  for (size_t i = 0; i < LEN; i++) CHECK(output[i] == total(i));
  CHECK(has_explained(group, ORINOCO_JSON, "\"operation\":\"all_reduce\"") && has_explained(group, ORINOCO_JSON, "\"calls\":2,"));
  CHECK(has_explained(group, ORINOCO_TEXT, "all_reduce of f64, 40000 bytes, ") && has_explained(group, ORINOCO_TEXT, "measured (2 calls)"));
  MUST(orinoco_explain(group, ORINOCO_ALL_REDUCE, LEN, ORINOCO_F64, 0, ORINOCO_TEXT, NULL, 0, &whole));
  memset(record, 'x', 12);
  MUST(orinoco_explain(group, ORINOCO_ALL_REDUCE, LEN, ORINOCO_F64, 0, ORINOCO_TEXT, record, 11, &length));
  CHECK(length == whole && strcmp(record, "all_reduce") == 0 && record[11] == 'x');
  const char *names[] = {"barrier", "broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter", "scatter", "gather", "all_to_all"};
  for (uint32_t operation = ORINOCO_BARRIER; operation <= ORINOCO_ALL_TO_ALL; operation++) {
    char expected[64], bytes[64];
    MUST(explain(group, operation, 100, ORINOCO_F16, ranks - 1));
    snprintf(expected, sizeof expected, "\"operation\":\"%s\"", names[operation]);
    size_t blocks = operation >= ORINOCO_ALL_GATHER ? ranks : 1;
    snprintf(bytes, sizeof bytes, "\"bytes\":%zu,", operation == ORINOCO_BARRIER ? 0 : blocks * 200);
    CHECK(strstr(record, expected) != NULL && strstr(record, bytes) != NULL);
  }
  CHECK(explain(NULL, ORINOCO_ALL_REDUCE, 1, ORINOCO_F64, 0) == ORINOCO_INVALID_ARGUMENT);
  CHECK(explain(group, ORINOCO_ALL_TO_ALL + 1, 1, ORINOCO_F64, 0) == ORINOCO_INVALID_ARGUMENT);
  CHECK(explain(group, ORINOCO_ALL_REDUCE, 1, 99, 0) == ORINOCO_INVALID_ARGUMENT);
  CHECK(explain(group, ORINOCO_BROADCAST, 1, ORINOCO_F64, ranks) == ORINOCO_INVALID_ARGUMENT);
  CHECK(explain(group, ORINOCO_ALL_GATHER, SIZE_MAX, ORINOCO_F64, 0) == ORINOCO_INVALID_ARGUMENT);
  CHECK(explain(group, ORINOCO_ALL_REDUCE, ((size_t)8 << 30) + 1, ORINOCO_F64, 0) == ORINOCO_INVALID_ARGUMENT);
  CHECK(strcmp(orinoco_last_error(), "a vector of all_reduce has more than 64 GiB, the most that can be explained") == 0);
  CHECK(orinoco_explain(group, ORINOCO_BARRIER, 0, 0, 0, 2, record, 1, &length) == ORINOCO_INVALID_ARGUMENT);
  CHECK(orinoco_explain(group, ORINOCO_BARRIER, 0, 0, 0, ORINOCO_JSON, record, 1, NULL) == ORINOCO_INVALID_ARGUMENT);
  CHECK(orinoco_tune(NULL) == ORINOCO_INVALID_ARGUMENT);
}

static void check_errors(OrinocoGroup *group) {
  CHECK(orinoco_all_reduce(NULL, input, input, 1, ORINOCO_F64, ORINOCO_SUM, NULL) == ORINOCO_INVALID_ARGUMENT);
  CHECK(strcmp(orinoco_last_error(), "the group is NULL") == 0);
  CHECK(orinoco_all_reduce(group, NULL, input, 1, ORINOCO_F64, ORINOCO_SUM, NULL) == ORINOCO_INVALID_ARGUMENT);
  CHECK(orinoco_all_reduce(group, input, input, 1, 99, ORINOCO_SUM, NULL) == ORINOCO_INVALID_ARGUMENT);
  CHECK(orinoco_all_reduce(group, input, input, 1, ORINOCO_F64, 99, NULL) == ORINOCO_INVALID_ARGUMENT);
  CHECK(orinoco_all_gather(group, input, output, SIZE_MAX / 2 + 2, ORINOCO_F64, NULL) == ORINOCO_INVALID_ARGUMENT);
  CHECK(orinoco_all_reduce(group, (char *)input + 1, output, 1, ORINOCO_F64, ORINOCO_SUM, NULL) ==
        ORINOCO_INVALID_ARGUMENT);
  CHECK(orinoco_broadcast(group, input, 1, ORINOCO_F64, ranks, NULL) == ORINOCO_INVALID_ARGUMENT);
  CHECK(orinoco_send(group, input, 1, ORINOCO_F64, rank, NULL) == ORINOCO_INVALID_ARGUMENT);
  CHECK(orinoco_last_error_rank() == -1);
  MUST(orinoco_barrier(group, NULL));
  if (ranks > 1) {
    OrinocoStatus status = orinoco_all_reduce(group, input, input, rank + 1, ORINOCO_F64, ORINOCO_SUM, NULL);
    CHECK(status == ORINOCO_MISMATCH || status == ORINOCO_EPOCH_FAILED);
    CHECK(orinoco_last_error_rank() >= 0);
    CHECK(has_recorded(group, ORINOCO_TEXT, "failed at ") && has_recorded(group, ORINOCO_JSON, "\"state\":\"failed\""));
  }
}

/* A rank that returns a result, leaves and ends at once, in a uniform group: the others return the result, too. */
static int end_at_once(const char *rendezvous) {
  OrinocoGroup *group = NULL;
  OrinocoSettings settings = {.deadline_ms = 20000, .silence_ms = 5000, .uniform = true};
  MUST(orinoco_join_tcp(rendezvous, NULL, rank, ranks, &settings, &group));
  uint32_t sum = 1;
  MUST(orinoco_all_reduce(group, &sum, &sum, 1, ORINOCO_U32, ORINOCO_SUM, NULL));
  CHECK(sum == ranks);
  MUST(orinoco_leave(group));
  return 0;
}

/* A uniform group of two without a witness: whoever is left alone is isolated, and makes no smaller group. */
static void check_isolated(const char *rendezvous) {
  char other[4096];
  snprintf(other, sizeof other, "%s-isolated", rendezvous);
  OrinocoGroup *group = NULL, *smaller = NULL;
  OrinocoSettings settings = {.deadline_ms = 20000, .silence_ms = 5000, .uniform = true};
  MUST(orinoco_join_tcp(other, NULL, rank, ranks, &settings, &group));
  MUST(orinoco_barrier(group, NULL));
  if (rank == 0) {
    CHECK(orinoco_barrier(group, NULL) == ORINOCO_EPOCH_FAILED);
    CHECK(orinoco_shrink(group, &smaller) == ORINOCO_JOIN_FAILED && smaller == NULL);
    CHECK(strstr(orinoco_last_error(), "not a majority") != NULL);
  }
  MUST(orinoco_leave(group));
}

/* A group of this rank alone, with settings that are not valid. */
static void refuse(OrinocoSettings settings, bool is_shm, const char *expected) {
  OrinocoGroup *group = NULL;
  OrinocoStatus status = is_shm ? orinoco_join_shm("/nonexistent/group", 0, 1, &settings, &group)
                                : orinoco_join_tcp("127.0.0.1:0", NULL, 0, 1, &settings, &group);
  CHECK(status == ORINOCO_INVALID_ARGUMENT && group == NULL);
  if (strstr(orinoco_last_error(), expected) == NULL) fail(expected, __LINE__);
}

static void check_settings(void) {
  refuse((OrinocoSettings){.algorithm = ORINOCO_TWO_LEVEL + 1}, false, "12 is no algorithm; see ORINOCO_DIRECT");
  refuse((OrinocoSettings){.algorithm = UINT32_MAX}, true, "4294967295 is no algorithm");
  refuse((OrinocoSettings){.uniform = true, .has_witness = true, .witness = 1}, false, "the witness cannot be rank 1");
  refuse((OrinocoSettings){.uniform = true, .witness = 1}, false, "`has_witness` is not set");
  refuse((OrinocoSettings){.has_witness = true}, false, "only a uniform group has a witness");
  refuse((OrinocoSettings){.tune = true}, true, "leave out `tune`");
  refuse((OrinocoSettings){.algorithm = ORINOCO_RING}, true, "leave out `algorithm`");
  refuse((OrinocoSettings){.uniform = true}, true, "leave out `uniform`");
  OrinocoSettings settings = {.tcp_connections = 9};
  OrinocoGroup *group = NULL;
  CHECK(orinoco_join_tcp_plaintext("127.0.0.1:0", 0, 1, &settings, &group) == ORINOCO_JOIN_FAILED);
  CHECK(strstr(orinoco_last_error(), "`tcp_connections` is 9") != NULL);
}

static void check_joins(void) {
  OrinocoGroup *group = NULL;
  const char *nowhere[] = {"", "nowhere", "shared:a@b", "shared:a,10.0.0.1:4711", "shared:a@b,here"};
  for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++) {
    CHECK(orinoco_join_tcp(nowhere[i], NULL, 0, 1, NULL, &group) == ORINOCO_INVALID_ARGUMENT);
    CHECK(strstr(orinoco_last_error(), "is neither file:PATH nor IP:PORT") != NULL);
    CHECK(orinoco_join_rdma(nowhere[i], NULL, NULL, 0, 1, NULL, &group) == ORINOCO_INVALID_ARGUMENT);
  }
  CHECK(orinoco_join_shm("/nonexistent/group", 0, 1, NULL, &group) == ORINOCO_JOIN_FAILED);
  CHECK(orinoco_join_pcie("/nonexistent/group", NULL, 0, 1, NULL, &group) == ORINOCO_JOIN_FAILED);
  CHECK(orinoco_join_pcie("/nonexistent/group", "/nonexistent/key", 0, 1, NULL, &group) == ORINOCO_JOIN_FAILED);
  CHECK(orinoco_join_pcie(NULL, NULL, 0, 1, NULL, &group) == ORINOCO_INVALID_ARGUMENT);
  /* No library, no device, or none of that name. */
  CHECK(orinoco_join_rdma("file:/dev/shm/orinoco-check-rdma", NULL, "no-device", 0, 1, NULL, &group) == ORINOCO_JOIN_FAILED);
  CHECK(strstr(orinoco_last_error(), "connecting by RDMA: ") != NULL);
  CHECK(group == NULL);
}

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  rank = strtoul(argv[3], NULL, 10);
  ranks = strtoul(argv[4], NULL, 10);
  const char *transport = argv[1];
  if (is(transport, "end-at-once")) return end_at_once(argv[2]);
  bool has_parts = strncmp(transport, "pcie", 4) != 0;
  OrinocoGroup *group = join(transport, argv[2]);
  CHECK(orinoco_rank(group) == rank && orinoco_ranks(group) == ranks);
  check_uniform(group);
  check_uneven(group);
  has_parts ? check_split(group) : check_no_parts(group);
  if (has_parts) check_shrink(group);
  check_explanation(group, transport);
  check_int8(group);
  check_messages_and_background(group);
  check_many(group);
  check_record(group);
  has_parts ? check_split(group) : check_no_parts(group);
  if (has_parts) check_shrink(group);
  check_errors(group);
  MUST(orinoco_leave(group));
  MUST(orinoco_leave(NULL));
  if (is(transport, "tcp-settings") && ranks == 2) check_isolated(argv[2]);
  if (rank == 0) {
    check_settings();
    check_joins();
  }
  return 0;
}
