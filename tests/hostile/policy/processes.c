/*
 * Attacks on other processes and on the kernel's own machinery. ATTACK_OUTSIDE names the victim, a
 * process that is not of the sandbox and blocks SIGUSR2; without it, PID 1. See attack.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bpf/policy.h"
#include "tests/hostile/policy/attack.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { CORE_SCHED = 62, CORE_SCHED_CREATE = 1, IOPRIO_BEST = 2 << 13 };

static pid_t outside(void)
{
	const char *text = getenv("ATTACK_OUTSIDE");

	return text ? atoi(text) : 1;
}

/* ---- others ---- */

static int trace_another(void)
{
	return TRIED(ptrace(PTRACE_SEIZE, outside(), NULL, NULL));
}

static int read_anothers_memory(void)
{
	char byte;
	struct iovec mine = { &byte, 1 }, its = { (void *)0x400000, 1 };
	const int r = TRIED(process_vm_readv(outside(), &mine, 1, &its, 1, 0));

	return r == EFAULT ? 0 : r; /* looked at, and nothing is there */
}

static int open_anothers(const char *what)
{
	char path[64];

	(void)snprintf(path, sizeof path, "/proc/%d/%s", outside(), what);
	return TRIED(open(path, O_RDONLY));
}

static int open_anothers_memory(void)
{
	return open_anothers("mem");
}

static int open_anothers_root(void)
{
	return open_anothers("root");
}

static int take_anothers_descriptor(void)
{
	const int fd = (int)syscall(SYS_pidfd_open, outside(), 0);

	return TRIED(syscall(SYS_pidfd_getfd, fd, 0, 0));
}

static int signal_another(void)
{
	return TRIED(kill(outside(), SIGURG));
}

static int signal_anothers_thread(void)
{
	return TRIED(syscall(SYS_tgkill, outside(), outside(), SIGURG));
}

static int signal_by_pidfd(void)
{
	const int fd = (int)syscall(SYS_pidfd_open, outside(), 0);

	return TRIED(syscall(SYS_pidfd_send_signal, fd, SIGURG, NULL, 0));
}

/*
 * The kernel sends it when the pipe has something to read, and says to nobody whether it did. Not
 * refused by LSM programs: an owner is named in one's own pid namespace, where no sandbox finds a
 * number for who is outside.
 */
static int signal_by_a_pipe(void)
{
	char path[64], line[256];
	unsigned long pending = 0;
	FILE *status;
	int ends[2];

	if (pipe(ends) < 0 || fcntl(ends[0], F_SETOWN, outside()) < 0 ||
	    fcntl(ends[0], F_SETSIG, SIGUSR2) < 0 || fcntl(ends[0], F_SETFL, O_ASYNC) < 0 ||
	    write(ends[1], "x", 1) != 1)
		return errno;
	(void)snprintf(path, sizeof path, "/proc/%d/status", outside());
	status = fopen(path, "re");
	while (status && fgets(line, sizeof line, status))
		if (!strncmp(line, "ShdPnd:", 7))
			pending = strtoul(line + 7, NULL, 16);
	if (status)
		(void)fclose(status); /* only read */
	return pending >> (SIGUSR2 - 1) & 1 ? 0 : EPERM;
}

/* A debugger must work: what is inside may be traced. */
static int trace_a_child(void)
{
	const pid_t pid = fork();
	int r;

	if (pid == 0)
		for (;;)
			pause();
	r = TRIED(ptrace(PTRACE_SEIZE, pid, NULL, NULL));
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0); /* it was killed */
	return r;
}

/* ---- the kernel's machinery ---- */

static int call_bpf(void)
{
	char attributes[128] = "";

	return TRIED(syscall(SYS_bpf, 11 /* PROG_GET_NEXT_ID */, attributes, sizeof attributes));
}

static int make_a_map(void)
{
	const uint32_t attributes[32] = { 2, 4, 4, 1 };

	return TRIED(syscall(SYS_bpf, 0, attributes, sizeof attributes));
}

static int open_perf(void)
{
	const uint32_t attributes[32] = { 1, 128 };

	return TRIED(syscall(SYS_perf_event_open, attributes, 0, -1, -1, 0));
}

static int open_userfaultfd(void)
{
	return TRIED(syscall(SYS_userfaultfd, 0));
}

static int add_a_key(void)
{
	return TRIED(syscall(SYS_add_key, "user", "dsec-attack", "x", 1, -1 /* of the thread */));
}

