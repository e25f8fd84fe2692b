/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The hash of a path, the same in BPF and in user space: hash = parent's hash * FACTOR + hash of
 * the component's name, modulo 2^64. FACTOR is odd, so a walk from a file up to its root can take
 * its components off again, last one first, and needs no memory for them.
 *
 * Must hold: a collision can only forbid too much, for rules only forbid. After policy.h.
 */
#pragma once

#ifndef __bpf__
#include <linux/types.h>
#endif

enum { POLICY_HASHED_BYTES = 64, POLICY_DEPTH_MAX = 128 };

#define POLICY_HASH_SEED    0x243f6a8885a308d3ULL
#define POLICY_HASH_FACTOR  0x9e3779b97f4a7c15ULL
#define POLICY_HASH_INVERSE 0xf1de83e19937733dULL /* FACTOR * INVERSE == 1 */

/* `words` are the name's first bytes, zero behind them; `length` is that of the whole name. */
static inline __attribute__((always_inline)) __u64 policy_name_hash(const __u64 words[8],
								    __u32 length)
{
	__u64 hash = length;

	for (int i = 0; i < POLICY_HASHED_BYTES / 8; i++) {
		hash = (hash ^ words[i]) * 0xbf58476d1ce4e5b9ULL;
		hash ^= hash >> 29;
	}
	return hash;
}
