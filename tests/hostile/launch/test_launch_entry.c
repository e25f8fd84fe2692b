/*
 * Attacks on what enters a sandbox: for a moment it shares the worker's memory and is a process of
 * the sandbox. Each attack first succeeds against a launcher that lacks the rule, made here, so
 * that its failure against ours means something.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/launch/harness.h"
#include "tests/root/launch/insider.h"
#include "tests/slowness.h"

enum { CARELESS_MS = 5000, ATTACK_EXECS = 300, ATTACK_WORKERS = 200, MARKER = 0x5ec2e7 };

/* What attacker and victim tell the test, in memory they share. */
struct board {
	uintptr_t target; /* an address in the launcher */
	int userns_fd;	  /* of a careless launcher; -1: the sandbox's */
	volatile bool stop;
	volatile unsigned long tries, reads, writes, progress;
};

static struct board *board_new(void)
{
	struct board *board =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (board == MAP_FAILED)
		return NULL;
	board->userns_fd = -1;
	return board;
}

static void victim_attack(struct board *board, pid_t victim)
{
	int value = 0;
	char path[64];
	struct iovec local = { &value, sizeof value };
	struct iovec remote = { (void *)board->target, sizeof value };

	board->tries++;
	if (process_vm_readv(victim, &local, 1, &remote, 1, 0) == sizeof value) {
		board->reads++;
		if (process_vm_writev(victim, &local, 1, &remote, 1, 0) == sizeof value)
			board->writes++;
	}
	(void)snprintf(path, sizeof path, "/proc/%d/mem", victim);
	auto_close int memory = open(path, O_RDWR | O_CLOEXEC);

	if (memory >= 0 && pread(memory, &value, sizeof value, (off_t)board->target) > 0)
		board->reads++;
}

/* Whoever appears in the sandbox: read and write at the launcher's address. */
static int memory_attack(void *argument)
{
	struct board *board = argument;
	const pid_t me = getpid();

	while (!board->stop) {
		DIR *dir = opendir("/proc");
		struct dirent *entry;

		while (dir && (entry = readdir(dir))) {
			const pid_t pid = atoi(entry->d_name);

			if (pid > 1 && pid != me)
				victim_attack(board, pid);
		}
		if (dir)
			(void)closedir(dir); /* read */
	}
	return 0;
}

static void nap_us(long us)
{
	const struct timespec pause = { 0, us * 1000 };

	(void)nanosleep(&pause, NULL); /* shorter is fine */
}

/*
 * A launcher that can be dumped and waits for its child by vfork. The child is slow between the
 * user namespace and its ids, which is where the gap is.
 */
static void careless_exec(int pidfd, int own, const struct board *board)
{
	pid_t pid;

	(void)prctl(PR_SET_DUMPABLE, 1);
	if (setns(pidfd, CLONE_NEWPID) < 0)
		_exit(1);
	pid = vfork();
	if (pid == 0) {
		if (setns(pidfd, CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET) < 0)
			_exit(80);
		(void)setgroups(0, NULL);
		if (setns(board->userns_fd < 0 ? pidfd : board->userns_fd, CLONE_NEWUSER) < 0)
			_exit(81);
		nap_us(200);
		if (syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0)
			_exit(82);
		(void)execl("/bin/tiny-exit", "tiny-exit", NULL);
		_exit(83);
	}
	if (setns(own, CLONE_NEWPID) < 0)
		_exit(1);
	(void)kill(pid, SIGKILL); /* it may be stopped; not reaped yet */
	(void)waitpid(pid, NULL, 0);
}

static pid_t careless_start(const struct box *box, struct board *board)
{
	pid_t pid = fork();
	int pidfd, own;

	if (pid != 0)
		return pid;
	pidfd = (int)syscall(SYS_pidfd_open, box->pid, 0);
	own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
	while (pidfd >= 0 && own >= 0 && !board->stop) {
		careless_exec(pidfd, own, board);
		board->progress++;
	}
	_exit(0);
}

/*
 * A user namespace whose owner is root. Entering one that the range's own user made resets the
 * dumpable flag by itself: the kernel sees no parent of its credentials in it.
 */
