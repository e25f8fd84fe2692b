/*
 * Owns churn.bpf.c as loaded and attached, its map and the reading end of its ring. Called by the
 * container backend: by its governor, and by shards where a slot gets or loses a limit.
 *
 * Must hold: it is attached as long as it is open, and a slot without a limit costs its processes
 * one look-up.
 */
#include "bpf/guard_churn.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/guard_ring.h"
#include "bpf/policy.h" /* the skeleton speaks of its structs */
#include "bpf/churn.skel.h"

enum { BURST_DIVISOR = 4, NS_PER_S = 1000000000, NS_PER_MS = 1000000 };

_Static_assert((int)GUARD_CHURN_ENDS == (int)POLICY_CHURN_ENDS, "as they come");
_Static_assert((int)GUARD_CHURN_TIME == (int)POLICY_CHURN_TIME, "as they come");

_Static_assert((int)GUARD_CHURN_SAMPLE_NS == (int)POLICY_HOG_SAMPLE_NS, "as they come");

struct guard_churn {
	struct churn_bpf *object;
	struct guard_ring ring;
	struct bpf_link **samplers; /* one for each CPU */
	int sampler_count;
};

static int object_load(struct guard_churn *churn, uint32_t burst_ms)
{
	churn->object = churn_bpf__open();
	if (!churn->object)
		return -errno;
	churn->object->rodata->hog_burst_ns = burst_ms * (uint64_t)NS_PER_MS;
	return churn_bpf__load(churn->object);
}

int guard_churn_open(uint32_t burst_ms, struct guard_churn **ret)
{
	struct guard_churn *churn = calloc(1, sizeof(*churn));
	libbpf_print_fn_t print;
	int r;

	if (!churn)
		return -ENOMEM;
	churn->ring.fd = -1;
	print = libbpf_set_print(NULL); /* the caller says it in one line */
	r = object_load(churn, burst_ms);
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

/* The clock of a CPU, which needs no hardware. A link owns its event. */
static int sampler_open(struct guard_churn *churn, int cpu)
{
	struct perf_event_attr event = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(event),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = POLICY_HOG_SAMPLE_NS,
		.exclude_idle = 1,
	};
	struct bpf_link *link;
	int r, fd = (int)syscall(SYS_perf_event_open, &event, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0)
		return errno == ENODEV ? 0 : -errno; /* a CPU that is off */
	link = bpf_program__attach_perf_event(churn->object->progs.dsec_hog, fd);
	if (!link) {
		r = -errno;
		(void)close(fd); /* it did not become the link's */
		return r;
	}
	churn->samplers[churn->sampler_count++] = link;
	return 0;
}

static void samplers_close(struct guard_churn *churn)
{
	while (churn->sampler_count)
		(void)bpf_link__destroy(churn->samplers[--churn->sampler_count]); /* detaches */
	free(churn->samplers);
	churn->samplers = NULL;
}

int guard_churn_sample(struct guard_churn *churn)
{
	const int cpus = libbpf_num_possible_cpus();
	libbpf_print_fn_t print;
	int r = cpus < 0 ? cpus : 0;

	if (r < 0)
		return r;
	churn->samplers = calloc((size_t)cpus, sizeof(*churn->samplers));
	if (!churn->samplers)
		return -ENOMEM;
	print = libbpf_set_print(NULL); /* the caller says it in one line */
	for (int cpu = 0; cpu < cpus && r == 0; cpu++)
		r = sampler_open(churn, cpu);
	libbpf_set_print(print);
	if (r < 0)
		samplers_close(churn);
	return r;
}

void guard_churn_close(struct guard_churn *churn)
{
	if (!churn)
		return;
	samplers_close(churn);
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
	if (limit->per_s) {
		known.interval_ns = NS_PER_S / limit->per_s;
		known.interval_ns += !known.interval_ns;
	}
	known.sandbox = limit->sandbox;
	known.shard = limit->shard;
	known.slot = limit->slot;
	known.processes_max = limit->processes_max;
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

struct guard_churn_forks guard_churn_forks(const struct guard_churn *churn, uint64_t leaf_id)
{
	const struct policy_cgroup leaf = { .cgroup_id = leaf_id };
	struct policy_hog hog = { 0 };

	if (bpf_map_lookup_elem(bpf_map__fd(churn->object->maps.hogs), &leaf, &hog) < 0)
		hog = (struct policy_hog){ 0 }; /* others were seen since */
	return (struct guard_churn_forks){ hog.samples, hog.forks };
}

int guard_churn_next(struct guard_churn *churn, struct guard_churn_event *ret)
{
	struct policy_churn_event event;

	if (!guard_ring_next(&churn->ring, &event, sizeof(event)))
		return 0;
	*ret = (struct guard_churn_event){
		.what = (enum guard_churn_what)event.what,
		.leaf_id = event.leaf_id,
		.cgroup_id = event.cgroup_id,
		.sandbox = event.sandbox,
		.shard = event.shard,
		.slot = event.slot,
		.processes_max = event.processes_max,
	};
	return 1;
}
