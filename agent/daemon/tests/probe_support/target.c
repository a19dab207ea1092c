/* A process to probe: it calls libinflight's marks as it is told on its standard input. */
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void inflight_mark_open(uint64_t, uint64_t, uint64_t);
void inflight_mark_append(uint64_t, uint64_t, uint64_t, uint64_t, const char *);
void inflight_mark_serve(uint64_t, uint64_t, uint64_t);
void inflight_mark_serve_end(uint64_t, uint64_t);
void inflight_mark_post(uint64_t, uint64_t, uint64_t);
void inflight_mark_done(uint64_t, uint64_t, uint64_t, uint64_t);
void inflight_mark_phase(uint64_t, uint64_t, uint64_t);
#ifdef WITHOUT_REMOVE
#define inflight_mark_remove(worker, seq, outcome) ((void)0)
#else
void inflight_mark_remove(uint64_t, uint64_t, uint64_t);
#endif

static void *nothing(void *unused) { return unused; }

static void marks(uint64_t n) {
  for (uint64_t i = 1; i <= n; i++) {
    char rid[100];
    snprintf(rid, sizeof rid, "rid-%" PRIu64, i);
    inflight_mark_open(7, i, 1);
    inflight_mark_append(7, i, i << 32, 4096 * i, rid);
    inflight_mark_serve(7, i, 12 * i);
    inflight_mark_serve_end(7, i);
    inflight_mark_post(7, i, 10 * i);
    inflight_mark_done(7, i, 11 * i, i & 1);
    inflight_mark_phase(7, i, 3);
    inflight_mark_remove(7, i, 2);
  }
}

static void odd(void) {
  char longest[200];
  memset(longest, 'x', sizeof longest);
  longest[199] = 0;
  inflight_mark_append(0, 1, 0, 0, longest);
  inflight_mark_append(0, 2, UINT64_MAX, 0, NULL);
  inflight_mark_append(0, 3, 0, 0, (const char *)1);
  inflight_mark_append(0, 4, 0, 0, "");
}

/* CPU time of this thread per call, in nanoseconds. */
static double cost(uint64_t n) {
  struct timespec a, b;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
  for (uint64_t i = 0; i < n; i++) inflight_mark_phase(7, i, 3);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
  return ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / n;
}

int main(void) {
  char line[100];
  while (fgets(line, sizeof line, stdin)) {
    uint64_t n = 0;
    double told = 0;
    pthread_t thread;
    if (sscanf(line, "marks %" SCNu64, &n) == 1) marks(n);
    else if (sscanf(line, "phase %" SCNu64, &n) == 1) told = cost(n);
    else if (!strcmp(line, "odd\n")) odd();
    else if (!strcmp(line, "thread\n")) {
      pthread_create(&thread, NULL, nothing, NULL);
      pthread_join(thread, NULL);
    } else if (!strcmp(line, "exec\n")) execlp("sleep", "sleep", "600", (char *)NULL);
    else if (!strcmp(line, "exit\n")) return 0;
    printf("ok %.1f\n", told);
    fflush(stdout);
  }
  return 0;
}