static int look_at_a_keyring(void)
{
	return TRIED(syscall(SYS_keyctl, 0, -3 /* of the session */, 1));
}

static int own_user_namespace(void)
{
	return TRIED(unshare(CLONE_NEWUSER));
}

static int clone_into_a_user_namespace(void)
{
	const long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL);
	const int error = errno;

	if (pid == 0)
		_exit(0);
	if (pid > 0)
		(void)waitpid((pid_t)pid, NULL, 0); /* it ended at once */
	return pid < 0 ? error : 0;
}

static int become_real_time(void)
{
	return TRIED(sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ 1 }));
}

static int become_a_batch(void)
{
	return TRIED(sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){ 0 }));
}

static int set_scheduling_attributes(void)
{
	const uint32_t attributes[12] = { 48, SCHED_BATCH };

	return TRIED(syscall(SYS_sched_setattr, 0, attributes, 0));
}

static int become_nicer(void)
{
	return TRIED(setpriority(PRIO_PROCESS, 0, 5));
}

static int set_priority_of_io(void)
{
	return TRIED(syscall(SYS_ioprio_set, 1, 0, IOPRIO_BEST | 3));
}

static int own_core_cookie(void)
{
	const int r = TRIED(syscall(SYS_prctl, CORE_SCHED, CORE_SCHED_CREATE, 0, 1, 0));

	/* A kernel or a machine without them has none to give. */
	return r == ENODEV || r == EINVAL ? 0 : r;
}

static const struct attack attacks[] = {
	ATTACK(trace_another, EPERM, 0, EPERM, EPERM, PTRACE, PTRACE, NULL),
	ATTACK(read_anothers_memory, EPERM, 0, EPERM, EPERM, PTRACE, PTRACE, NULL),
	ATTACK(open_anothers_memory, EACCES, 0, EACCES, EACCES, PTRACE, PTRACE, NULL),
	ATTACK(open_anothers_root, EACCES, 0, EACCES, EACCES, PTRACE, PTRACE, NULL),
	ATTACK(take_anothers_descriptor, EPERM, 0, EPERM, EPERM, PTRACE, PTRACE, NULL),
	ATTACK(signal_another, EPERM, 0, 0, 0, SIGNAL, SIGNAL, NULL),
	ATTACK(signal_anothers_thread, EPERM, 0, 0, 0, SIGNAL, SIGNAL, NULL),
	ATTACK(signal_by_pidfd, EPERM, 0, 0, 0, SIGNAL, SIGNAL, NULL),
	QUIET(signal_by_a_pipe, 0, 0, 0, 0),
	QUIET(trace_a_child, 0, 0, 0, 0),
	ATTACK(call_bpf, EPERM, 0, EPERM, EPERM, BPF, BPF, NULL),
	ATTACK(make_a_map, EPERM, 0, EPERM, EPERM, BPF, BPF, NULL),
	ATTACK(open_perf, EPERM, 0, EPERM, EPERM, PERF, PERF, NULL),
	ATTACK(open_userfaultfd, EPERM, 0, EPERM, EPERM, USERFAULTFD, USERFAULTFD, NULL),
	ATTACK(add_a_key, EPERM, 0, ENOSYS, ENOSYS, KEYCTL, KEYCTL, NULL),
	ATTACK(look_at_a_keyring, ENOKEY, 0, ENOSYS, ENOSYS, KEYCTL, KEYCTL, NULL),
	ATTACK(own_user_namespace, EPERM, 0, EPERM, EPERM, USERNS, USERNS, NULL),
	ATTACK(clone_into_a_user_namespace, EPERM, 0, EPERM, EPERM, USERNS, USERNS, NULL),
	ATTACK(become_real_time, EPERM, 0, EPERM, EPERM, SCHEDULER, SCHEDULER, NULL),
	ATTACK(become_a_batch, EPERM, 0, EPERM, 0, SCHEDULER, SCHEDULER, NULL),
	ATTACK(set_scheduling_attributes, EPERM, 0, EPERM, 0, SCHEDULER, SCHEDULER, NULL),
	ATTACK(become_nicer, EPERM, 0, 0, 0, SCHEDULER, SCHEDULER, NULL),
	ATTACK(set_priority_of_io, EPERM, 0, 0, 0, SCHEDULER, SCHEDULER, NULL),
	ATTACK(own_core_cookie, EPERM, 0, EPERM, EPERM, CORE_SCHED, CORE_SCHED, NULL),
};

const struct attack_group processes_group = { "processes", attacks, COUNT(attacks) };
