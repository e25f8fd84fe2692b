/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What went out, by where it went to, and the places where most of it did. Part of egress.bpf.c,
 * after vmlinux.h.
 */
#pragma once

#include <bpf/bpf_helpers.h>

#include "bpf/policy.h"
#include "bpf/policy_egress.h"

enum { TOP_BYTES_MIN = 65536 };

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, POLICY_EGRESS_FLOWS_MAX);
	__type(key, struct policy_egress_flow_key);
	__type(value, struct policy_egress_flow);
} egress_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, POLICY_SANDBOXES_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct policy_cgroup);
	__type(value, struct policy_egress_tops);
} egress_tops SEC(".maps");

/* Where a place stands or has to go. */
struct top_search {
	struct policy_egress_tops *tops;
	const struct policy_egress_flow_key *key;
	__u64 least_bytes;
	__u32 at;
	bool is_found; /* it stands there already, or nothing does */
};

static long top_look(__u64 i, void *context)
{
	struct top_search *search = context;
	const struct policy_egress_flow_key *key = search->key;
	const struct policy_egress_top *top;
	const __u64 *a, *b = (const __u64 *)key->address;

	if (i >= POLICY_EGRESS_TOPS_MAX)
		return 1;
	top = &search->tops->tops[i];
	a = (const __u64 *)top->address;
	search->is_found = !top->bytes || (a[0] == b[0] && a[1] == b[1] && top->port == key->port &&
					   top->protocol == key->protocol);
	if (search->is_found || top->bytes < search->least_bytes) {
		search->at = (__u32)i;
		search->least_bytes = top->bytes;
	}
	return search->is_found;
}

/* Among the places where most went, if it is one. Rare: who finds it busy comes again. */
static __always_inline void top_note(const struct policy_cgroup *slot,
				     const struct policy_egress_flow_key *key, __u32 rule,
				     __u64 bytes)
{
	struct top_search search = { .tops = bpf_map_lookup_elem(&egress_tops, slot),
				     .key = key,
				     .least_bytes = ~0ULL };
	struct policy_egress_top *top;

	if (!search.tops || __sync_val_compare_and_swap(&search.tops->is_busy, 0, 1))
		return;
	bpf_loop(POLICY_EGRESS_TOPS_MAX, top_look, &search, 0);
	if (search.at < POLICY_EGRESS_TOPS_MAX) {
		top = &search.tops->tops[search.at];
		if (search.is_found || bytes > top->bytes) {
			__builtin_memcpy(top->address, key->address, sizeof(top->address));
			top->port = key->port;
			top->protocol = key->protocol;
			top->rule = rule;
			if (bytes > top->bytes)
				top->bytes = bytes;
		}
	}
	__sync_val_compare_and_swap(&search.tops->is_busy, 1, 0);
}

/* Whether a number has got another bit in front. */
static __always_inline bool has_doubled(__u64 before, __u64 after)
{
	return (before ^ after) > (before & after);
}

static __always_inline void flow_count(const struct policy_egress_flow_key *key,
				       struct policy_egress_flow *flow,
				       const struct policy_egress_flow *first)
{
	const struct policy_cgroup slot = { .cgroup_id = key->cgroup_id };
	__u64 before;

	if (!flow) {
		(void)bpf_map_update_elem(&egress_flows, key, first, BPF_ANY);
		top_note(&slot, key, first->rule, first->bytes);
		return;
	}
	before = __sync_fetch_and_add(&flow->bytes, first->bytes);
	if (flow->policy != first->policy || flow->drops != first->drops) {
		flow->rule = first->rule;
		flow->drops = first->drops;
		flow->policy = first->policy;
	}
	if (before + first->bytes >= TOP_BYTES_MIN && has_doubled(before, before + first->bytes))
		top_note(&slot, key, flow->rule, before + first->bytes);
}
