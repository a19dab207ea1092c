/*
 * An engine over RDMA verbs for `cargo xtask vm`: two processes with a reliable connection, and the
 * real hook in both. They find each other by two files.
 *
 *   verbs send DEVICE ADDRESS MINE THEIRS TIMEOUT RETRY RNR
 *   verbs serve DEVICE ADDRESS MINE THEIRS
 *
 * The sender does what its standard input says, one command a line:
 *
 *   room OP BYTES CHUNKS PAUSE_MS   a room whose chunks are posted one after the other, the next when
 *                                   the last is complete; OP is write, read or send. One post mark
 *                                   for all of them. Ends well, or stays as it is.
 *   tell, final                     "@told chunks=CHUNKS bytes=BYTES", "@final …": what is complete so far
 *   quit
 *
 * and says "@room OP bytes=BYTES" when a room has ended well, "@failed status=STATUS" when a chunk
 * was not: the room stays then, as in an engine that does not handle it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "inflight.h"

enum { MEMORY = 1 << 20, RECEIVES = 16 };

struct end {
    uint32_t number, key;
    uint64_t memory;
    char address[32];
};

static struct ibv_context *context;
static struct ibv_cq *done;
static struct ibv_qp *queue;
static struct ibv_mr *region;
static char *memory;
static int gid_index;
static inflight_worker *worker;
static atomic_uint_fast64_t complete_chunks, complete_bytes;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void nap_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static union ibv_gid mapped(const char *address) {
    union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};
    if (inet_pton(AF_INET, address, gid.raw + 12) != 1) die("address");
    return gid;
}

static void open_device(const char *name, const char *address) {
    struct ibv_device **list = ibv_get_device_list(NULL), *found = NULL;
    for (int i = 0; list && list[i]; i++)
        if (!strcmp(ibv_get_device_name(list[i]), name)) found = list[i];
    if (!found || !(context = ibv_open_device(found))) die("device");
    union ibv_gid wanted = mapped(address), gid;
    for (gid_index = 0; gid_index < 16; gid_index++)
        if (!ibv_query_gid(context, 1, gid_index, &gid) && !memcmp(&gid, &wanted, 16)) break;
    if (gid_index == 16) die("gid");
    struct ibv_pd *pd = ibv_alloc_pd(context);
    memory = aligned_alloc(4096, MEMORY);
    if (!pd || !memory) die("memory");
    memset(memory, 7, MEMORY);
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    region = ibv_reg_mr(pd, memory, MEMORY, access);
    done = ibv_create_cq(context, 64, NULL, NULL, 0);
    if (!region || !done) die("region");
    struct ibv_qp_init_attr init = {
        .send_cq = done, .recv_cq = done, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 32, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1}};
    if (!(queue = ibv_create_qp(pd, &init))) die("queue");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};
    if (ibv_modify_qp(queue, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        die("init");
}

static void write_end(const char *path, const char *address) {
    char fresh[256];
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *file = fopen(fresh, "w");
    if (!file) die(fresh);
    fprintf(file, "%u %u %" PRIu64 " %s\n", queue->qp_num, region->rkey, (uint64_t)(uintptr_t)memory, address);
    fclose(file);
    if (rename(fresh, path)) die(path);
}

static struct end read_end(const char *path) {
    struct end end;
    for (int tries = 0; tries < 600; tries++, nap_ms(100)) {
        FILE *file = fopen(path, "r");
        if (!file) continue;
        int got = fscanf(file, "%u %u %" SCNu64 " %31s", &end.number, &end.key, &end.memory, end.address);
        fclose(file);
        if (got == 4) return end;
    }
    die(path);
    return end;
}

static void connect_to(struct end end, int timeout, int retry, int rnr) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = end.number, .rq_psn = 0,
        .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1,
                    .grh = {.dgid = mapped(end.address), .sgid_index = gid_index, .hop_limit = 64}}};
    if (ibv_modify_qp(queue, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
        die("rtr");
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = timeout, .retry_cnt = retry,
                                .rnr_retry = rnr, .sq_psn = 0, .max_rd_atomic = 1};
    if (ibv_modify_qp(queue, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
        die("rts");
}

static void open_worker(int role, const char *name) {
    struct inflight_peer own = {INFLIGHT_NIXL_AGENT, 0, name};
    struct inflight_open_args args = {
        .size = sizeof args, .role = role, .nnodes = 1, .engine = "verbs", .version = "1",
        .identities = &own, .identities_len = 1};
    int code = inflight_open(&args, &worker, NULL);
    if (code) {
        fprintf(stderr, "%s\n", inflight_errstr(code));
        exit(1);
    }
}

static struct ibv_wc next_completion(void) {
    struct ibv_wc wc;
    while (ibv_poll_cq(done, 1, &wc) == 0) nap_ms(1);
    return wc;
}

struct room {
    char op[8];
    uint32_t bytes, chunks;
    long pause_ms;
    struct end to;
};

static int chunk(const struct room *room) {
    struct ibv_sge part = {(uintptr_t)memory, room->bytes, region->lkey};
    struct ibv_send_wr *bad, request = {
        .sg_list = &part, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
        .opcode = *room->op == 'w' ? IBV_WR_RDMA_WRITE : *room->op == 'r' ? IBV_WR_RDMA_READ : IBV_WR_SEND,
        .wr.rdma = {room->to.memory, room->to.key}};
    if (ibv_post_send(queue, &request, &bad)) return IBV_WC_GENERAL_ERR;
    return next_completion().status;
}

static void *transfer(void *argument) {
    static uint64_t number = 1;
    struct room room = *(struct room *)argument;
    free(argument);
    static const struct inflight_peer far = {INFLIGHT_NIXL_AGENT, 0, "vm-decode"};
    uint64_t whole = (uint64_t)room.bytes * room.chunks;
    uint64_t seq = inflight_append(worker, number++, "verbs", &far, 1, whole, NULL);
    inflight_serve(worker, seq);
    inflight_post(worker, seq, whole);
    for (uint32_t i = 0; i < room.chunks; i++, nap_ms(room.pause_ms)) {
        int status = chunk(&room);
        if (status != IBV_WC_SUCCESS) {
            printf("@failed status=%d\n", status);
            /* The thread lives on, as in an engine; the room stays. */
            inflight_serve_end(worker);
            for (;;) pause();
        }
        complete_chunks++;
        complete_bytes += room.bytes;
    }
    inflight_done(worker, seq, whole, 1);
    inflight_serve_end(worker);
    inflight_remove(worker, seq, INFLIGHT_SUCCESS);
    printf("@room %s bytes=%" PRIu64 "\n", room.op, whole);
    return NULL;
}

