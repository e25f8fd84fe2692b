/*
 * Owns the mapping of a BPF ring buffer. Called by guard_exits.c and guard_violations.c, by one
 * thread at a time.
 *
 * Must hold: a record is copied before its place is given back, and given back before the next is
 * looked for.
 */
#include "bpf/guard_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int guard_ring_open(int fd, uint32_t bytes, struct guard_ring *ret)
{
	struct guard_ring ring = { .bytes = bytes };
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int r;

	ring.page_bytes = page;
	ring.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (ring.fd < 0)
		return -errno;
	ring.consumed = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, 0);
	if (ring.consumed == MAP_FAILED) {
		r = -errno;
		ring.consumed = NULL;
		guard_ring_close(&ring);
		return r;
	}
	ring.produced = mmap(NULL, page + 2UL * bytes, PROT_READ, MAP_SHARED, ring.fd, (off_t)page);
	if (ring.produced == MAP_FAILED) {
		r = -errno;
		ring.produced = NULL;
		guard_ring_close(&ring);
		return r;
	}
	ring.data = (const uint8_t *)ring.produced + page;
	*ret = ring;
	return 0;
}

bool guard_ring_waits(const struct guard_ring *ring)
{
	return __atomic_load_n(ring->consumed, __ATOMIC_RELAXED) !=
	       __atomic_load_n(ring->produced, __ATOMIC_SEQ_CST);
}

bool guard_ring_next(struct guard_ring *ring, void *ret_record, size_t record_bytes)
{
	unsigned long at = __atomic_load_n(ring->consumed, __ATOMIC_RELAXED);
	const uint32_t *header;
	uint32_t length, bytes;
	bool found = false;

	while (!found) {
		if (at == __atomic_load_n(ring->produced, __ATOMIC_SEQ_CST))
			return false;
		header = (const uint32_t *)(ring->data + (at & (ring->bytes - 1UL)));
		length = __atomic_load_n(header, __ATOMIC_ACQUIRE);
		if (length & BPF_RINGBUF_BUSY_BIT)
			return false; /* its submit wakes us */
		bytes = length & ~(uint32_t)BPF_RINGBUF_DISCARD_BIT;
		found = bytes == record_bytes && bytes == length;
		if (found)
			memcpy(ret_record, (const uint8_t *)header + BPF_RINGBUF_HDR_SZ, bytes);
		at += (bytes + BPF_RINGBUF_HDR_SZ + 7UL) & ~7UL;
		/* Seen before we look for more: the kernel wakes whom it sees to have come here. */
		__atomic_store_n(ring->consumed, at, __ATOMIC_SEQ_CST);
	}
	return true;
}

void guard_ring_close(struct guard_ring *ring)
{
	if (ring->consumed)
		munmap(ring->consumed, ring->page_bytes);
	if (ring->produced)
		munmap((void *)ring->produced, ring->page_bytes + 2UL * ring->bytes);
	if (ring->fd >= 0)
		close(ring->fd);
	*ring = (struct guard_ring){ .fd = -1 };
}
