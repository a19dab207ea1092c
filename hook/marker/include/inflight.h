/*
 * inflight.h: what an engine calls to say what its inflight queue does.
 *
 * The inflight queue is where a request waits, after its prefill, until its KV cache has been
 * delivered. The agent (inflightd) reads what is said here from outside the process and tells why
 * a request does not get on. Without an agent every call costs tens of nanoseconds.
 *
 * Promises:
 *  - no call blocks, waits or allocates, inflight_open excepted (about 1 ms, once);
 *  - no call fails visibly: where the hook is off (not opened, a NULL worker, a child of fork)
 *    every call returns at once, inflight_append returns 0 and inflight_serve returns 1;
 *  - a child of fork is off for good, even if it calls inflight_open: it may not speak for the
 *    queue of its parent. A process that execs afterwards, or forks before it opens, is free;
 *  - every call may be made from any thread at any time; only inflight_close may not be made
 *    while another thread is inside a call for the same worker;
 *  - the library needs no other library and no particular libc.
 *
 * Texts are NUL-terminated and copied at once. NULL is an empty text.
 *
 * Link with -linflight, or dlopen libinflight.so.
 */
#ifndef INFLIGHT_H
#define INFLIGHT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Most workers that one process can open in its life. */
#define INFLIGHT_WORKERS_MAX 16
/* Rooms that can be open at once in one worker; more have marks but no place in the table. */
#define INFLIGHT_ROOMS_MAX 8192
/* Peers of a room, and identities of a worker, that are kept; up to 32 are counted. */
#define INFLIGHT_PEERS_KEPT 6
/* Bytes that are kept of a request id, of a peer's value, of a traceparent, of a name. */
#define INFLIGHT_RID_KEPT 64
#define INFLIGHT_VALUE_KEPT 96
#define INFLIGHT_TRACEPARENT_KEPT 56
#define INFLIGHT_NAME_KEPT 56
/* What a worker states as INFLIGHT_COMMANDS that does all of "Failing a room" below. */
#define INFLIGHT_COMMANDS_VERSION 1

/* One worker: one scheduler process = one rank of an engine. */
typedef struct inflight_worker inflight_worker;

enum inflight_role {
    INFLIGHT_PREFILL = 1,
    INFLIGHT_DECODE = 2
};

/* What the value of a peer is. */
enum inflight_peer_kind {
    INFLIGHT_NIXL_AGENT = 1,       /* name of a NIXL agent */
    INFLIGHT_MOONCAKE_SESSION = 2, /* Mooncake session, "host:rpc_port" */
    INFLIGHT_ENDPOINT = 3          /* network endpoint, "host:port" */
};

/* Where the engine says that a room is. */
enum inflight_phase {
    INFLIGHT_PARKED = 1,       /* in the queue, its peers have not answered yet */
    INFLIGHT_PEERS_READY = 2,  /* the peers have answered */
    INFLIGHT_TRANSFERRING = 3, /* a transfer is under way */
    INFLIGHT_PHASE_FAILED = 4, /* the engine knows that it failed and has not removed it yet */
    INFLIGHT_EXEMPT = 5,       /* nothing is to be moved for it by this worker: never judged */
    INFLIGHT_DONE_HERE = 6,    /* this rank's bytes are delivered, its other ranks' are not */
    INFLIGHT_PREALLOC = 7      /* decode: it waits for memory, and its sender for its answer */
};

/* What a worker says of itself. */
enum inflight_gauge_id {
    INFLIGHT_KV_FREE = 1,         /* tokens for which KV memory can be had */
    INFLIGHT_KV_TOTAL = 2,        /* tokens for which there is KV memory */
    INFLIGHT_SLOTS_FREE = 3,      /* metadata slots that are free; each room holds one */
    INFLIGHT_SLOTS_TOTAL = 4,     /* metadata slots that there are */
    INFLIGHT_THREADS_ALIVE = 5,   /* threads that transfer and live */
    INFLIGHT_THREADS_STARTED = 6, /* threads that transfer and have been started */
    INFLIGHT_LISTENERS_ALIVE = 7, /* threads that hear from peers and live */
    INFLIGHT_FAULTS = 8,          /* faults inside the hook */
    INFLIGHT_MISSING = 9,         /* what it does not find in the engine, a bit each, by engine */
    INFLIGHT_COMMANDS = 10        /* INFLIGHT_COMMANDS_VERSION if it does what "Failing a room" asks */
};

