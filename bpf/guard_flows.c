/*
 * Cuts flows by iterators over sockets. Called by engine/flows.c on the control thread. Must hold:
 * an iterator sees the namespace of whoever opens it, so that a thread goes in there, and ends
 * there: nobody has to come back.
 */
#include "bpf/guard_flows.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/policy_shared.h"
#include "bpf/flows.skel.h"
#include "engine/base/cleanup.h"

struct cutting {
	struct flows_bpf *programs;
	int namespace_fd, error;
	uint32_t count;
};

/* Each byte is a socket. */
static int iterator_run(struct bpf_program *program, uint32_t *ret_count)
{
	struct bpf_link *link = bpf_program__attach_iter(program, NULL);
	char bytes[4096];
	ssize_t got;
	int r = 0;

	if (!link)
		return -errno;
	auto_close int fd = bpf_iter_create(bpf_link__fd(link));

	if (fd < 0)
		r = -errno;
	while (r == 0 && (got = read(fd, bytes, sizeof(bytes))) != 0) {
		if (got > 0)
			*ret_count += (uint32_t)got;
		else if (errno != EINTR && errno != EAGAIN)
			r = -errno;
	}
	(void)bpf_link__destroy(link); /* it was for this one use */
	return r;
}

static void *cutting_main(void *argument)
{
	struct cutting *cutting = argument;

	if (setns(cutting->namespace_fd, CLONE_NEWNET) < 0)
		cutting->error = -errno;
	if (cutting->error == 0)
		cutting->error =
			iterator_run(cutting->programs->progs.dsec_cut_tcp, &cutting->count);
	if (cutting->error == 0)
		cutting->error =
			iterator_run(cutting->programs->progs.dsec_cut_udp, &cutting->count);
	return NULL;
}

static int programs_load(const struct guard_flows *flows, struct flows_bpf **ret)
{
	struct flows_bpf *programs = flows_bpf__open();

	if (!programs)
		return errno == ENOMEM ? -ENOMEM : -EOPNOTSUPP;
	if (flows->address) {
		programs->rodata->address4 = htonl(POLICY_SHARED_V4 + flows->address);
		programs->rodata->address6[0] = htonl(POLICY_SHARED_V6_0);
		programs->rodata->address6[3] = htonl(flows->address);
		programs->rodata->cgroup_id = flows->cgroup_id;
	}
	if (flows_bpf__load(programs) == 0) {
		*ret = programs;
		return 0;
	}
	flows_bpf__destroy(programs);
	return errno == ENOMEM ? -ENOMEM : -EOPNOTSUPP;
}

int guard_flows_cut(const struct guard_flows *flows, uint32_t *ret_count)
{
	struct cutting cutting = { .namespace_fd = flows->namespace_fd };
	pthread_t thread;
	int r = programs_load(flows, &cutting.programs);

	if (r < 0)
		return r;
	r = -pthread_create(&thread, NULL, cutting_main, &cutting);
	if (r == 0) {
		(void)pthread_join(thread, NULL); /* it is ours, and ends */
		r = cutting.error;
	}
	flows_bpf__destroy(cutting.programs);
	if (r == 0)
		*ret_count = cutting.count;
	return r;
}
