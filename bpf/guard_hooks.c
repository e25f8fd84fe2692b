/*
 * Owns what is attached to the instance's cgroup. Called by guard.c and guard_shared.c. Must hold:
 * what was attached is detached at the end, also where nothing could be pinned; what a dead engine
 * attached is found by its programs' names.
 */
#include "bpf/guard_hooks.h"

#include <errno.h>
#include <string.h>

#include <bpf/bpf.h>

#include "bpf/guard_pins.h"
#include "engine/base/cleanup.h"

#define PROGRAM_PREFIX "dsec_"

int guard_hooks_attach(struct guard_hooks *hooks, const struct bpf_program *program)
{
	struct guard_hook *hook = &hooks->all[hooks->count];
	int r;

	if (hooks->count >= GUARD_HOOKS_MAX)
		return -E2BIG;
	hook->type = bpf_program__expected_attach_type(program);
	hook->bare_fd = -1;
	if (hooks->pinned) {
		hook->link = bpf_program__attach_cgroup(program, hooks->cgroup_fd);
		if (!hook->link)
			return -errno;
		r = guard_pins_add(hooks->pins, bpf_link__fd(hook->link),
				   bpf_program__name(program));
		if (r == 0) {
			hooks->count++;
			return 0;
		}
		(void)bpf_link__destroy(hook->link); /* detaches in any case */
		hook->link = NULL;
		hooks->pinned = false;
	}
	r = bpf_prog_attach(bpf_program__fd(program), hooks->cgroup_fd, hook->type,
			    BPF_F_ALLOW_MULTI);
	if (r < 0)
		return r;
	hook->bare_fd = bpf_program__fd(program);
	hooks->count++;
	return 0;
}

void guard_hooks_detach(struct guard_hooks *hooks, uint32_t first)
{
	for (uint32_t i = first; i < hooks->count; i++) {
		struct guard_hook *hook = &hooks->all[i];

		if (hook->link) {
			(void)bpf_link__detach(hook->link); /* fails when the cgroup is gone */
			(void)bpf_link__destroy(hook->link);
			hook->link = NULL;
		}
		if (hook->bare_fd >= 0)
			(void)bpf_prog_detach2(hook->bare_fd, hooks->cgroup_fd, hook->type);
	}
	if (hooks->count > first)
		hooks->count = first;
}

static bool hooks_have(const struct guard_hooks *hooks, uint32_t id)
{
	for (uint32_t i = 0; hooks && i < hooks->count; i++) {
		struct bpf_prog_info info = {};
		uint32_t bytes = sizeof(info);

		if (hooks->all[i].bare_fd < 0)
			continue;
		if (bpf_obj_get_info_by_fd(hooks->all[i].bare_fd, &info, &bytes) == 0 &&
		    info.id == id)
			return true;
	}
	return false;
}

static void bare_detach(int cgroup_fd, enum bpf_attach_type type, const struct guard_hooks *but)
{
	uint32_t ids[64] = {}, count = 64, flags = 0;

	if (bpf_prog_query(cgroup_fd, type, 0, &flags, ids, &count) < 0)
		return; /* a kernel without this hook has nothing attached to it */
	for (uint32_t i = 0; i < count; i++) {
		auto_close int fd = bpf_prog_get_fd_by_id(ids[i]);
		struct bpf_prog_info info = {};
		uint32_t bytes = sizeof(info);

		if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &bytes) < 0)
			continue;
		if (strncmp(info.name, PROGRAM_PREFIX, strlen(PROGRAM_PREFIX)) ||
		    hooks_have(but, ids[i]))
			continue;
		(void)bpf_prog_detach2(fd, cgroup_fd, type); /* a link's has no bare attachment */
	}
}

void guard_hooks_sweep(int cgroup_fd, const struct guard_hooks *but)
{
	/* All that any program here is attached by. */
	static const int types[] = {
		BPF_CGROUP_INET_SOCK_CREATE,  BPF_CGROUP_INET_SOCK_RELEASE,
		GUARD_ATTACH_UNIX_CONNECT,    GUARD_ATTACH_UNIX_SENDMSG,
		BPF_CGROUP_INET4_BIND,	      BPF_CGROUP_INET6_BIND,
		BPF_CGROUP_INET4_POST_BIND,   BPF_CGROUP_INET6_POST_BIND,
		BPF_CGROUP_INET4_CONNECT,     BPF_CGROUP_INET6_CONNECT,
		BPF_CGROUP_UDP4_SENDMSG,      BPF_CGROUP_UDP6_SENDMSG,
		BPF_CGROUP_UDP4_RECVMSG,      BPF_CGROUP_UDP6_RECVMSG,
		BPF_CGROUP_INET4_GETPEERNAME, BPF_CGROUP_INET6_GETPEERNAME,
		BPF_CGROUP_INET4_GETSOCKNAME, BPF_CGROUP_INET6_GETSOCKNAME,
		BPF_CGROUP_INET_EGRESS,	      BPF_CGROUP_INET_INGRESS,
	};

	for (unsigned i = 0; i < sizeof(types) / sizeof(*types); i++)
		bare_detach(cgroup_fd, (enum bpf_attach_type)types[i], but);
}
