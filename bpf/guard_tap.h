/*
 * The policy of virtual machines, at their taps: cgroup programs do not see a guest's sockets. What
 * a machine sends passes an XDP program (tap.bpf.c) that libxdp puts there, beside those of others
 * where the kernel can have several. What is sent to it is not looked at here.
 *
 * Called from one thread, in the network namespace of the taps. The programs stay on the taps when
 * the engine dies, and go with the taps. Where /sys/fs/bpf is no bpffs, libxdp mounts one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct guard_destination;
struct guard_taps;

enum { GUARD_FLOWS_MAX = 65536 };

struct guard_tap {
	uint64_t cgroup_id; /* of the sandbox */
	uint32_t policy;    /* whose destinations hold */
	uint8_t mac[6];
	bool has_address4, has_address6;
	uint8_t address4[4], address6[16];
};

/* Out of a machine. */
struct guard_tap_counts {
	uint64_t passed_packets, passed_bytes;
	uint64_t refused_packets, refused_bytes; /* by policy */
	uint64_t spoofed_packets;		 /* from an address that is not its own */
	uint64_t malformed_packets; /* short, fragmented, with options, of another protocol */
};

/* Of one machine to one place, since it was set. */
struct guard_flow {
	uint8_t address[16];
	uint16_t port;
	uint8_t protocol;
	bool is_refused;
	uint32_t rule; /* 0: for want of one */
	uint64_t packets, bytes;
};

/* -EOPNOTSUPP: the kernel takes no XDP programs; -ENOMEM, or what it said. */
int guard_taps_open(struct guard_taps **ret);
/* The programs stay where they are. NULL is fine. */
void guard_taps_close(struct guard_taps *taps);

/*
 * From here on the interface passes only what the tap may. Again: its new settings, without a
 * moment between. -ENODEV, -E2BIG (POLICY_TAPS_MAX), -EBUSY: somebody else's program is there and
 * this kernel has room for one only.
 */
int guard_tap_set(struct guard_taps *taps, uint32_t interface, const struct guard_tap *tap);
/* It is nobody's any more: the program is taken off, what was counted is forgotten. */
int guard_tap_clear(struct guard_taps *taps, uint32_t interface);
int guard_tap_counts(const struct guard_taps *taps, uint32_t interface,
		     struct guard_tap_counts *ret);
/* The latest flows of it, at most `max`, in no order: how many, or -errno. */
int guard_tap_flows(const struct guard_taps *taps, uint32_t interface, struct guard_flow *ret,
		    uint32_t max);

/*
 * One more, or another in its place. -EINVAL: prefix, ports or their count are out of range;
 * -ENOSPC: POLICY_DESTINATIONS_MAX.
 */
int guard_destination_set(struct guard_taps *taps, uint32_t policy,
			  const struct guard_destination *destination);
/* All of a policy. */
int guard_destinations_drop(struct guard_taps *taps, uint32_t policy);
