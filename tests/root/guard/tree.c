/*
 * Owns the cgroup tree of a test of the guard, used by the programs beside it. Each test makes one
 * with its own pid in the name and removes it, even when it fails.
 */
#include "tests/root/guard/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "bpf/guard.h"
#include "engine/base/cleanup.h"

/* The root is two levels deep, so that a level which is off by one is seen. */
static const char *const places[TREE_PLACES] = {
	[TREE_ROOT] = "instance",	   [TREE_SHARD0] = "instance/s0",
	[TREE_SHARD1] = "instance/s1",	   [TREE_SLOT0] = "instance/s0/b0",
	[TREE_SLOT1] = "instance/s0/b1",   [TREE_SLOT2] = "instance/s1/b2",
	[TREE_LEAF] = "instance/s0/b0/e0", [TREE_STRANGER] = "other/s0/b0",
	[TREE_UNTOLD] = "instance/s2/b0",
};

/* All directories, parents first. */
static const char *const directories[] = {
	"",
	"/instance",
	"/instance/s0",
	"/instance/s1",
	"/instance/s2",
	"/instance/s0/b0",
	"/instance/s0/b1",
	"/instance/s1/b2",
	"/instance/s2/b0",
	"/instance/s0/b0/e0",
	"/other",
	"/other/s0",
	"/other/s0/b0",
};

enum { DIRECTORIES = sizeof(directories) / sizeof(*directories) };

static void cgroup2_mount(char *ret, size_t bytes)
{
	FILE *mounts = fopen("/proc/self/mounts", "re");
	char path[256], type[64];
	bool found = false;

	cr_assert(mounts);
	while (!found && fscanf(mounts, "%*s %255s %63s %*[^\n]", path, type) == 2)
		found = !strcmp(type, "cgroup2");
	fclose(mounts);
	cr_assert(found, "no cgroup2 is mounted");
	snprintf(ret, bytes, "%s", path);
}

static void tree_path(const struct tree *tree, const char *below, char *ret, size_t bytes)
{
	char mount[256];

	cgroup2_mount(mount, sizeof(mount));
	snprintf(ret, bytes, "%s/dsec-test-%s%s", mount, tree->instance, below);
}

void tree_make(struct tree *tree)
{
	char path[512], below[64];

	*tree = (struct tree){ .root_level = 2, .home_fd = -1 };
	for (int i = 0; i < TREE_PLACES; i++)
		tree->fds[i] = -1;
	snprintf(tree->instance, sizeof(tree->instance), "guard-%d", getpid());
	for (int i = 0; i < DIRECTORIES; i++) {
		tree_path(tree, directories[i], path, sizeof(path));
		cr_assert(mkdir(path, 0755) == 0, "%s: %s", path, strerror(errno));
	}
	for (int i = 0; i < TREE_PLACES; i++) {
		struct stat st;

		snprintf(below, sizeof(below), "/%s", places[i]);
		tree_path(tree, below, path, sizeof(path));
		tree->fds[i] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		cr_assert(tree->fds[i] >= 0);
		cr_assert(fstat(tree->fds[i], &st) == 0);
		tree->ids[i] = st.st_ino;
	}
}

static void tree_kill(const struct tree *tree)
{
	auto_close int fd = -1;
	char path[512];

	tree_path(tree, "/cgroup.kill", path, sizeof(path));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		(void)!write(fd, "1", 1);
	while (waitpid(-1, NULL, 0) > 0)
		;
}

void tree_remove(struct tree *tree)
{
	char path[512];

	tree_leave(tree);
	tree_kill(tree);
	for (int i = 0; i < TREE_PLACES; i++)
		if (tree->fds[i] >= 0)
			close(tree->fds[i]);
	for (int i = DIRECTORIES - 1; i >= 0; i--) {
		int tries = 1000;

		/* A grandchild that init reaps may still be leaving. */
		tree_path(tree, directories[i], path, sizeof(path));
		while (rmdir(path) < 0 && errno == EBUSY && --tries)
			usleep(1000);
		cr_expect(access(path, F_OK) < 0, "%s stays", path);
	}
}

struct guard_options tree_options(const struct tree *tree)
{
	return (struct guard_options){
		.instance = tree->instance,
		.cgroup_fd = tree->fds[TREE_ROOT],
		.cgroup_id = tree->ids[TREE_ROOT],
		.cgroup_level = tree->root_level,
		.shards = 2,
		.with_egress = true,
		.shard_cgroup_ids = &tree->ids[TREE_SHARD0],
		.engine_pid = getpid(),
	};
}

static void self_move(int directory_fd)
{
	auto_close int fd = openat(directory_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);

	cr_assert_eq(write(fd, "0", 1), 1, "%s", strerror(errno));
}

void tree_enter(struct tree *tree, enum tree_place place)
{
	char mount[256], line[256] = "", path[600];
	FILE *file = fopen("/proc/self/cgroup", "re");

	cr_assert(file);
	while (fgets(line, sizeof(line), file) && strncmp(line, "0::", 3))
		;
	fclose(file);
	cr_assert(!strncmp(line, "0::", 3));
	line[strcspn(line, "\n")] = '\0';
	cgroup2_mount(mount, sizeof(mount));
	snprintf(path, sizeof(path), "%s%s", mount, line + 3);
	tree->home_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert(tree->home_fd >= 0, "%s: %s", path, strerror(errno));
	self_move(tree->fds[place]);
}

void tree_leave(struct tree *tree)
{
	if (tree->home_fd < 0)
		return;
	self_move(tree->home_fd);
	close(tree->home_fd);
	tree->home_fd = -1;
}

pid_t tree_fork(const struct tree *tree, enum tree_place place, uint64_t flags)
{
	struct clone_args args = {
		.flags = CLONE_INTO_CGROUP | flags,
		.exit_signal = flags & CLONE_PARENT ? 0 : SIGCHLD,
		.cgroup = (uint64_t)tree->fds[place],
	};

	fflush(NULL);
	return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

const struct trying *tree_try(const struct tree *tree, enum tree_place place,
			      int (*try)(const void *), const void *with)
{
	struct trying *trying = mmap(NULL, sizeof(*trying), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	cr_assert_neq(trying, MAP_FAILED);
	pid = tree_fork(tree, place, 0);
	cr_assert(pid >= 0);
	while (pid == 0) {
		if (try(with) == 0)
			(void)__atomic_fetch_add(&trying->got, 1, __ATOMIC_RELAXED);
		/* What waits for every task to have slept once need not wait long. */
		if (__atomic_fetch_add(&trying->times, 1, __ATOMIC_RELEASE) % 16 == 0)
			usleep(100);
	}
	return trying; /* as long as the test */
}

bool trying_goes_on(const struct trying *trying)
{
	const uint64_t before = __atomic_load_n(&trying->times, __ATOMIC_ACQUIRE);

	for (int i = 0; i < 30000; i++) {
		if (__atomic_load_n(&trying->times, __ATOMIC_ACQUIRE) > before + 100)
			return true;
		usleep(1000);
	}
	return false;
}

int child_reap(pid_t pid)
{
	int status;

	cr_assert_eq(waitpid(pid, &status, 0), pid);
	return status;
}

int tree_run(const struct tree *tree, enum tree_place place, int (*run)(const void *),
	     const void *with)
{
	pid_t pid = tree_fork(tree, place, 0);
	int status;

	cr_assert(pid >= 0);
	if (pid == 0)
		_exit(run(with));
	status = child_reap(pid);
	cr_assert(WIFEXITED(status), "the child died of signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}
