/* The reading end of a BPF ring buffer with records of one size. For the guard's own streams. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct guard_ring {
	int fd; /* a copy; -1: not open */
	uint32_t bytes;
	size_t page_bytes;
	unsigned long *consumed;       /* ours to move */
	const unsigned long *produced; /* the kernel's; the data follows on the next page */
	const uint8_t *data;	       /* twice in a row, so that no record is cut */
};

/* On failure there is nothing to close. */
int guard_ring_open(int fd, uint32_t bytes, struct guard_ring *ret);
/*
 * The next record of that size; false: none waits. What is no such record is passed over: the
 * kernel is trusted with lengths, but only our own records are taken for them.
 */
bool guard_ring_next(struct guard_ring *ring, void *ret_record, size_t bytes);
/* Something may wait. */
bool guard_ring_waits(const struct guard_ring *ring);
/* Any number of times, also of one that is all zero but for fd -1. */
void guard_ring_close(struct guard_ring *ring);
