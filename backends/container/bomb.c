/*
 * What a fork bomb's cgroups say, and its end where no exec is there to end it. Called by hogs.c,
 * on the governor's thread. Must hold: nothing but a leaf that was told of is killed, and not by
 * its cgroup.kill: on Linux 6.18 whoever is cloned into a leaf that was killed once dies at birth.
 */
#include "backends/container/bomb.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "backends/container/group.h"
#include "backends/container/members.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"

enum { PASSES_MAX = 20, PAUSE_NS = 1000000 };

/* Of a control file of the slot, which is right above the leaf; 0: there is none, or no number. */
static uint64_t slot_number(int leaf_fd, const char *name)
{
	auto_close int fd = group_file_open(leaf_fd, name, O_RDONLY);
	char text[32] = "";

	return fd < 0 || read(fd, text, sizeof text - 1) <= 0 ? 0 : strtoull(text, NULL, 10);
}

bool bomb_fills(int leaf_fd, uint64_t processes, uint64_t processes_max)
{
	const uint64_t most = slot_number(leaf_fd, "../pids.max");

	if (most)
		return bomb_is_full(slot_number(leaf_fd, "../pids.current"), most);
	return bomb_is_full(processes, processes_max);
}

static void member_kill(const char *leaf_path, pid_t pid)
{
	auto_close int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (fd >= 0 && members_have(leaf_path, pid)) /* or it has ended */
		(void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
}

/* Frozen it makes no more, and what is frozen can be killed. */
void bomb_kill(int leaf_fd, const char *leaf_path, struct members *scratch)
{
	const struct timespec pause = { 0, PAUSE_NS };
	auto_close int fd = group_file_open(leaf_fd, "cgroup.freeze", O_WRONLY);

	if (fd < 0 || pwrite(fd, "1", 1, 0) < 0)
		return; /* it has gone */
	for (int pass = 0; pass < PASSES_MAX; pass++) {
		members_read(scratch, leaf_fd, "cgroup.procs");
		if (!scratch->count)
			break;
		for (uint32_t i = 0; i < scratch->count; i++)
			member_kill(leaf_path, scratch->all[i]);
		(void)nanosleep(&pause, NULL); /* others may run, too */
	}
	/* Who is left, at worst, is a bomb that is killed at the next look but some. */
	if (pwrite(fd, "0", 1, 0) < 0)
		log_debug("a leaf stays frozen err=%s",
			  strerror(errno)); /* its next program thaws it */
}
