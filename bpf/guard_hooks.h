/* Programs on the instance's cgroup, pinned where that is possible. For guard*.c only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <bpf/libbpf.h>

struct guard_pins;
struct guard_violation_maps;

enum {
	GUARD_HOOKS_MAX = 32,
	/* Until Linux 6.7's headers are the minimum. */
	GUARD_ATTACH_UNIX_CONNECT = 49,
	GUARD_ATTACH_UNIX_SENDMSG = 50,
};

/* One program: by a pinned link, or bare where nothing can be pinned. */
struct guard_hook {
	struct bpf_link *link;
	int bare_fd; /* of the program, borrowed; -1 */
	enum bpf_attach_type type;
};

struct guard_hooks {
	int cgroup_fd;		       /* borrowed */
	const struct guard_pins *pins; /* borrowed */
	bool pinned;		       /* until a link could not be */
	uint32_t count;
	struct guard_hook all[GUARD_HOOKS_MAX];
};

/* What guard_shared.c and guard_egress.c need for their programs. `log` is the verifier's. */
struct guard_programs_options {
	struct guard_hooks *hooks;
	const struct guard_violation_maps *violations;
	uint32_t slot_level;
	char *log;
	size_t log_bytes;
};

/* Enforced from here on; where it cannot be pinned, by a bare attachment, which needs no owner. */
int guard_hooks_attach(struct guard_hooks *hooks, const struct bpf_program *program);
/* Those from number `first` on. */
void guard_hooks_detach(struct guard_hooks *hooks, uint32_t first);
/* Detach bare programs of ours from the cgroup, but not those given (NULL: none). */
void guard_hooks_sweep(int cgroup_fd, const struct guard_hooks *but);
