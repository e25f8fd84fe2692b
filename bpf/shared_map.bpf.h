/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The map of sandboxes that share a network namespace, who of them is asking, and what its
 * addresses are called. For shared.bpf.c, which includes vmlinux.h and the helpers before it.
 */
#pragma once

extern void *bpf_cast_to_kern_ctx(void *context) __ksym __weak;

enum { HOOK_DENY = 0, HOOK_ALLOW = 1, HOOK_ALLOW_LOW_PORT = 3 };
enum { INET = 2, INET6 = 10, STREAM = 1, DATAGRAM = 2, TCP_LISTENING = 10, LOOPBACK = 1 };
enum { ETHERTYPE_4 = 0x0800, ETHERTYPE_6 = 0x86dd };
enum {
	ERROR_NOT_PERMITTED = 1,
	ERROR_NO_PROTOCOL = 93,
	ERROR_ADDRESS_USED = 98,
	ERROR_NO_ADDRESS = 99,
	ERROR_NO_ROOM = 105,
};

#define LOOPBACK4 bpf_htonl(0x7f000001)
#define MAPPED	  bpf_htonl(0xffff)
#define ONE	  bpf_htonl(1)

const volatile __u32 slot_level = 0;

/* Of entries of `shared`: guard_shared.c counts them. */
__u64 generations = 0;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, POLICY_SANDBOXES_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct policy_cgroup);
	__type(value, struct policy_shared);
} shared SEC(".maps");

/*
 * What most packets need, looked up by number and not by hash; guard_shared.c writes them. By
 * address: whose it is. By cgroup: its id, if `shared` says nothing of it.
 */
__u64 hints[POLICY_SHARED_HINTS] = {};
__u64 strangers[POLICY_SHARED_HINTS] = {};

/* What a program called the addresses of its socket; getsockname() tells it that again. */
enum said { SAID_REAL, SAID_LOOPBACK4, SAID_ANY4, SAID_LOOPBACK6, SAID_ANY6, SAID_MAPPED };

/*
 * A socket that holds a port, or was told more than follows from its addresses. Not cloned: an
 * accepted one has none, so that its end is not counted for a beginning that was not. It may end in
 * another cgroup, or in nobody's.
 */
struct held {
	struct policy_cgroup slot;
	__u64 generation;
	__u32 local_said, local4, peer_said, peer4;
	__u32 is_datagram, is_counted;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct held);
} sockets SEC(".maps");

struct address6 {
	__u32 word[4];
};

/* ---- who ---- */

static __always_inline struct policy_shared *current_shared(void)
{
	struct policy_cgroup slot = { .cgroup_id = bpf_get_current_ancestor_cgroup_id(slot_level) };

	return slot.cgroup_id ? bpf_map_lookup_elem(&shared, &slot) : NULL;
}

/* ---- addresses ---- */

static __always_inline bool is_loopback4(__u32 address)
{
	return bpf_ntohl(address) >> 24 == 127;
}

/* What a sandbox may call itself. */
static __always_inline bool is_local4(__u32 address)
{
	return !address || is_loopback4(address);
}

/* Where egress.bpf.c is asked: somewhere that is none of the addresses of sandboxes here. */
static __always_inline bool is_way_out(const struct policy_shared *self, __u32 address)
{
	const __u32 mask = ~(__u32)(POLICY_SHARED_V4_COUNT - 1);

	return self->leads_out & POLICY_LEADS_OUT_4 &&
	       (bpf_ntohl(address) & mask) != POLICY_SHARED_V4;
}

static __always_inline bool is_any6(const struct address6 *a)
{
	return !(a->word[0] | a->word[1] | a->word[2] | a->word[3]);
}

static __always_inline bool is_loopback6(const struct address6 *a)
{
	return !(a->word[0] | a->word[1] | a->word[2]) && a->word[3] == ONE;
}

static __always_inline bool is_mapped(const struct address6 *a)
{
	return !(a->word[0] | a->word[1]) && a->word[2] == MAPPED;
}

static __always_inline bool is_own6(const struct policy_shared *self, const struct address6 *a)
{
	return a->word[0] == self->address6[0] && a->word[1] == self->address6[1] &&
	       a->word[2] == self->address6[2] && a->word[3] == self->address6[3];
}

static __always_inline bool is_way_out6(const struct policy_shared *self, const struct address6 *a)
{
	return self->leads_out & POLICY_LEADS_OUT_6 && !is_mapped(a) &&
	       (a->word[0] != bpf_htonl(POLICY_SHARED_V6_0) || a->word[1]);
}

/* The verifier wants the context's words one by one. */
static __always_inline struct address6 address_get(struct bpf_sock_addr *call)
{
	return (struct address6){ { call->user_ip6[0], call->user_ip6[1], call->user_ip6[2],
				    call->user_ip6[3] } };
}

static __always_inline void address_set(struct bpf_sock_addr *call, struct address6 to)
{
	call->user_ip6[0] = to.word[0];
	call->user_ip6[1] = to.word[1];
	call->user_ip6[2] = to.word[2];
	call->user_ip6[3] = to.word[3];
}

static __always_inline struct address6 mapped(__u32 address4)
{
	return (struct address6){ { 0, 0, MAPPED, address4 } };
}

static __always_inline struct address6 own6(const struct policy_shared *self)
{
	return (struct address6){ { self->address6[0], self->address6[1], self->address6[2],
				    self->address6[3] } };
}

static const struct address6 any6 = { { 0, 0, 0, 0 } };

static __always_inline struct address6 loopback6(void)
{
	return (struct address6){ { 0, 0, 0, ONE } };
}