static int root_userns_open(uint32_t base)
{
	pid_t pid = fork();
	char path[64], map[64];
	size_t map_bytes;
	int fd = -1;

	if (pid == 0) {
		if (unshare(CLONE_NEWUSER) == 0)
			for (;;)
				pause();
		_exit(1);
	}
	map_bytes = (size_t)snprintf(map, sizeof map, "0 %u 65536\n", base);
	for (unsigned i = 0; i < 1000 && fd < 0; i++) { /* until it has unshared */
		sleep_ms(1);
		(void)snprintf(path, sizeof path, "/proc/%d/uid_map", pid);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd >= 0 && write(fd, map, map_bytes) < 0) {
			(void)close(fd); /* still our own */
			fd = -1;
		}
	}
	expect(close(fd) == 0);
	(void)snprintf(path, sizeof path, "/proc/%d/gid_map", pid);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	expect(write(fd, map, map_bytes) > 0 && close(fd) == 0);
	(void)snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	(void)kill(pid, SIGKILL); /* not reaped yet */
	(void)child_reap(pid);
	return fd;
}

static volatile int marker = MARKER;

static void a_dumpable_launcher_is_overwritten(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	struct board *board = board_new();
	pid_t attacker, launcher;

	board->target = (uintptr_t)&marker; /* the launcher is a fork of this program */
	board->userns_fd = root_userns_open(h->uid_base);
	attacker = insider_start_as(&box, board->userns_fd, memory_attack, board);
	launcher = careless_start(&box, board);
	for (unsigned i = 0; i < CARELESS_MS && board->writes == 0; i++)
		sleep_ms(1);
	board->stop = true;
	note("%lu tries, %lu reads, %lu writes", board->tries, board->reads, board->writes);
	expect(board->writes > 0);
	expect(child_reap_within(launcher, 5000));
	(void)child_reap(attacker);
	(void)close(board->userns_fd); /* nobody is in it */
	(void)munmap(board, 4096);     /* ours */
	box_end(h, &box);
}

/* Where the worker's own data lie. */
static uintptr_t worker_address(const struct harness *h)
{
	char path[64], text[16384], *line;
	uintptr_t start = 0;

	(void)snprintf(path, sizeof path, "/proc/%d/maps", h->workers[0]);
	(void)text_read_at(AT_FDCWD, path, text, sizeof text);
	for (line = text; line && *line; line = strchr(line, '\n') + 1) {
		char mode[8] = "";

		if (sscanf(line, "%lx-%*x %7s", &start, mode) == 2 && strcmp(mode, "rw-p") == 0 &&
		    strstr(line, "dsec-launcher"))
			return start;
		if (!strchr(line, '\n'))
			break;
	}
	return 0;
}

/*
 * Give slot 0 a user namespace that root made, so that nothing but the worker's own flag is left to
 * stop the attack; and that only for a worker's first exec, after which the kernel clears it.
 */
static void vault_userns_replace(struct harness *h)
{
	pid_t pid = fork();
	int fd, tree;

	if (pid != 0) {
		expect(child_reap(pid) == 0);
		return;
	}
	fd = root_userns_open(h->uid_base);
	if (fd < 0 || setns(h->vault.mount_ns_fd, CLONE_NEWNS) < 0 ||
	    umount2("/slots/0/user", MNT_DETACH) < 0)
		_exit(1);
	tree = (int)syscall(SYS_open_tree, fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE);
	_exit(syscall(SYS_move_mount, tree, "", AT_FDCWD, "/slots/0/user",
		      MOVE_MOUNT_F_EMPTY_PATH) < 0);
}

static void attack_first_execs(struct harness *h, const struct box *box, struct board *board)
{
	for (unsigned i = 0; i < fewer(ATTACK_WORKERS, 25); i++) {
		worker_kill(h, 0);
		if (!expect(worker_start_another(h, 0)))
			return;
		/* It has answered: it is past its start. */
		expect(harness_op(h, LAUNCH_OP_COUNT, 0).error == EINVAL);
		board->target = worker_address(h);
		expect(board->target != 0);
		expect(probe(h, box, "exit", "0"));
	}
}

