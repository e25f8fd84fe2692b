/*
 * The only place of a worker that makes processes. Must hold: no CLONE_VFORK, since it would leave
 * the worker's life to the child's; between clone3 and execve a child makes system calls and
 * nothing else; a stack is used again only when the kernel has said that its child left it.
 */
#include "backends/container/spawn.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <time.h>

#include "backends/container/kernel.h"
#include "backends/container/worker.h"

enum {
	KILL_LIMIT_MS = 1000,
	PAGE_BYTES = 4096,
};

struct stack {
	char guard[PAGE_BYTES];
	char bytes[STACK_BYTES];
	char text[STACK_TEXT_BYTES];
	char home[STACK_HOME_BYTES];
	uint32_t tid; /* a futex: the kernel clears it when the child leaves this memory */
	int32_t error;
	struct child child;
	long (*run)(struct child *child);
} __attribute__((aligned(PAGE_BYTES)));

int stacks_open(struct worker *w)
{
	struct stack *stacks = mmap(NULL, STACKS_MAX * sizeof *stacks, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

	if (stacks == MAP_FAILED)
		return -errno;
	for (unsigned i = 0; i < STACKS_MAX; i++)
		if (mprotect(stacks[i].guard, sizeof stacks[i].guard, PROT_NONE) < 0)
			return -errno;
	w->stacks = stacks;
	return 0;
}

long child_widen(struct child *child)
{
	const struct worker *w = child->worker;

	if (!(w->order.request.flags & LAUNCH_WIDE) || !w->cpus_bytes)
		return 0;
	return LAUNCH_TRY(&child->attempt, LAUNCH_STEP_CREDENTIALS,
			  KERNEL_CALL(SYS_sched_setaffinity, 0, w->cpus_bytes, (long)w->cpus));
}

__attribute__((noreturn, used)) static void child_main(struct stack *stack)
{
	long r = stack->run(&stack->child);

	stack->error = r < 0 ? (int32_t)-r : 0;
	for (;;)
		(void)KERNEL_CALL(SYS_exit_group, r < 0 ? 1 : 0); /* does not return */
}

/* The child comes out of the same instruction with nothing but its registers: it never returns. */
static __attribute__((noinline)) long stack_clone(struct clone_args *args, struct stack *stack,
						  uint64_t secret)
{
	register uint64_t f __asm__("r9") = secret;
	register struct stack *child_stack __asm__("r12") = stack;
	long r;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %%r12, %%rdi\n\t"
			 "call %P[main]\n\t"
			 "hlt\n"
			 "1:"
			 : "=a"(r)
			 : "a"((long)SYS_clone3), "D"(args), "S"(sizeof *args), "r"(f),
			   "r"(child_stack), [main] "i"(child_main)
			 : "rcx", "r11", "memory");
	return r;
}

/* Whether the child left the stack within the limit. */
static bool stack_wait(const struct stack *stack, uint32_t limit_ms)
{
	const uint64_t end_ns = kernel_now_ns() + limit_ms * 1000000ull;
	uint32_t tid;

	while ((tid = __atomic_load_n(&stack->tid, __ATOMIC_ACQUIRE)) != 0) {
		uint64_t now = kernel_now_ns();
		struct timespec left;

		if (now >= end_ns)
			return false;
		left.tv_sec = (time_t)((end_ns - now) / 1000000000u);
		left.tv_nsec = (long)((end_ns - now) % 1000000000u);
		/* Whatever it answers, the word and the clock decide. */
		(void)kernel_futex_wait(&stack->tid, tid, &left);
	}
	return true;
}

static long stack_result(struct worker *w, struct stack *stack, const struct spawn *spawn)
{
	if (!stack_wait(stack, spawn->limit_ms ? spawn->limit_ms : WORKER_LIMIT_MS)) {
		(void)kernel_pidfd_kill(spawn->pidfd, SIGKILL); /* it may have gone meanwhile */
		if (!stack_wait(stack, KILL_LIMIT_MS))
			w->stacks_lost++;
		w->attempt.step = LAUNCH_STEP_WAIT;
		return -ETIMEDOUT;
	}
	if (stack->error)
		w->attempt.step = stack->child.attempt.step;
	if (!stack->error && spawn->must_start && stack->child.attempt.step != LAUNCH_STEP_ARGV0) {
		/* Killed on its way: where it is now is not where it was to be. Or at birth. */
		w->attempt.step = stack->child.attempt.step ? stack->child.attempt.step :
							      LAUNCH_STEP_CLONE;
		return -ECHILD;
	}
	return -stack->error;
}

long child_spawn(struct worker *w, struct spawn *spawn)
{
	struct stack *stack = &w->stacks[w->stacks_lost];
	struct clone_args args = {
		.flags = spawn->flags | CLONE_VM | CLONE_PIDFD | CLONE_CHILD_SETTID |
			 CLONE_CHILD_CLEARTID,
		.pidfd = (uintptr_t)&spawn->pidfd,
		.child_tid = (uintptr_t)&stack->tid,
		.stack = (uintptr_t)stack->bytes,
		.stack_size = sizeof stack->bytes,
		.cgroup = (uint64_t)spawn->cgroup_fd,
	};
	long r;

	if (w->stacks_lost == STACKS_MAX)
		worker_die("every stack is held by a child that cannot be killed", -EAGAIN);
	stack->tid = 1;
	stack->error = 0;
	stack->run = spawn->run;
	stack->child = spawn->child;
	stack->child.worker = w;
	stack->child.text = stack->text;
	stack->child.home = stack->home;
	spawn->pid = 0;
	spawn->pidfd = -1;
	r = LAUNCH_TRY(&w->attempt, LAUNCH_STEP_CLONE, stack_clone(&args, stack, w->secret));
	if (r < 0)
		return r;
	spawn->pid = (pid_t)r;
	r = stack_result(w, stack, spawn);
	if (!spawn->keep_pidfd) {
		(void)kernel_close(spawn->pidfd); /* a descriptor only */
		spawn->pidfd = -1;
	}
	return r;
}
