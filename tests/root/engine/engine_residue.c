/*
 * Looks at an engine from outside: /proc, the cgroup tree, BPF objects by id. Called by the harness
 * and by claims. Nothing here believes the engine's own account, unless it is compared with it.
 */
#include "tests/root/engine/engine_residue.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

enum { SETTLE_MS = 20000, TREE_DEPTH_MAX = 6 };

/* ---- processes ---- */

static unsigned children_of(pid_t parent, pid_t *ret, unsigned max)
{
	char path[64];
	unsigned count = 0;
	FILE *file;
	DIR *dir;
	struct dirent *entry;

	/* Of every thread: whoever forked is the parent here. */
	(void)snprintf(path, sizeof path, "/proc/%d/task", parent);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		char children[sizeof path + 300];
		pid_t pid;

		(void)snprintf(children, sizeof children, "%s/%s/children", path, entry->d_name);
		file = entry->d_name[0] == '.' ? NULL : fopen(children, "re");
		while (file && fscanf(file, "%d", &pid) == 1 && count < max)
			ret[count++] = pid;
		if (file)
			(void)fclose(file); /* was only read */
	}
	if (dir)
		(void)closedir(dir); /* was only read */
	return count;
}

static void process_name(pid_t pid, char ret[static 32])
{
	char path[64];
	FILE *file;

	*ret = 0;
	(void)snprintf(path, sizeof path, "/proc/%d/comm", pid);
	file = fopen(path, "re");
	if (!file)
		return;
	(void)!fgets(ret, 32, file);
	ret[strcspn(ret, "\n")] = 0;
	(void)fclose(file); /* was only read */
}

static bool process_is_worker(pid_t pid)
{
	char name[32];

	process_name(pid, name);
	return !strncmp(name, "dsec-launch", 11);
}

pid_t engine_pid(const struct engine *e)
{
	pid_t children[64];
	unsigned count = e->keeper ? children_of(e->keeper, children, 64) : 0;
	char path[64], line[256];

	for (unsigned i = 0; i < count; i++) {
		ssize_t bytes;

		(void)snprintf(path, sizeof path, "/proc/%d/exe", children[i]);
		bytes = readlink(path, line, sizeof line - 1);
		if (bytes < 0)
			continue; /* a zombie, or in a sandbox */
		line[bytes] = 0;
		if (strstr(line, "/dsecd"))
			return children[i];
	}
	return 0;
}

unsigned engine_workers(const struct engine *e, pid_t *ret, unsigned max)
{
	pid_t children[256];
	unsigned count = children_of(engine_pid(e), children, 256), found = 0;
	char slot[32];

	/* What a worker starts has its name until it runs a program, but is born in a slot. */
	for (unsigned i = 0; i < count && found < max; i++)
		if (process_is_worker(children[i]) && !engine_slot_of(e, children[i], slot))
			ret[found++] = children[i];
	return found;
}

static unsigned procs_read(const char *folder, pid_t *ret, unsigned max)
{
	char path[512];
	unsigned count = 0;
	FILE *file;
	pid_t pid;

	(void)snprintf(path, sizeof path, "%s/cgroup.procs", folder);
	file = fopen(path, "re");
	while (file && count < max && fscanf(file, "%d", &pid) == 1)
		ret[count++] = pid;
	if (file)
		(void)fclose(file); /* was only read */
	return count;
}

struct walk {
	pid_t *pids;
	unsigned count, max, groups;
	bool inits_only;
};

static void tree_walk(struct walk *walk, const char *folder, int depth)
{
	struct dirent *entry;
	DIR *dir = opendir(folder);

	/* Instance, shard, slot: PID 1s are in the slots themselves. */
	if (dir && (!walk->inits_only || depth == 2))
		walk->count +=
			procs_read(folder, walk->pids + walk->count, walk->max - walk->count);
	walk->groups += dir != NULL;
	while (dir && depth < TREE_DEPTH_MAX && (entry = readdir(dir))) {
		char path[512];

		if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
		tree_walk(walk, path, depth + 1);
	}
	if (dir)
		(void)closedir(dir); /* was only read */
}