static void our_worker_is_not(struct harness *h)
{
	struct board *board = board_new();
	struct box box;
	pid_t attacker;

	expect(harness_op(h, LAUNCH_BUILD, 0).error == 0);
	vault_userns_replace(h);
	box = box_start(h, 0, 0);
	attacker = insider_start(&box, memory_attack, board);
	attack_first_execs(h, &box, board);
	for (unsigned i = 0; i < fewer(ATTACK_EXECS, 40); i++)
		expect(probe(h, &box, "exit", "0"));
	board->stop = true;
	note("%lu tries, %lu reads, %lu writes", board->tries, board->reads, board->writes);
	expect(board->tries > 100);
	expect(board->reads == 0 && board->writes == 0);
	(void)child_reap(attacker);
	(void)munmap(board, 4096); /* ours */
	box_end(h, &box);
}

static int stop_attack(void *argument)
{
	struct board *board = argument;

	while (!board->stop)
		if (kill(-1, SIGSTOP) == 0)
			board->tries++;
	return 0;
}

static void a_launcher_that_waits_by_vfork_hangs(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	struct board *board = board_new();
	pid_t attacker = insider_start(&box, stop_attack, board), launcher;
	unsigned long seen = 0;
	unsigned still_ms = 0;

	launcher = careless_start(&box, board);
	for (unsigned i = 0; i < CARELESS_MS && still_ms < 500; i++) {
		sleep_ms(1);
		still_ms = board->progress == seen ? still_ms + 1 : 0;
		seen = board->progress;
	}
	note("it hung after %lu execs", seen);
	expect(still_ms >= 500);
	box_stop(&box); /* which ends the child, and frees it */
	board->stop = true;
	expect(child_reap_within(launcher, 5000));
	(void)child_reap(attacker);
	(void)munmap(board, 4096); /* ours */
	box.pid = 0;
	box_end(h, &box);
}

static unsigned now_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
	return (unsigned)(now.tv_sec * 1000 + now.tv_nsec / 1000000);
}

/* One exec under attack: whether the child was stopped before its program ran. */
static bool exec_is_stopped(struct harness *h, const struct box *box)
{
	const char *const argv[] = { "/bin/tiny-exit", NULL };
	const struct exec_options options = { .leave_alone = true };
	struct launch_reply reply;
	const unsigned start_ms = now_ms();
	int status = harness_exec(h, box, argv, &options, &reply);

	expect(now_ms() - start_ms < held_up_ms());
	if (status == 0) {			/* it may be stopped by now */
		(void)kill(reply.pid, SIGKILL); /* not reaped yet */
		(void)child_reap(reply.pid);
		return false;
	}
	/* harness_exec() reaped it: the worker killed it. */
	return expect(reply.error == ETIMEDOUT && reply.step == LAUNCH_STEP_WAIT && reply.pid > 0);
}

static void our_worker_loses_one_request_and_goes_on(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD), other = box_start(h, 1, LAUNCH_REBUILD);
	struct board *board = board_new();
	pid_t attacker = insider_start(&box, stop_attack, board);
	unsigned stopped = 0, asked = 0;

	for (; asked < 5000 && stopped < 5; asked++)
		stopped += exec_is_stopped(h, &box);
	note("%u of %u children were stopped before their program ran", stopped, asked);
	expect(stopped > 0);
	expect(probe(h, &other, "exit", "0"));
	board->stop = true;
	(void)child_reap(attacker);
	expect(probe(h, &box, "exit", "0"));
	(void)munmap(board, 4096); /* ours */
	box_end(h, &box);
	box_end(h, &other);
}

#define TEST(name, ...)                                                                            \
	{                                                                                          \
#name, name,                                                                       \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}

static const struct harness_test tests[] = {
	TEST(a_dumpable_launcher_is_overwritten),
	TEST(our_worker_is_not),
	TEST(a_launcher_that_waits_by_vfork_hangs),
	TEST(our_worker_loses_one_request_and_goes_on, .limit_ms = 50),
};

int main(int argc, char **argv)
{
	return harness_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
