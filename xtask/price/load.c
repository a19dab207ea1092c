/*
 * The engine side of `cargo xtask bench`: a worker with the real hook that does what its standard
 * input says, one command a line, and answers each with one line that begins with '@'.
 *
 *   pin CPU                    this thread runs on that CPU only
 *   calls N                    CPU nanoseconds of each hook call, over N calls of each
 *   cold N                     CPU nanoseconds of a call of `phase` where the caches hold other things
 *   marks RATE SECONDS         posts and dones over 64 open rooms, so many a second in total
 *   stays RATE SECONDS         whole stays of 8 calls, so many calls a second in total
 *   hold N                     N rooms enter the queue and stay there
 *   idle THREADS               so many threads, each working for a room; the scheduler beats on
 *   stall                      a room that is served and posted and then stands still
 *   die                        the same, and the thread that works for it ends
 *   send NAME                  a room to the worker of that name, served and posted, that stands still
 *   quit
 *
 * Its arguments are its role, `prefill` or `decode`, and its name; without them it is a prefill.
 * Moments are nanoseconds of CLOCK_MONOTONIC, as the agent's and the runner's.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "inflight.h"

enum { MANY = 64, PAUSE_NS = 1000000 };

static inflight_worker *worker;
static uint64_t next_room = 1;

static uint64_t clock_of(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t now(void) { return clock_of(CLOCK_MONOTONIC); }

static void nap(uint64_t ns) {
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

static uint64_t append_to(const char *name, uint64_t bytes) {
    struct inflight_peer far = {INFLIGHT_NIXL_AGENT, 0, name};
    char rid[32];
    uint64_t room = next_room++;
    snprintf(rid, sizeof rid, "rid-%" PRIu64, room);
    return inflight_append(worker, room, rid, &far, 1, bytes, NULL);
}

static uint64_t append(uint64_t bytes) { return append_to("bench-decode", bytes); }

/* Nanoseconds of CPU per call of `call`, which may use `i`. */
#define COST(n, call) ({ \
    uint64_t begun = clock_of(CLOCK_THREAD_CPUTIME_ID); \
    for (uint64_t i = 0; i < (n); i++) { call; } \
    (double)(clock_of(CLOCK_THREAD_CPUTIME_ID) - begun) / (double)(n); })

static void calls(uint64_t n) {
    uint64_t seqs[MANY], seq = append(1);
    double appends = 0, removes = 0;
    /* In lots, so that the table is never full of rooms. */
    uint64_t lots = n / MANY ? n / MANY : 1;
    for (uint64_t lot = 0; lot < lots; lot++) {
        appends += COST(MANY, seqs[i] = append(1));
        removes += COST(MANY, inflight_remove(worker, seqs[i], INFLIGHT_SUCCESS));
    }
    printf("@calls append=%.1f remove=%.1f", appends / lots, removes / lots);
    printf(" serve=%.1f", COST(n, inflight_serve(worker, seq)));
    printf(" serve_end=%.1f", COST(n, inflight_serve(worker, seq); inflight_serve_end(worker)));
    printf(" post=%.1f", COST(n, inflight_post(worker, seq, 1)));
    printf(" done=%.1f", COST(n, inflight_done(worker, seq, 1, 1)));
    printf(" phase=%.1f", COST(n, inflight_phase(worker, seq, INFLIGHT_TRANSFERRING)));
    printf(" beat=%.1f\n", COST(n, inflight_beat(worker)));
    inflight_remove(worker, seq, INFLIGHT_SUCCESS);
}

/* A transfer's bytes leave nothing of a hit in the caches of its core: as much as the second level
 * has is written before each call. Reading the clock is part of what is told. */
static void cold(uint64_t n) {
    static char other[2 << 20];
    uint64_t seq = append(1), took = 0;
    for (uint64_t i = 0; i < n; i++) {
        for (size_t at = 0; at < sizeof other; at += 64) ((volatile char *)other)[at]++;
        uint64_t begun = clock_of(CLOCK_THREAD_CPUTIME_ID);
        inflight_phase(worker, seq, INFLIGHT_TRANSFERRING);
        took += clock_of(CLOCK_THREAD_CPUTIME_ID) - begun;
    }
    printf("@cold phase=%.1f\n", (double)took / (double)n);
    inflight_remove(worker, seq, INFLIGHT_SUCCESS);
}

/* Calls `act` so often that `rate` marks a second come of it, in steps of a millisecond.
 * `each` is the number of marks of one act. */
static void pace(const char *name, double rate, double seconds, unsigned each, void (*act)(uint64_t)) {
    uint64_t begun = now(), acts = 0, end = begun + (uint64_t)(seconds * 1e9);
    for (uint64_t at = begun; at < end; at = now()) {
        uint64_t due = (uint64_t)((double)(at - begun) * rate / 1e9 / each);
        while (acts < due) act(acts++);
        inflight_beat(worker);
        /* Read once: between two readings the pause may end, and the difference would wrap. */
        uint64_t busy = now() - at;
        if (busy < PAUSE_NS) nap(PAUSE_NS - busy);
    }
    double took = (double)(now() - begun) / 1e9;
    printf("@%s marks=%" PRIu64 " seconds=%.3f rooms=%" PRIu64 "\n", name, acts * each, took, next_room - 1);
}