unsigned engine_inits(const struct engine *e, pid_t *ret, unsigned max)
{
	struct walk walk = { .pids = ret, .max = max, .inits_only = true };

	tree_walk(&walk, e->cgroup, 0);
	return walk.count;
}

unsigned engine_members(const struct engine *e, pid_t *ret, unsigned max)
{
	struct walk walk = { .pids = ret, .max = max };

	tree_walk(&walk, e->cgroup, 0);
	return walk.count;
}

unsigned engine_named(const struct engine *e, const char *name, pid_t *ret, unsigned max)
{
	pid_t pids[ENGINE_PIDS_MAX];
	unsigned members = engine_members(e, pids, ENGINE_PIDS_MAX), count = 0;
	char found[32];

	for (unsigned i = 0; i < members; i++) {
		process_name(pids[i], found);
		if (strcmp(found, name) != 0)
			continue;
		if (count < max)
			ret[count] = pids[i];
		count++;
	}
	return count;
}

unsigned engine_running(const struct engine *e, const char *name)
{
	return engine_named(e, name, NULL, 0);
}

bool engine_slot_of(const struct engine *e, pid_t pid, char ret[static 32])
{
	char path[64], line[512], wanted[64];
	const char *at = NULL;
	FILE *file;

	(void)snprintf(path, sizeof path, "/proc/%d/cgroup", pid);
	(void)snprintf(wanted, sizeof wanted, "/dsec-%s/", e->instance);
	file = fopen(path, "re");
	while (file && !at && fgets(line, sizeof line, file))
		at = strncmp(line, "0::", 3) ? NULL : strstr(line, wanted);
	if (file)
		(void)fclose(file); /* was only read */
	return at && sscanf(at + strlen(wanted), "%31[^\n]", ret) == 1;
}

uint64_t process_rss_bytes(pid_t pid)
{
	char path[64];
	unsigned long pages = 0;
	FILE *file;

	(void)snprintf(path, sizeof path, "/proc/%d/statm", pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%*u %lu", &pages) != 1)
		pages = 0;
	(void)fclose(file); /* was only read */
	return pages * 4096ull;
}

unsigned process_fd_count(pid_t pid)
{
	char path[64];
	unsigned count = 0;
	struct dirent *entry;
	DIR *dir;

	(void)snprintf(path, sizeof path, "/proc/%d/fd", pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		count += entry->d_name[0] != '.';
	if (dir)
		(void)closedir(dir); /* was only read */
	return count - (pid == getpid() && dir);
}

/* ---- BPF objects ---- */

static void object_add(struct engine *e, char kind, uint32_t id)
{
	for (unsigned i = 0; i < e->object_count; i++)
		if (e->objects[i].kind == kind && e->objects[i].id == id)
			return;
	if (e->object_count < ENGINE_OBJECTS_MAX)
		e->objects[e->object_count++] = (struct bpf_object){ kind, id };
}

static void fdinfo_read(struct engine *e, const char *path)
{
	static const struct {
		const char *key;
		char kind;
	} keys[] = { { "prog_id:", 'p' }, { "map_id:", 'm' }, { "link_id:", 'l' } };
	FILE *file = fopen(path, "re");
	char line[256];

	while (file && fgets(line, sizeof line, file))
		for (unsigned i = 0; i < 3; i++)
			if (!strncmp(line, keys[i].key, strlen(keys[i].key)))
				object_add(e, keys[i].kind,
					   (uint32_t)strtoul(line + strlen(keys[i].key), NULL, 10));
	if (file)
		(void)fclose(file); /* was only read */
}

void objects_read(struct engine *e)
{
	char path[64], file[sizeof path + 300];
	struct dirent *entry;
	DIR *dir;

	(void)snprintf(path, sizeof path, "/proc/%d/fdinfo", engine_pid(e));
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		(void)snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
		fdinfo_read(e, file);
	}
	if (dir)
		(void)closedir(dir); /* was only read */
}

static bool object_lives(const struct bpf_object *object)
{
	union bpf_attr attr = { .prog_id = object->id }; /* one union member for all three */
	int command = object->kind == 'p' ? BPF_PROG_GET_FD_BY_ID :
		      object->kind == 'm' ? BPF_MAP_GET_FD_BY_ID :
					    BPF_LINK_GET_FD_BY_ID;
	auto_close int fd = (int)syscall(SYS_bpf, command, &attr, sizeof attr);

	return fd >= 0 || errno != ENOENT;
}

/* ---- nothing left ---- */

static bool mounts_left(void)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	char line[4096];
	bool left = false;

	/* Nothing of an engine's is mounted where others are. */
	while (file && fgets(line, sizeof line, file))
		if (strstr(line, " - erofs ") || strstr(line, "/dsec-engine-test."))
			left = true;
	if (file)
		(void)fclose(file); /* was only read */
	return left;
}

