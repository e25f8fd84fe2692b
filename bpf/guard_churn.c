/*
 * Owns churn.bpf.c as loaded and attached, its map and the reading end of its ring. Called by the
 * container backend: by its governor, and by shards where a slot gets or loses a limit.
 *
 * Must hold: it is attached as long as it is open, and a slot without a limit costs its processes
 * one look-up.
 */
#include "bpf/guard_churn.h"

#include <errno.h>
#include <stdlib.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/guard_ring.h"
#include "bpf/policy.h" /* the skeleton speaks of its structs */
#include "bpf/churn.skel.h"

enum { BURST_DIVISOR = 4, NS_PER_S = 1000000000 };

struct guard_churn {
	struct churn_bpf *object;
	struct guard_ring ring;
};

int guard_churn_open(struct guard_churn **ret)
{
	struct guard_churn *churn = calloc(1, sizeof(*churn));
	libbpf_print_fn_t print;
	int r;

	if (!churn)
		return -ENOMEM;
	churn->ring.fd = -1;
	print = libbpf_set_print(NULL); /* the caller says it in one line */
	churn->object = churn_bpf__open_and_load();
	r = churn->object ? 0 : -errno;
	if (r == 0)
		r = guard_ring_open(bpf_map__fd(churn->object->maps.churn_events),
				    POLICY_CHURN_RING_BYTES, &churn->ring);
	if (r == 0)
		r = churn_bpf__attach(churn->object);
	libbpf_set_print(print);
	if (r < 0) {
		guard_churn_close(churn);
		return r;
	}
	*ret = churn;
	return 0;
}

void guard_churn_close(struct guard_churn *churn)
{
	if (!churn)
		return;
	guard_ring_close(&churn->ring);
	churn_bpf__destroy(churn->object);
	free(churn);
}

int guard_churn_fd(const struct guard_churn *churn)
{
	return churn->ring.fd;
}

int guard_churn_set(struct guard_churn *churn, uint64_t cgroup_id,
		    const struct guard_churn_limit *limit)
{
	const int fd = bpf_map__fd(churn->object->maps.churn);
	const struct policy_cgroup slot = { .cgroup_id = cgroup_id };
	struct policy_churn known = { .burst_ns = NS_PER_S / BURST_DIVISOR };
	int r;

	if (!limit) {
		r = bpf_map_delete_elem(fd, &slot);
		return r == -ENOENT ? 0 : r;
	}
	if (!limit->per_s)
		return -EINVAL;
	known.interval_ns = NS_PER_S / limit->per_s;
	known.interval_ns += !known.interval_ns;
	known.sandbox = limit->sandbox;
	known.shard = limit->shard;
	known.slot = limit->slot;
	return bpf_map_update_elem(fd, &slot, &known, BPF_ANY);
}

/* In the kernel, where the element is changed in place, or is another's and left alone. */
int guard_churn_leave(struct guard_churn *churn, uint64_t cgroup_id, uint64_t sandbox,
		      uint32_t left)
{
	struct policy_churn_leave asked = { cgroup_id, sandbox, left, 0 };
	LIBBPF_OPTS(bpf_test_run_opts, run, .ctx_in = &asked, .ctx_size_in = sizeof(asked));
	int r = bpf_prog_test_run_opts(bpf_program__fd(churn->object->progs.dsec_churn_leave),
				       &run);

	if (r < 0)
		return r;
	return run.retval ? -ENOENT : 0;
}

int guard_churn_next(struct guard_churn *churn, struct guard_churn_event *ret)
{
	struct policy_churn_event event;

	if (!guard_ring_next(&churn->ring, &event, sizeof(event)))
		return 0;
	*ret = (struct guard_churn_event){
		.leaf_id = event.leaf_id,
		.cgroup_id = event.cgroup_id,
		.sandbox = event.sandbox,
		.shard = event.shard,
		.slot = event.slot,
	};
	return 1;
}
