/*
 * A small engine that does what its standard input says, one command a line, and answers each
 * with one line. The tests drive it and read its table from outside.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inflight.h"

static inflight_worker *worker;

static int open_worker(void) {
    struct inflight_peer me = {INFLIGHT_NIXL_AGENT, 0, "prefill-0"};
    struct inflight_open_args args = {.size = sizeof args, .role = INFLIGHT_PREFILL, .nnodes = 1,
        .engine = "engine.c", .version = "1.0", .tp = {1, 2}, .identities = &me, .identities_len = 1};
    return inflight_open(&args, &worker, NULL);
}

/* Everything that the table keeps of a room follows from its number: a reader can tell a mix. */
static uint64_t append(uint64_t room) {
    char rid[32], far[32];
    struct inflight_peer peer = {INFLIGHT_NIXL_AGENT, 0, far};
    snprintf(rid, sizeof rid, "rid-%" PRIu64, room);
    snprintf(far, sizeof far, "decode-%" PRIu64, room);
    return inflight_append(worker, room, rid, &peer, 1, room * 3, NULL);
}

struct job { uint64_t first, rooms, rounds; };

/* One thread of a busy engine. Each room is posted as 3 x room bytes; every fourth is left open
 * for the next round to supersede, all are closed at the end. */
static void *work(void *arg) {
    struct job *job = arg;
    for (uint64_t round = 0; round < job->rounds; round++) {
        for (uint64_t room = job->first; room < job->first + job->rooms; room++) {
            uint64_t seq = append(room);
            inflight_serve(worker, seq);
            for (int call = 0; call < 3; call++) inflight_post(worker, seq, room);
            for (int call = 0; call < 3; call++) inflight_done(worker, seq, room, 1);
            inflight_serve_end(worker);
            if (room % 4 != 0 || round + 1 == job->rounds) inflight_remove(worker, seq, INFLIGHT_SUCCESS);
            inflight_beat(worker);
        }
    }
    return NULL;
}

/* All threads share the rooms if `shared`, else each has its own. */
static void hammer(uint64_t threads, uint64_t rounds, int shared) {
    pthread_t ids[32];
    struct job jobs[32];
    for (uint64_t i = 0; i < threads; i++) {
        jobs[i] = (struct job){shared ? 1000 : 1000 * (i + 1), 50, rounds};
        pthread_create(&ids[i], NULL, work, &jobs[i]);
    }
    for (uint64_t i = 0; i < threads; i++) pthread_join(ids[i], NULL);
}

/* Every call that there is, in a child of fork; what it says goes to the parent's output. */
static void in_child(void) {
    pid_t child = fork();
    if (child == 0) {
        inflight_beat(worker);
        uint64_t seq = append(1);
        int go = inflight_serve(worker, 1 << 14);
        inflight_serve_end(worker);
        inflight_post(worker, 1 << 14, 1);
        inflight_done(worker, 1 << 14, 1, 1);
        inflight_phase(worker, 1 << 14, INFLIGHT_PARKED);
        inflight_remove(worker, 1 << 14, INFLIGHT_FAILED);
        inflight_gauge(worker, INFLIGHT_KV_FREE, 7);
        inflight_close(worker);
        int code = open_worker();
        uint64_t again = append(2);
        printf("append %" PRIu64 " serve %d open %d null %d again %" PRIu64 " ", seq, go, code, !worker, again);
        fflush(stdout);
        _exit(7);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("exit %d signal %d\n", WEXITSTATUS(status), WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static double since(struct timespec start, uint64_t calls) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return ((now.tv_sec - start.tv_sec) * 1e9 + (now.tv_nsec - start.tv_nsec)) / calls;
}

/* Nanoseconds a call, with `open` rooms in the queue; short, so that no agent finds it meanwhile. */
static void bench(uint64_t open) {
    const uint64_t n = 20000;
    struct timespec start;
    for (uint64_t room = 0; room < open; room++) append(1000000 + room);
    uint64_t seq = append(1);
#define BENCH(name, call) \
    clock_gettime(CLOCK_MONOTONIC, &start); \
    for (uint64_t i = 0; i < n; i++) { call; } \
    printf(name " %.0f ", since(start, n));
    BENCH("beat", inflight_beat(worker))
    BENCH("post", inflight_post(worker, seq, 1))
    BENCH("done", inflight_done(worker, seq, 1, 1))
    BENCH("serve+end", inflight_serve(worker, seq); inflight_serve_end(worker))
    BENCH("append+remove", inflight_remove(worker,
        inflight_append(worker, i, "rid", NULL, 0, 1, NULL), INFLIGHT_SUCCESS))
    BENCH("off", inflight_beat(NULL))
    printf("\n");
}

/* What the agent wants failed, and what it says to that. */
static void carry_out(uint64_t seq) {
    struct inflight_fail fail = {0};
    int now = inflight_carry_out(worker, seq, &fail);
    printf("%d %" PRIu64 " %u %s\n", now, fail.dwell_ms, fail.tell_peers, fail.reason);
    fflush(stdout);
}

int main(void) {
    char line[256], name[32];
    while (fgets(line, sizeof line, stdin)) {
        uint64_t a = 0, b = 0, c = 0, answer = 0;
        sscanf(line, "%31s %" SCNu64 " %" SCNu64 " %" SCNu64, name, &a, &b, &c);
        if (!strcmp(name, "open")) answer = open_worker();
        else if (!strcmp(name, "append")) answer = append(a);
        else if (!strcmp(name, "serve")) answer = inflight_serve(worker, a);
        else if (!strcmp(name, "serve_early")) inflight_serve_early(worker, a);
        else if (!strcmp(name, "serve_end")) inflight_serve_end(worker);
        else if (!strcmp(name, "post")) inflight_post(worker, a, b);
        else if (!strcmp(name, "done")) inflight_done(worker, a, b, c);
        else if (!strcmp(name, "phase")) inflight_phase(worker, a, b);
        else if (!strcmp(name, "remove")) inflight_remove(worker, a, b);
        else if (!strcmp(name, "beat")) inflight_beat(worker);
        else if (!strcmp(name, "asked")) answer = inflight_asked(worker);
        else if (!strcmp(name, "command")) answer = inflight_command(worker, a);
        else if (!strcmp(name, "polled")) answer = inflight_polled(worker, a, b);
        else if (!strcmp(name, "carry_out")) { carry_out(a); continue; }
        else if (!strcmp(name, "close")) inflight_close(worker);
        else if (!strcmp(name, "fill")) for (uint64_t room = 0; room < a; room++) answer = append(room);
        else if (!strcmp(name, "hammer")) hammer(a, b, c);
        else if (!strcmp(name, "fork")) { in_child(); fflush(stdout); continue; }
        else if (!strcmp(name, "bench")) { bench(a); fflush(stdout); continue; }
        else return 2;
        printf("%" PRIu64 "\n", answer);
        fflush(stdout);
    }
    return 0;
}
