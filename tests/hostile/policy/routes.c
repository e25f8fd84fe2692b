/*
 * Entries into the kernel beside the usual one, for the attacks beside this: io_uring, inline, by a
 * worker and by a thread that polls, and the 32-bit table. Each answers as errno does.
 */
#include <errno.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/entry_32.h"
#include "tests/hostile/policy/attack.h"

enum { ENTRIES = 4, LOW_BYTES = 4096 };

struct ring {
	int fd;
	struct io_uring_params params;
	uint8_t *rings;
	struct io_uring_sqe *entries;
};

static int ring_open(struct ring *ring, int how)
{
	size_t bytes;

	memset(ring, 0, sizeof *ring);
	ring->params.flags = how == RING_POLLED ? IORING_SETUP_SQPOLL : 0;
	ring->params.sq_thread_idle = 1000;
	ring->fd = (int)syscall(SYS_io_uring_setup, ENTRIES, &ring->params);
	if (ring->fd < 0)
		return errno;
	/* One mapping for both, since 5.4. */
	bytes = ring->params.cq_off.cqes + ring->params.cq_entries * sizeof(struct io_uring_cqe);
	ring->rings =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_SQ_RING);
	ring->entries = mmap(NULL, ENTRIES * sizeof *ring->entries, PROT_READ | PROT_WRITE,
			     MAP_SHARED, ring->fd, IORING_OFF_SQES);
	return ring->rings == MAP_FAILED || ring->entries == MAP_FAILED ? errno : 0;
}

int ring_try(struct io_uring_sqe *entry, int how)
{
	const unsigned flags = IORING_ENTER_GETEVENTS |
			       (how == RING_POLLED ? IORING_ENTER_SQ_WAKEUP : 0);
	struct io_uring_cqe *done;
	struct ring ring;
	int r = ring_open(&ring, how);

	if (r)
		return r;
	if (how == RING_WORKER)
		entry->flags |= IOSQE_ASYNC;
	ring.entries[0] = *entry;
	*(uint32_t *)(ring.rings + ring.params.sq_off.array) = 0;
	__atomic_store_n((uint32_t *)(ring.rings + ring.params.sq_off.tail), 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, ring.fd, 1, 1, flags, NULL, 0) < 0)
		return errno;
	done = (struct io_uring_cqe *)(ring.rings + ring.params.cq_off.cqes);
	r = done->res < 0 ? -done->res : 0;
	(void)close(ring.fd); /* only asked */
	return r;
}

int call_32_plain(long number, long first, long second, long third)
{
	long r = entry_32(number, first, second, third);

	return r < 0 ? (int)-r : 0;
}

int call_32(long number, const char *text, long second, long third)
{
	char *low = mmap(NULL, LOW_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);

	if (low == MAP_FAILED)
		return errno;
	(void)strncpy(low, text, LOW_BYTES - 1);
	return call_32_plain(number, (long)(uintptr_t)low, second, third);
}