static uint64_t open_rooms[MANY];

static void post_and_done(uint64_t act) {
    uint64_t seq = open_rooms[act % MANY];
    inflight_post(worker, seq, 1);
    inflight_done(worker, seq, 1, 1);
}

static void stay(uint64_t act) {
    (void)act;
    uint64_t seq = append(2);
    inflight_serve(worker, seq);
    for (int chunk = 0; chunk < 2; chunk++) {
        inflight_post(worker, seq, 1);
        inflight_done(worker, seq, 1, 1);
    }
    inflight_serve_end(worker);
    inflight_remove(worker, seq, INFLIGHT_SUCCESS);
}

static void *serve_for_ever(void *arg) {
    uint64_t seq = (uint64_t)(uintptr_t)arg;
    inflight_serve(worker, seq);
    inflight_post(worker, seq, 1000);
    for (;;) pause();
    return NULL;
}

static void *serve_and_die(void *arg) {
    uint64_t seq = (uint64_t)(uintptr_t)arg;
    inflight_serve(worker, seq);
    inflight_post(worker, seq, 1000);
    return NULL;
}

static void spawn(void *(*body)(void *), uint64_t seq) {
    pthread_t id;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * 1024);
    if (pthread_create(&id, &small, body, (void *)(uintptr_t)seq) == 0) pthread_detach(id);
}

static void *beat_for_ever(void *arg) {
    (void)arg;
    for (;;) {
        inflight_beat(worker);
        nap(PAUSE_NS);
    }
    return NULL;
}

static void obey(const char *line) {
    double a = 0, b = 0;
    char verb[16] = "";
    sscanf(line, "%15s %lf %lf", verb, &a, &b);
    uint64_t n = (uint64_t)a;
    if (strcmp(verb, "pin") == 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((int)n, &set);
        printf("@pin %d\n", sched_setaffinity(0, sizeof set, &set));
    } else if (strcmp(verb, "calls") == 0) {
        calls(n);
    } else if (strcmp(verb, "cold") == 0) {
        cold(n);
    } else if (strcmp(verb, "marks") == 0) {
        for (int i = 0; i < MANY; i++) open_rooms[i] = append(1);
        pace("marks", a, b, 2, post_and_done);
        for (int i = 0; i < MANY; i++) inflight_remove(worker, open_rooms[i], INFLIGHT_SUCCESS);
    } else if (strcmp(verb, "stays") == 0) {
        pace("stays", a, b, 8, stay);
    } else if (strcmp(verb, "hold") == 0) {
        for (uint64_t i = 0; i < n; i++) append(1);
        printf("@hold %" PRIu64 "\n", n);
    } else if (strcmp(verb, "idle") == 0) {
        for (uint64_t i = 0; i < n; i++) spawn(serve_for_ever, append(1000));
        printf("@idle %" PRIu64 "\n", n);
    } else if (strcmp(verb, "stall") == 0) {
        uint64_t at = now(), room = next_room, seq = append(1000);
        spawn(serve_for_ever, seq);
        printf("@stall room=%" PRIu64 " at=%" PRIu64 "\n", room, at);
    } else if (strcmp(verb, "die") == 0) {
        uint64_t room = next_room, seq = append(1000);
        uint64_t at = now();
        spawn(serve_and_die, seq);
        printf("@die room=%" PRIu64 " at=%" PRIu64 "\n", room, at);
    } else if (strcmp(verb, "send") == 0) {
        char name[64] = "";
        sscanf(line, "%*s %63s", name);
        uint64_t room = next_room;
        spawn(serve_for_ever, append_to(name, 1000));
        printf("@send room=%" PRIu64 "\n", room);
    } else if (strcmp(verb, "quit") == 0) {
        exit(0);
    } else {
        printf("@unknown %s\n", verb);
    }
}

int main(int argc, char **argv) {
    /* End with the runner, however that ends. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct inflight_peer me = {INFLIGHT_NIXL_AGENT, 0, argc > 2 ? argv[2] : "bench-prefill"};
    int decodes = argc > 1 && strcmp(argv[1], "decode") == 0;
    struct inflight_open_args args = {.size = sizeof args,
        .role = decodes ? INFLIGHT_DECODE : INFLIGHT_PREFILL, .nnodes = 1,
        .engine = "bench", .version = "1", .tp = {0, 1}, .identities = &me, .identities_len = 1};
    int code = inflight_open(&args, &worker, NULL);
    if (code != 0) {
        printf("@refused %s\n", inflight_errstr(code));
        return 1;
    }
    pthread_t id;
    pthread_create(&id, NULL, beat_for_ever, NULL);
    printf("@ready %d\n", getpid());
    char line[256];
    while (fgets(line, sizeof line, stdin)) obey(line);
    return 0;
}