/* How a room left the queue. */
enum inflight_outcome {
    INFLIGHT_SUCCESS = 1,
    INFLIGHT_FAILED = 2,    /* the engine failed it */
    INFLIGHT_ABORTED = 3,   /* the client or an operator aborted it */
    INFLIGHT_REQUEUED = 4,  /* it went back to an earlier queue */
    INFLIGHT_SUPERSEDED = 5 /* the same room was appended again */
};

/* Why inflight_open refused. Numbers are never reused. */
enum inflight_error {
    INFLIGHT_E_ARGS = 1,      /* arguments missing, too short, or of an unknown role */
    INFLIGHT_E_FORKED = 2,    /* a child of fork of a process that had the hook */
    INFLIGHT_E_TOO_MANY = 3,  /* INFLIGHT_WORKERS_MAX workers opened already */
    INFLIGHT_E_MEMFD = 4,     /* the kernel makes no memfd */
    INFLIGHT_E_MEMORY = 5,    /* no memory for the table (8.1 MiB) */
    INFLIGHT_E_SEAL = 6,      /* the memfd cannot be sealed */
    INFLIGHT_E_MAP = 7,       /* the table or the guard page cannot be mapped */
    INFLIGHT_E_FORK_GUARD = 8 /* the kernel has no MADV_WIPEONFORK (older than 4.14) */
};

/* A far end of a transfer, or a name under which others address this worker. */
struct inflight_peer {
    uint32_t kind;     /* enum inflight_peer_kind */
    uint32_t reserved; /* 0 */
    const char *value;
};

/* Position in one parallel dimension; size 0 where the engine does not use it. */
struct inflight_rank {
    uint32_t index;
    uint32_t size;
};

/* What a worker states about itself. Zero it, then set size = sizeof(struct inflight_open_args):
 * later releases add fields at the end. */
struct inflight_open_args {
    uint64_t size;
    uint32_t role;   /* enum inflight_role */
    uint32_t nnodes; /* nodes that the engine spans */
    const char *engine;
    const char *version;
    struct inflight_rank dp; /* data parallel */
    struct inflight_rank pp; /* pipeline parallel */
    struct inflight_rank tp; /* tensor parallel (the attention group where it differs) */
    struct inflight_rank cp; /* context parallel (the attention group where it differs) */
    const struct inflight_peer *identities;
    size_t identities_len;
};

/*
 * Once per worker, before its first request. Returns 0 and a handle in *worker, or an
 * enum inflight_error and NULL: the hook is then off, which is no reason to stop. *os_error (may
 * be NULL) gets the kernel's errno, or 0.
 */
int inflight_open(const struct inflight_open_args *args, inflight_worker **worker, int *os_error);

/* What an error code of inflight_open means; never NULL, never to be freed. */
const char *inflight_errstr(int code);

/* The worker ends: open rooms leave as aborted and the handle is off for good. Not needed at the
 * end of a process. */
void inflight_close(inflight_worker *worker);

/*
 * A request enters the inflight queue. Returns its sequence, which names this stay of the room
 * in every later call; 0 when the hook is off. Any room number is a real one, 0 too. A room that
 * is still open is closed as superseded. expected_bytes is 0 where not known.
 */
uint64_t inflight_append(inflight_worker *worker, uint64_t room, const char *rid,
                         const struct inflight_peer *peers, size_t peers_len,
                         uint64_t expected_bytes, const char *traceparent);