static void *beat(void *unused) {
    (void)unused;
    for (;; nap_ms(5)) inflight_beat(worker);
    return NULL;
}

static void start(void *(*act)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, act, argument)) die("thread");
    pthread_detach(thread);
}

static void count(const char *word) {
    printf("@%s chunks=%" PRIuFAST64 " bytes=%" PRIuFAST64 "\n", word, complete_chunks, complete_bytes);
}

static void commands(struct end to) {
    char line[128];
    while (fgets(line, sizeof line, stdin)) {
        struct room room = {.to = to};
        if (sscanf(line, "room %7s %u %u %ld", room.op, &room.bytes, &room.chunks, &room.pause_ms) == 4) {
            if (room.bytes > MEMORY) die("bytes");
            struct room *argument = malloc(sizeof room);
            *argument = room;
            start(transfer, argument);
        } else if (!strncmp(line, "tell", 4)) {
            count("told");
        } else if (!strncmp(line, "final", 5)) {
            count("final");
        } else if (!strncmp(line, "quit", 4)) {
            return;
        }
    }
}

/* Keeps receives posted, as an engine that takes what is sent to it. */
static void receive(void) {
    struct ibv_sge part = {(uintptr_t)memory, MEMORY, region->lkey};
    struct ibv_recv_wr *bad, request = {.sg_list = &part, .num_sge = 1};
    for (int i = 0; i < RECEIVES; i++)
        if (ibv_post_recv(queue, &request, &bad)) die("receive");
    for (;;) {
        if (next_completion().status != IBV_WC_SUCCESS) nap_ms(100);
        else if (ibv_post_recv(queue, &request, &bad)) die("receive");
    }
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    int sends = argc > 1 && !strcmp(argv[1], "send");
    if (argc != (sends ? 9 : 6)) {
        fprintf(stderr, "verbs send|serve DEVICE ADDRESS MINE THEIRS [TIMEOUT RETRY RNR]\n");
        return 2;
    }
    open_device(argv[2], argv[3]);
    open_worker(sends ? INFLIGHT_PREFILL : INFLIGHT_DECODE, sends ? "vm-prefill" : "vm-decode");
    write_end(argv[4], argv[3]);
    struct end far = read_end(argv[5]);
    connect_to(far, sends ? atoi(argv[6]) : 14, sends ? atoi(argv[7]) : 6, sends ? atoi(argv[8]) : 6);
    start(beat, NULL);
    printf("@open number=%u far=%u\n", queue->qp_num, far.number);
    if (sends) commands(far);
    else receive();
    return 0;
}
