/*
 * The tracing process of saboteur.h. Called by tests of the launcher and of engines. Must hold: it
 * touches nothing but the calls it lets fail; a child that has its program is let go; when it ends,
 * for whatever reason, everybody it traced runs on.
 */
#include "tests/root/launch/saboteur.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/container/launch.h"

enum { TRACEES_MAX = 64 };

struct tracee {
	pid_t pid; /* 0: a free place */
	long number;
	int fails_with; /* the call that is under way; 0: it does not fail */
};

struct tracer {
	struct sabotage *shared;
	pid_t worker;
	bool is_open; /* between a request and its reply */
	struct tracee tracees[TRACEES_MAX];
};

/* What a full table, a full disk or too little memory would say, where it can be told apart. */
static int error_of(long number)
{
	switch (number) {
	case SYS_openat:
	case SYS_openat2:
	case SYS_socket:
	case SYS_pidfd_open:
	case SYS_dup3:
		return EMFILE;
	case SYS_mkdirat:
	case SYS_mknodat:
	case SYS_symlinkat:
	case SYS_move_mount:
	case SYS_write:
	case SYS_fsetxattr:
		return ENOSPC;
	case SYS_clone3:
	case SYS_clone:
	case SYS_setresuid:
		return EAGAIN;
	case SYS_setns:
	case SYS_unshare:
	case SYS_capset:
	case SYS_prctl:
		return EPERM;
	case SYS_read:
	case SYS_close:
	case SYS_unlinkat:
	case SYS_umount2:
		return EIO;
	default:
		return ENOMEM;
	}
}

/*
 * exit: does not return. futex, nanosleep, clock: a clock decides whatever they answer, and how
 * often they are made is chance. wait4: of a child of one's own, it cannot fail.
 */
static bool is_exempt(long number)
{
	static const long exempt[] = {
		SYS_exit,      SYS_exit_group,	    SYS_futex,
		SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime,
		SYS_wait4,     SYS_rt_sigreturn,
	};

	for (unsigned i = 0; i < sizeof exempt / sizeof *exempt; i++)
		if (exempt[i] == number)
			return true;
	return false;
}

static struct tracee *tracee_of(struct tracer *t, pid_t pid)
{
	struct tracee *free_one = NULL;

	for (unsigned i = 0; i < TRACEES_MAX; i++) {
		if (t->tracees[i].pid == pid)
			return &t->tracees[i];
		if (!free_one && t->tracees[i].pid == 0)
			free_one = &t->tracees[i];
	}
	if (!free_one)
		_exit(3); /* more children at once than a worker has stacks */
	*free_one = (struct tracee){ .pid = pid };
	return free_one;
}

static void call_entered(struct tracer *t, struct tracee *who, struct user_regs_struct *regs)
{
	struct sabotage *shared = t->shared;

	who->number = (long)regs->orig_rax;
	who->fails_with = 0;
	if ((who->number == SYS_sendto || who->number == SYS_sendmsg) && who->pid == t->worker &&
	    (int)regs->rdi == LAUNCH_FD_CHANNEL)
		t->is_open = false;
	if (!t->is_open || is_exempt(who->number))
		return;
	if (++shared->counted != shared->fail_at)
		return;
	shared->number = who->number;
	shared->by_child = who->pid != t->worker;
	shared->error = who->fails_with = error_of(who->number);
	shared->failed = 1;
	if (who->number == SYS_close)
		return; /* it closes whatever it says */
	regs->orig_rax = (unsigned long long)-1;
	(void)ptrace(PTRACE_SETREGS, who->pid, NULL, regs); /* it may be gone */
}

static void call_left(struct tracer *t, struct tracee *who, struct user_regs_struct *regs)
{
	if (who->number == SYS_recvmsg && who->pid == t->worker &&
	    (int)regs->rdi == LAUNCH_FD_CHANNEL && (long)regs->rax > 0) {
		t->is_open = true;
		t->shared->counted = t->shared->failed = 0;
	}
	if (!who->fails_with)
		return;
	regs->rax = (unsigned long long)-who->fails_with;
	who->fails_with = 0;
	(void)ptrace(PTRACE_SETREGS, who->pid, NULL, regs); /* it may be gone */
}