/*
 * This thread begins to work for that room (and no longer for the one before). 1: go. 0: the
 * room is held by the agent: leave it for now, do not post for it; it will be released or failed.
 * A thread whose early work turns out to be for a held room goes on, and asks again later: it is
 * seen to be at work.
 */
int inflight_serve(inflight_worker *worker, uint64_t seq);

/*
 * This thread begins to work for a room that is not in the queue yet (and no longer for the one
 * before). after is the last room that had entered when this work was queued, 0 for none: it comes
 * before those that enter later. Once the room has entered, inflight_serve says which it is.
 */
void inflight_serve_early(inflight_worker *worker, uint64_t after);

/* This thread ends its work for the room that it was serving. */
void inflight_serve_end(inflight_worker *worker);

/* A transfer call of that many bytes begins; it ended, well if ok is not 0. */
void inflight_post(inflight_worker *worker, uint64_t seq, uint64_t bytes);
void inflight_done(inflight_worker *worker, uint64_t seq, uint64_t bytes, int ok);

/* Where the room is: an enum inflight_phase. */
void inflight_phase(inflight_worker *worker, uint64_t seq, int phase);

/* The room leaves the queue: an enum inflight_outcome. Calls for it are ignored from then on. */
void inflight_remove(inflight_worker *worker, uint64_t seq, int outcome);

/*
 * The worker has polled its queue: after every poll, also of an empty queue, and after the calls of
 * inflight_remove for what left. A room that is still there is taken for one that the poll left.
 */
void inflight_beat(inflight_worker *worker);

/* How the worker is: an enum inflight_gauge_id, once a second or so. Others are ignored. */
void inflight_gauge(inflight_worker *worker, int gauge, uint64_t value);

/*
 * Failing a room. The agent may ask that a room be failed on all its ranks, once it has proven that
 * nothing of it is under way on any. A worker that does all of the following states it with the gauge
 * INFLIGHT_COMMANDS; of others nothing is asked. A worker that cannot go on with it sets the gauge to 0.
 *
 *  - Every thread that transfers calls inflight_serve before it begins on a room, and does not begin
 *    where the answer is 0: it sets the work aside, goes on with other rooms, and tries again once
 *    inflight_command says 0. The order of the work for one room is kept. Work that began before its
 *    room was in the queue is shown by inflight_serve_early first, and for a room that is just being
 *    appended is set aside.
 *  - As each poll of the queue begins, on the thread that polls: inflight_asked; where it has changed,
 *    or a room is known for which inflight_command is not 0, inflight_carry_out for each such room. A 1
 *    means: the room is failed on this rank before the poll says how it is. Its far ends may be told
 *    only if tell_peers is 1, and never on the thread that polls.
 *  - After each poll that was reduced over all ranks (so that a room that one rank failed has left on
 *    all): inflight_polled for each such room that is still there, with the CLOCK_MONOTONIC time in
 *    nanoseconds that was read before the calls of inflight_carry_out.
 */
enum inflight_command_state {
    INFLIGHT_OPEN = 0,       /* nothing is asked; also of a room that is not in the queue */
    INFLIGHT_HELD = 1,       /* no thread is to begin on it */
    INFLIGHT_COMMITTED = 2,  /* it is to be failed */
    INFLIGHT_CARRIED_OUT = 3 /* the worker has taken the fail */
};

/* Why a room is to be failed. */
struct inflight_fail {
    uint64_t dwell_ms;   /* how long it had been in the queue */
    uint32_t tell_peers; /* 1: its far ends may be told */
    char reason[44];     /* finding and cause */
};

uint64_t inflight_asked(inflight_worker *worker);
int inflight_command(inflight_worker *worker, uint64_t seq);
int inflight_carry_out(inflight_worker *worker, uint64_t seq, struct inflight_fail *fail);
int inflight_polled(inflight_worker *worker, uint64_t seq, uint64_t begun);

#ifdef __cplusplus
}
#endif

#endif /* INFLIGHT_H */