void engine_expect_gone(struct engine *e)
{
	char path[96];
	struct stat info;

	expect(stat(e->cgroup, &info) < 0 && errno == ENOENT);
	expect(stat(e->socket, &info) < 0 && errno == ENOENT);
	(void)snprintf(path, sizeof path, "/run/dsec/%s", e->instance);
	expect(stat(path, &info) < 0 && errno == ENOENT);
	(void)snprintf(path, sizeof path, "/sys/fs/bpf/dsec/%s", e->instance);
	expect(stat(path, &info) < 0);
	/* Orphans come to us. Another engine of the suite may still run: it is no orphan. */
	expect(until(SETTLE_MS, ({
			     pid_t pid = waitpid(-1, NULL, WNOHANG);
			     pid == 0 || (pid < 0 && errno == ECHILD);
		     })));
	expect(!mounts_left());
	for (unsigned i = 0; i < e->object_count; i++)
		if (!until(SETTLE_MS, !object_lives(&e->objects[i]))) {
			expect(!"a BPF object is gone");
			note("%c %u", e->objects[i].kind, e->objects[i].id);
		}
}

/* Its children are its workers, all alive. */
static bool children_are_workers(const struct engine *e, unsigned *ret_workers)
{
	pid_t children[ENGINE_PIDS_MAX];
	unsigned count = children_of(engine_pid(e), children, ENGINE_PIDS_MAX);

	*ret_workers = 0;
	for (unsigned i = 0; i < count; i++)
		*ret_workers += process_is_worker(children[i]);
	return *ret_workers == count;
}

/* A crew (crews.h) that was hired since: of each worker a channel and a pidfd, and its sheet. */
static unsigned more_workers_fds(const struct engine *e, unsigned workers)
{
	return workers > e->worker_count ? 3 * (workers - e->worker_count) : 0;
}

static bool is_idle(struct engine *e, char *why, size_t size)
{
	struct dsec_holdings h = holdings_now(e->d);
	pid_t pids[16];
	unsigned workers, fds, members = engine_members(e, pids, 16);
	bool only_workers = children_are_workers(e, &workers);

	fds = process_fd_count(engine_pid(e));
	(void)snprintf(
		why, size,
		"sandboxes %llu execs %llu others %d rebuilding %llu launchers %llu: members %u, "
		"workers %u%s, descriptors %u (%u before)",
		(unsigned long long)h.sandboxes, (unsigned long long)h.execs,
		!holdings_are_none(&h), (unsigned long long)h.slots_rebuilding,
		(unsigned long long)h.launchers, members, workers,
		only_workers ? "" : " and others", fds, e->fd_count);
	return h.size && holdings_are_none(&h) && !h.slots_rebuilding && h.slots == h.slots_free &&
	       h.launchers == workers && !members && only_workers &&
	       fds <= e->fd_count + more_workers_fds(e, workers);
}

void engine_expect_idle(struct engine *e)
{
	char why[256] = "";

	if (!until(SETTLE_MS, is_idle(e, why, sizeof why))) {
		expect(!"the engine is idle");
		note("%s", why);
	}
	if (!e->options.is_hurt)
		expect(engine_pid(e) == e->first_pid);
}

void engine_baseline(struct engine *e)
{
	objects_read(e);
	e->fd_count = process_fd_count(engine_pid(e));
	(void)children_are_workers(e, &e->worker_count);
}
