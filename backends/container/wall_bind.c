/*
 * A worker that is bound: the filter of a policy is its own, and what it starts inherits it. To
 * give one to each child is dear: the kernel compiles it, asks it about each system call, and makes
 * pages read-only and writable again. Called by the worker's loop. Must hold: a bound worker serves
 * sheets with the very same filter and no others; what it and its children do on the way to a
 * program passes with the secret alone, which no program has.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>

#include "backends/container/kernel.h"
#include "backends/container/worker.h"

#define AT(field) ((uint32_t)offsetof(struct seccomp_data, field))

/*
 * Terminals, and SCHED_IDLE; the filter of every sandbox (seccomp.c) holds for these, too. What a
 * program asks without the secret goes on to the policy's filter, as what other calls do.
 */
uint32_t walls_bound_write(const struct walls *walls, uint64_t secret, struct sock_filter *ret)
{
	const struct sock_filter begin[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT(arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 8),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT(nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setscheduler, 0, 5),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT(args[5])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)secret, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT(args[5]) + 4),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(secret >> 32), 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const uint32_t begins = sizeof begin / sizeof *begin;

	_Static_assert(sizeof begin / sizeof *begin <= WALLS_BOUND_MAX, "no room for the filter");
	memcpy(ret, begin, sizeof begin);
	memcpy(ret + begins, walls->filter, walls->head->filter_count * sizeof *ret);
	return begins + walls->head->filter_count;
}

/* Once: a worker has room for one filter, and could not shed it. */
long walls_bind(struct worker *w)
{
	const struct walls *walls = &w->order.walls;
	struct sock_filter filter[WALLS_FILTER_MAX + WALLS_BOUND_MAX];
	struct sock_fprog program = { .filter = filter };
	long r;

	if (!walls->head || !walls->head->filter_count)
		return -EINVAL;
	program.len = (unsigned short)walls_bound_write(walls, w->secret, filter);
	r = LAUNCH_TRY(&w->attempt, LAUNCH_STEP_WALLS,
		       KERNEL_CALL(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&program));
	if (r < 0)
		return r;
	memcpy(w->bound, walls->filter, walls->head->filter_count * sizeof *w->bound);
	w->bound_count = walls->head->filter_count;
	return 0;
}

bool walls_suit(const struct worker *w)
{
	const struct walls *walls = &w->order.walls;
	const uint32_t op = w->order.request.op;

	if (!w->bound_count)
		return true;
	return (op == LAUNCH_SPAWN || op == LAUNCH_EXEC) && walls->head &&
	       walls->head->filter_count == w->bound_count &&
	       memcmp(walls->filter, w->bound, w->bound_count * sizeof *w->bound) == 0;
}