static void call_stopped(struct tracer *t, struct tracee *who)
{
	struct __ptrace_syscall_info info = { 0 };
	struct user_regs_struct regs;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, who->pid, (void *)sizeof info, &info) < 0 ||
	    ptrace(PTRACE_GETREGS, who->pid, NULL, &regs) < 0)
		return; /* killed meanwhile */
	if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
		call_entered(t, who, &regs);
	else if (info.op == PTRACE_SYSCALL_INFO_EXIT)
		call_left(t, who, &regs);
}

/* One stop; the tracee goes on. */
static void tracee_stopped(struct tracer *t, pid_t pid, int status)
{
	struct tracee *who = tracee_of(t, pid);
	const int signal = WSTOPSIG(status), event = status >> 16;
	int deliver = 0;

	if (event == PTRACE_EVENT_EXEC) {
		(void)ptrace(PTRACE_DETACH, pid, NULL, NULL); /* it has its program */
		who->pid = 0;
		return;
	}
	if (signal == (SIGTRAP | 0x80))
		call_stopped(t, who);
	else if (event == PTRACE_EVENT_STOP && signal != SIGTRAP) {
		(void)ptrace(PTRACE_LISTEN, pid, NULL, NULL); /* stopped by somebody: it stays so */
		return;
	} else if (event == 0)
		deliver = signal;
	(void)ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(intptr_t)deliver); /* it may be gone */
}

static _Noreturn void tracer_run(struct tracer *t, int ready_fd)
{
	const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
			     PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC;
	const char ready = 1;
	int status;
	pid_t pid;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* then everybody runs on */
	if (ptrace(PTRACE_SEIZE, t->worker, NULL, options) < 0 ||
	    ptrace(PTRACE_INTERRUPT, t->worker, NULL, NULL) < 0 ||
	    waitpid(t->worker, &status, __WALL) != t->worker ||
	    ptrace(PTRACE_SYSCALL, t->worker, NULL, NULL) < 0 || write(ready_fd, &ready, 1) != 1)
		_exit(1);
	(void)close(ready_fd); /* said */
	while ((pid = waitpid(-1, &status, __WALL)) > 0) {
		if (WIFSTOPPED(status))
			tracee_stopped(t, pid, status);
		else
			tracee_of(t, pid)->pid = 0;
	}
	_exit(errno == ECHILD ? 0 : 1);
}

bool saboteur_start(struct saboteur *s, pid_t worker)
{
	struct tracer *tracer;
	char ready = 0;
	int ends[2];

	s->shared = mmap(NULL, sizeof *s->shared, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	tracer = calloc(1, sizeof *tracer);
	if (s->shared == MAP_FAILED || !tracer || pipe2(ends, O_CLOEXEC) < 0)
		abort(); /* a test without memory says nothing */
	tracer->shared = s->shared;
	tracer->worker = worker;
	s->tracer = fork();
	if (s->tracer == 0)
		tracer_run(tracer, ends[1]);
	free(tracer);
	(void)close(ends[1]); /* the tracer's */
	(void)!read(ends[0], &ready, 1);
	(void)close(ends[0]); /* was read */
	return ready == 1;
}

void saboteur_arm(struct saboteur *s, uint32_t nth)
{
	s->shared->failed = 0;
	s->shared->fail_at = nth;
}

void saboteur_end(struct saboteur *s)
{
	if (s->tracer > 0) {
		(void)kill(s->tracer, SIGKILL); /* not reaped: its own; its tracees run on */
		(void)waitpid(s->tracer, NULL, 0);
		(void)munmap(s->shared, sizeof *s->shared); /* ours */
	}
	*s = (struct saboteur){ 0 };
}
