/* Sums vectors among the processes of a machine or of several, and shows how long that takes for each size.
 *
 *   cc -O2 -I crates/orinoco-collective-c/include crates/orinoco-collective-c/examples/all_reduce.c \
 *      -L target/release -l orinoco_collective_c -Wl,-rpath,target/release -o all_reduce
 *   ./all_reduce shm /dev/shm/group 0 2 &
 *   ./all_reduce shm /dev/shm/group 1 2
 *
 * Arguments: shm, tcp or tcp-plaintext; the group's file (`file:PATH` or `IP:PORT` with tcp); rank; number of ranks; optionally the
 * largest size in bytes. Each call is timed after a barrier, and the slowest rank counts. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "orinoco_collective.h"

static void must(OrinocoStatus status) {
  if (status == ORINOCO_OK) return;
  fprintf(stderr, "error: %s\n", orinoco_last_error());
  exit(1);
}

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int by_time(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void measure(OrinocoGroup *group, size_t bytes) {
  size_t count = bytes / sizeof(float), runs = bytes <= 4096 ? 20000 : bytes <= 65536 ? 4000 : bytes <= 1 << 20 ? 500 : 30;
  float *input = malloc(bytes), *output = malloc(bytes);
  double *times = malloc(runs * sizeof *times);
  if (input == NULL || output == NULL || times == NULL) exit(1);
  for (size_t i = 0; i < count; i++) input[i] = 1;
  size_t warm_up = runs / 5 + 2;
  for (size_t run = 0; run < runs + warm_up; run++) {
    must(orinoco_barrier(group, NULL));
    double start = now_us();
    must(orinoco_all_reduce(group, input, output, count, ORINOCO_F32, ORINOCO_SUM, NULL));
    if (run >= warm_up) times[run - warm_up] = now_us() - start;
  }
  if (output[count - 1] != (float)orinoco_ranks(group)) {
    fprintf(stderr, "error: the sum is wrong\n");
    exit(1);
  }
  must(orinoco_all_reduce(group, times, times, runs, ORINOCO_F64, ORINOCO_MAX, NULL));
  qsort(times, runs, sizeof *times, by_time);
  if (orinoco_rank(group) == 0) printf("%10zu %10.2f %10.2f\n", bytes, times[runs / 2], times[runs * 99 / 100]);
  free(input);
  free(output);
  free(times);
}

int main(int argc, char **argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: %s shm|tcp|tcp-plaintext RENDEZVOUS RANK RANKS [BYTES]\n", argv[0]);
    return 2;
  }
  size_t rank = strtoul(argv[3], NULL, 10), ranks = strtoul(argv[4], NULL, 10);
  size_t largest = argc > 5 ? strtoul(argv[5], NULL, 10) : 1 << 20;
  OrinocoGroup *group = NULL;
  if (strcmp(argv[1], "shm") == 0)
    must(orinoco_join_shm(argv[2], rank, ranks, NULL, &group));
  else if (strcmp(argv[1], "tcp") == 0)
    must(orinoco_join_tcp(argv[2], getenv("ORINOCO_KEY_FILE"), rank, ranks, NULL, &group));
  else
    must(orinoco_join_tcp_plaintext(argv[2], rank, ranks, NULL, &group));
  /* A core for each rank, if there are enough. */
  if (ranks <= (size_t)sysconf(_SC_NPROCESSORS_ONLN)) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(rank, &cores);
    if (sched_setaffinity(0, sizeof cores, &cores) != 0) fprintf(stderr, "rank %zu is not pinned to a core\n", rank);
  }
  if (rank == 0) printf("%10s %10s %10s\n", "bytes", "p50 us", "p99 us");
  for (size_t bytes = 8; bytes <= largest; bytes *= bytes < 64 ? 8 : bytes < 1024 ? 16 : 4) measure(group, bytes);
  must(orinoco_leave(group));
  return 0;
}
