/*
 * Probes of io_uring: the ring a shard is, and the operations it lives on. Called by check.c, each
 * in a process of its own.
 */
#include "engine/check/check.h"

#include <errno.h>
#include <liburing.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/check/child.h"
#include "engine/check/file.h"

/* Not in the headers of Debian 12. */
enum { OP_WAITID = 50, OP_FUTEX_WAIT = 51, FUTEX2_U32 = 2 };

enum { RING_FLAGS = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN };

static int ring_open(struct io_uring *ring, struct check_result *result)
{
	int r = io_uring_queue_init(8, ring, RING_FLAGS);

	if (r < 0)
		check_missing(result, "io_uring_setup: %s", strerrordesc_np(-r));
	return r;
}

/* Submits what is queued and waits for one completion: its result. */
static int ring_result(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	int r;

	r = io_uring_submit_and_wait(ring, 1);
	if (r < 0)
		return r;
	r = io_uring_peek_cqe(ring, &cqe);
	if (r < 0)
		return r;
	r = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return r;
}

static void ring_probe(const struct check_context *context, struct check_result *result)
{
	struct io_uring ring;
	uint64_t disabled = 0;
	int r;

	(void)context;
	if (!file_number("/proc/sys/kernel/io_uring_disabled", &disabled) && disabled == 2) {
		check_missing(result, "kernel.io_uring_disabled is 2");
		return;
	}
	if (ring_open(&ring, result) < 0)
		return;
	io_uring_prep_nop(io_uring_get_sqe(&ring));
	r = ring_result(&ring);
	if (r < 0)
		check_missing(result, "NOP: %s", strerrordesc_np(-r));
	else
		check_ok(result, "SINGLE_ISSUER and DEFER_TASKRUN");
}

static void waitid_probe(const struct check_context *context, struct check_result *result)
{
	struct io_uring ring;
	struct io_uring_sqe *sqe;
	siginfo_t info = { 0 };
	int pid, r;

	(void)context;
	if (ring_open(&ring, result) < 0)
		return;
	pid = probe_child_start(0, -1);
	if (pid == 0)
		_exit(7);
	if (pid < 0) {
		check_missing(result, "clone3: %s", strerrordesc_np(-pid));
		return;
	}
	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_rw(OP_WAITID, sqe, pid, NULL, P_PID, 0);
	sqe->file_index = WEXITED;
	sqe->addr2 = (uint64_t)(uintptr_t)&info;
	r = ring_result(&ring);
	if (r < 0)
		check_missing(result, "WAITID: %s", strerrordesc_np(-r));
	else if (info.si_pid != pid || info.si_status != 7)
		check_missing(result, "WAITID told another end");
	else
		check_ok(result, "a child's end was awaited");
}

static void message_probe(const struct check_context *context, struct check_result *result)
{
	struct io_uring from, to;
	struct io_uring_cqe *cqe;
	int r;

	(void)context;
	if (ring_open(&from, result) < 0 || ring_open(&to, result) < 0)
		return;
	io_uring_prep_msg_ring(io_uring_get_sqe(&from), to.ring_fd, 4, 5, 0);
	r = ring_result(&from);
	if (r < 0) {
		check_missing(result, "MSG_RING: %s", strerrordesc_np(-r));
		return;
	}
	r = io_uring_wait_cqe(&to, &cqe);
	if (r < 0 || cqe->res != 4 || cqe->user_data != 5)
		check_missing(result, "MSG_RING did not arrive");
	else
		check_ok(result, "a message went from ring to ring");
}

/* A wait for a value that is not there ends at once, with EAGAIN. */
static void futex_probe(const struct check_context *context, struct check_result *result)
{
	struct io_uring ring;
	struct io_uring_sqe *sqe;
	uint32_t word = 1;
	int r;

	(void)context;
	if (ring_open(&ring, result) < 0)
		return;
	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_rw(OP_FUTEX_WAIT, sqe, FUTEX2_U32, &word, 0, 0);
	sqe->addr3 = UINT32_MAX; /* any bit */
	r = ring_result(&ring);
	if (r == -EAGAIN)
		check_ok(result, "FUTEX_WAIT compares");
	else
		check_missing(result, "FUTEX_WAIT: %s", strerrordesc_np(r < 0 ? -r : 0));
}

const struct check_probe check_ring_probes[] = {
	{ "io_uring", true, 0, ring_probe, "no shard can run",
	  "sysctl -w kernel.io_uring_disabled=0; use a kernel with CONFIG_IO_URING" },
	{ "io_uring-waitid", true, 0, waitid_probe, "ends of processes cannot be awaited",
	  "use Linux 6.12" },
	{ "io_uring-message", true, 0, message_probe, "shards cannot talk to each other",
	  "use Linux 6.12" },
	{ "io_uring-futex", false, 0, futex_probe, "doorbells in memory cannot be waited for",
	  "use Linux 6.12" },
	{ 0 },
};
