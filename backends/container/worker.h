/*
 * The launcher worker from the inside: its state and what its files offer each other. Functions
 * that return long give -errno on failure and leave the step in worker.attempt.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backends/container/attempt.h"
#include "backends/container/launch.h"
#include "backends/container/walls.h"

enum {
	WORKER_MASKS_MAX = 16,
	WORKER_CPUS_MAX = 1024, /* as in hogs.c */
	WORKER_DESCRIPTORS_MAX = 8,
	WORKER_LIMIT_MS = 1000, /* where a request names none */
	WORKER_PATH_BYTES = 64,
	WORKER_CORE_NONE = 1, /* a size below any core: see limits_set() */
	WORKER_PROOF_BYTES_MAX = 24 * 1024,
	WORKER_LIMITS_BYTES = 4096,
};

/* A file or folder of proc that sandboxes do not see. */
struct proc_mask {
	const char *name;
	const char *cover;	/* the path of what lies over it, in the worker's mount namespace */
	uint64_t device, inode; /* of the cover */
};

/* One request and what it leads to. */
struct order {
	struct launch_request request;
	struct launch_reply reply;
	int descriptors[WORKER_DESCRIPTORS_MAX]; /* closed when the order is done */
	uint32_t descriptor_count;
	int reply_fd; /* goes with the reply; -1: none */
	const struct launch_limit *limits;
	struct walls walls;  /* of LAUNCH_WALLS; in worker.sheet */
	char **argv, **envp; /* ends with NULL; in the payload */
	const char *cwd;
};

struct worker {
	uint64_t secret;
	int own_mount_fd, own_pid_fd, own_ipc_fd; /* the namespaces to come back to */
	struct attempt attempt;
	struct proc_mask masks[WORKER_MASKS_MAX];
	uint32_t mask_count;
	uint64_t cpus[WORKER_CPUS_MAX / 64]; /* where it could run when it began */
	uint32_t cpus_bytes;		     /* 0: there are more, and it is never moved */
	struct stack *stacks;
	uint32_t stacks_lost;
	int sysctl_fd; /* of sysctl_renew(); 0: none yet */
	uint32_t sysctl_uses;
	struct order order;
	uint32_t pristine_bytes;	  /* 0: not known yet */
	long limits_bytes;		  /* the same */
	char limits[WORKER_LIMITS_BYTES]; /* its own, as proc has them */
	char pristine[WORKER_PROOF_BYTES_MAX], proof[WORKER_PROOF_BYTES_MAX];
	char *pointers[LAUNCH_ARGUMENTS_MAX + 3];   /* two ends, and room for HOME */
	uint32_t bound_count;			    /* 0: the worker is not bound to a filter */
	struct sock_filter bound[WALLS_FILTER_MAX]; /* as the sheet had it */
	char sheet[WALLS_BYTES_MAX] __attribute__((aligned(8)));
	char payload[LAUNCH_PAYLOAD_BYTES_MAX] __attribute__((aligned(8)));
};

/* For what leaves a worker unfit: a line in the log, and its end. The engine starts another. */
__attribute__((noreturn)) void worker_die(const char *what, long error);

/* resolver_mount.c, in the child: the sandbox's root is at root_fd, the worker's still its own. */
struct child;
long resolver_mount(struct child *child, int root_fd);
/* worker_start.c: everything up to the first request; a failure ends the worker. */
void worker_start(struct worker *w, int shard, pid_t engine, const char *resolver);

/* slot_build.c: slots and images in the vault. */
long slot_build(struct worker *w);
long slot_drop(struct worker *w);
long slot_sweep(struct worker *w);
long slot_stat(struct worker *w);
/* slot_freeze.c */
long slot_freeze(struct worker *w);
long slot_thaw(struct worker *w);
long image_attach(struct worker *w);
long image_detach(struct worker *w);
long vault_enter(struct worker *w);
void vault_leave(struct worker *w); /* cannot fail: a worker that is stuck inside ends */
long slot_open(struct worker *w);   /* O_PATH of /slots/<slot>; the worker is in the vault */
long nsfs_attach(struct worker *w, int ns_fd, int slot_fd, const char *name);

/* overlay.c: lower, up and root of a slot; the worker is in the vault, in the slot's folder. */
long overlay_make(struct worker *w);
long overlay_drop(struct worker *w); /* up and root; fine where there are none */
long overlay_baseline(struct worker *w);

/* sysctl.c: has w->sysctl_fd be a proc in which few settings were opened. */
long sysctl_renew(struct worker *w, uint32_t step);

/* userns.c: a descriptor of a new user namespace for the range at request.uid_base. */
long userns_make(struct worker *w);

/* cgroup.c */
long cgroup_make(struct worker *w);	 /* the slot's, with leaf 0 */
long cgroup_limit(struct worker *w);	 /* the slot's, as the request says */
long cgroup_oom_count(struct worker *w); /* into the reply */
/* After a clone that failed: LAUNCH_CROWDED into the reply where its own processes are why. */
void cgroup_crowd_tell(struct worker *w);
long cgroup_open(struct worker *w);	 /* a descriptor of the slot's, signed with its sandbox */
long cgroup_leaf_open(struct worker *w); /* made if absent; -EBUSY: see LAUNCH_LEAF_USED */
long cgroup_leaf_kill(struct worker *w);
long cgroup_leaf_signal(struct worker *w); /* signal.c */
/* Whoever is left in the leaf is killed, and then the leaf goes. */
long cgroup_leaf_finish(struct worker *w);
long cgroup_kill(struct worker *w); /* everything in the slot's, within request.limit_ms */
long cgroup_drop(struct worker *w); /* -EBUSY: processes are left, and nothing was done */
/* All of the slot's, until request.limit_ms has passed: -ETIMEDOUT, and nobody is frozen. */
long cgroup_freeze(struct worker *w);
long cgroup_thaw(struct worker *w);
long cgroup_cpu(struct worker *w);
long cgroup_stat(struct worker *w);

/* proof.c: the leaf's end, what was used, and whether the sandbox is as it was. */
long program_finish(struct worker *w);

/* sandbox.c: PID 1; program.c: an exec; wall_narrow.c: mounts around what runs. */
long sandbox_narrow(struct worker *w);
long sandbox_spawn(struct worker *w);
long program_exec(struct worker *w);
