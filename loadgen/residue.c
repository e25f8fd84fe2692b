/*
 * Owns the comparison of an engine's surroundings before and after load. Called by main. Must hold:
 * nothing it reports comes from the engine's own account, and it sees live sandboxes as readily as
 * residue, which main proves in every run (slots_populated while sandboxes live).
 */
#include "loadgen/residue.h"

#include "loadgen/cleanup.h"
#include "loadgen/processes.h"

#include <ctype.h>
#include <errno.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { SEARCH_DEPTH = 4, MOUNTS_OUTSIDE_MAX = 4096 };

struct residue {
	int32_t keeper; /* who listens at the address */
	char cgroup[PATH_MAX];
	struct processes processes;
	struct namespaces namespaces;
	uint64_t vault_mounts;
	uint32_t outside_count;
	uint64_t outside[MOUNTS_OUTSIDE_MAX]; /* ids of mounts where we are */
};

/* ---- where the engine is ---- */

static int keeper_find(const char *address, int32_t *ret)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	struct ucred who;
	socklen_t bytes = sizeof(who);
	auto_close int fd = -1;
	const char *path = address ? address : getenv("DSEC_ADDRESS");

	if (!path)
		path = "/run/dsec.sock";
	if (!strncmp(path, "stream+", 7))
		path += 7;
	if (!strncmp(path, "unix:", 5))
		path += 5;
	if (path[0] != '/')
		return -EOPNOTSUPP;
	if (strlen(path) >= sizeof(name.sun_path))
		return -ENAMETOOLONG;
	strcpy(name.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&name, sizeof(name)))
		return -errno;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes))
		return -errno;
	*ret = who.pid;
	return 0;
}

static int cgroup_mount_find(char *ret)
{
	auto_file FILE *file = fopen("/proc/self/mountinfo", "re");
	char line[2048], path[1024], type[64];

	if (!file)
		return -errno;
	while (fgets(line, sizeof(line), file)) {
		const char *rest = strstr(line, " - ");

		if (!rest || sscanf(rest, " - %63s", type) != 1 || strcmp(type, "cgroup2"))
			continue;
		if (sscanf(line, "%*s %*s %*s %*s %1023s", path) != 1)
			continue;
		snprintf(ret, PATH_MAX, "%s", path);
		return 0;
	}
	return -ENOENT;
}

/* The folder dsec-INSTANCE, near the top of the tree: an engine may itself live in a cgroup. */
static int cgroup_find(const char *mount, const char *instance, char *ret)
{
	char *const paths[] = { (char *)(uintptr_t)mount, NULL };
	char wanted[128];
	FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	FTSENT *entry;
	int r = -ENOENT;

	if (!walk)
		return -errno;
	snprintf(wanted, sizeof(wanted), "dsec-%s", instance);
	while (r && (entry = fts_read(walk))) {
		if (entry->fts_info != FTS_D)
			continue;
		if (!strcmp(entry->fts_name, wanted)) {
			snprintf(ret, PATH_MAX, "%s", entry->fts_path);
			r = 0;
		} else if (entry->fts_level >= SEARCH_DEPTH) {
			(void)fts_set(walk, entry, FTS_SKIP); /* fails for unknown options only */
		}
	}
	(void)fts_close(walk); /* it was only read */
	return r;
}

/* ---- slots' cgroups ---- */

static bool is_slot_name(const char *name)
{
	if (*name++ != 'b' || !*name)
		return false;
	while (isdigit((unsigned char)*name))
		name++;
	return !*name;
}

static uint64_t cgroup_processes(const char *folder, struct residue_report *report)
{
	auto_file FILE *file = NULL;
	char path[PATH_MAX + 16];
	uint64_t count = 0;
	int pid;

	snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
	file = fopen(path, "re");
	while (file && fscanf(file, "%d", &pid) == 1) {
		if (!report->first[0])
			snprintf(report->first, RESIDUE_TEXT_BYTES, "process %d in %.200s", pid,
				 folder);
		count++;
	}
	return count;
}

static int slots_look(const struct residue *residue, struct residue_report *report)
{
	char *const paths[] = { (char *)(uintptr_t)residue->cgroup, NULL };
	FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_NOSTAT, NULL);
	uint64_t before = 0;
	short slot_level = 0; /* of the slot we are in */
	FTSENT *entry;

	if (!walk)
		return -errno;
	while ((entry = fts_read(walk))) {
		if (entry->fts_info == FTS_D && !slot_level && is_slot_name(entry->fts_name)) {
			slot_level = entry->fts_level;
			before = report->processes;
			report->slots++;
		}
		if (entry->fts_info == FTS_D && slot_level)
			report->processes += cgroup_processes(entry->fts_path, report);
		if (entry->fts_info == FTS_DP && slot_level && slot_level == entry->fts_level) {
			report->slots_populated += report->processes > before;
			slot_level = 0;
		}
	}
	(void)fts_close(walk); /* it was only read */
	return 0;
}

/* ---- processes and namespaces below the keeper ---- */

static bool is_engine_program(const struct residue *residue, int32_t pid)
{
	char path[64], mine[PATH_MAX], theirs[PATH_MAX];
	ssize_t length;

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	length = readlink(path, mine, sizeof(mine));
	if (length < 0)
		return false;
	for (size_t i = 0; i < residue->processes.count; i++) {
		snprintf(path, sizeof(path), "/proc/%d/exe", residue->processes.items[i].pid);
		if (readlink(path, theirs, sizeof(theirs)) == length &&
		    !memcmp(mine, theirs, (size_t)length))
			return true;
	}
	return false;
}

/* In a slot's cgroup, and so counted there. */
static bool is_in_slot(int32_t pid)
{
	auto_file FILE *file = NULL;
	char path[64], line[PATH_MAX], *at;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		if (strncmp(line, "0::", 3))
			continue;
		line[strcspn(line, "\n")] = '\0';
		for (at = strtok(line, "/"); at; at = strtok(NULL, "/")) {
			if (is_slot_name(at))
				return true;
		}
	}
	return false;
}

static void process_look(const struct residue *residue, const struct process *process,
			 struct residue_report *report)
{
	if (process->state == 'Z') {
		report->zombies++;
		if (!report->first[0])
			snprintf(report->first, RESIDUE_TEXT_BYTES, "zombie %d of %d", process->pid,
				 process->parent);
		return;
	}
	if (processes_find(&residue->processes, process) || is_in_slot(process->pid) ||
	    is_engine_program(residue, process->pid))
		return;
	report->processes++;
	if (!report->first[0])
		snprintf(report->first, RESIDUE_TEXT_BYTES, "process %d, child of %d", process->pid,
			 process->parent);
}

/* A worker that was started meanwhile: it has a vault of its own, which ends with it. */
static bool is_new_worker(const struct residue *residue, const struct process *process)
{
	return process->state != 'Z' && !processes_find(&residue->processes, process) &&
	       !is_in_slot(process->pid) && is_engine_program(residue, process->pid);
}

static int namespaces_of_workers(const struct residue *residue, const struct processes *now,
				 struct residue_report *report, struct namespaces *ret)
{
	int r = 0;

	for (size_t i = 0; i < now->count && !r; i++) {
		if (!is_new_worker(residue, &now->items[i]))
			continue;
		report->workers_new++;
		r = namespaces_add_vault(ret, now->items[i].pid);
	}
	return r;
}

static int namespaces_look(const struct residue *residue, const struct processes *now,
			   struct residue_report *report)
{
	struct namespaces found = { 0 }, workers = { 0 };
	int r = namespaces_of_workers(residue, now, report, &workers);

	for (size_t i = 0; i < now->count && !r; i++)
		r = namespaces_add(&found, now->items[i].pid, true);
	for (size_t i = 0; i < found.count && !r; i++) {
		if (namespaces_have(&residue->namespaces, found.items[i]) ||
		    namespaces_have(&workers, found.items[i]))
			continue;
		report->namespaces++;
		if (!report->first[0])
			snprintf(report->first, RESIDUE_TEXT_BYTES, "namespace %llu",
				 (unsigned long long)found.items[i]);
	}
	namespaces_done(&found);
	namespaces_done(&workers);
	return r;
}

/* ---- mounts ---- */

static int64_t vault_mounts_count(const struct processes *processes)
{
	struct namespaces seen = { 0 };
	int64_t total = 0, count = 0;
	/* What we are in is no vault. */
	int r = namespaces_add(&seen, (int32_t)getpid(), false);

	for (size_t i = 0; i < processes->count && !r && count >= 0; i++) {
		count = mounts_held_count(processes->items[i].pid, &seen);
		total += count;
	}
	namespaces_done(&seen);
	if (r < 0)
		return r;
	return count < 0 ? count : total;
}

static bool is_sandbox_type(const char *type)
{
	static const char *const types[] = { "overlay", "erofs", "nsfs", "devpts", "mqueue" };

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		if (!strcmp(type, types[i]))
			return true;
	}
	return false;
}

/* Mounts of a kind that sandboxes are made of, in the namespace that we are in. */
static int outside_read(uint64_t *ids, uint32_t *ret_count, char *ret_last)
{
	auto_file FILE *file = fopen("/proc/self/mountinfo", "re");
	char line[4096], type[64];
	uint32_t count = 0;

	if (!file)
		return -errno;
	while (fgets(line, sizeof(line), file)) {
		const char *rest = strstr(line, " - ");

		if (!rest || sscanf(rest, " - %63s", type) != 1 || !is_sandbox_type(type))
			continue;
		if (count == MOUNTS_OUTSIDE_MAX)
			return -E2BIG;
		ids[count++] = strtoull(line, NULL, 10);
		snprintf(ret_last, RESIDUE_TEXT_BYTES, "mount %.200s", line);
	}
	*ret_count = count;
	return 0;
}

static int outside_look(const struct residue *residue, struct residue_report *report)
{
	uint64_t ids[MOUNTS_OUTSIDE_MAX];
	char last[RESIDUE_TEXT_BYTES];
	uint32_t count, known;
	int r = outside_read(ids, &count, last);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < count; i++) {
		for (known = 0; known < residue->outside_count; known++) {
			if (residue->outside[known] == ids[i])
				break;
		}
		if (known < residue->outside_count)
			continue;
		report->mounts++;
		if (!report->first[0])
			snprintf(report->first, RESIDUE_TEXT_BYTES, "%s", last);
	}
	return 0;
}

static void vault_look(const struct residue *residue, struct residue_report *report)
{
	/*
	 * One more for the image, which the first sandbox may have brought, and the root of each
	 * new worker's vault.
	 */
	uint64_t allowed = residue->vault_mounts + RESIDUE_SLOT_MOUNTS * report->slots + 1 +
			   report->workers_new;

	if (report->vault_mounts <= allowed)
		return;
	report->mounts += report->vault_mounts - allowed;
	if (!report->first[0])
		snprintf(report->first, RESIDUE_TEXT_BYTES, "%llu mounts in the vault, %llu fit",
			 (unsigned long long)report->vault_mounts, (unsigned long long)allowed);
}

/* ---- before and after ---- */

static int baseline_read(struct residue *residue)
{
	char last[RESIDUE_TEXT_BYTES];
	int64_t mounts;
	int r = processes_read(residue->keeper, &residue->processes);

	for (size_t i = 0; i < residue->processes.count && !r; i++)
		r = namespaces_add(&residue->namespaces, residue->processes.items[i].pid, true);
	if (!r)
		r = outside_read(residue->outside, &residue->outside_count, last);
	if (r < 0)
		return r;
	mounts = vault_mounts_count(&residue->processes);
	if (mounts < 0)
		return (int)mounts;
	residue->vault_mounts = (uint64_t)mounts;
	return 0;
}

int residue_open(const char *address, const char *instance, struct residue **ret)
{
	struct residue *residue = calloc(1, sizeof(*residue));
	char mount[PATH_MAX];
	int r;

	if (!residue)
		return -ENOMEM;
	r = keeper_find(address, &residue->keeper);
	if (!r)
		r = cgroup_mount_find(mount);
	if (!r)
		r = cgroup_find(mount, instance, residue->cgroup);
	if (!r)
		r = baseline_read(residue);
	if (r < 0)
		residue_close(residue);
	else
		*ret = residue;
	return r;
}

void residue_close(struct residue *residue)
{
	if (!residue)
		return;
	processes_done(&residue->processes);
	namespaces_done(&residue->namespaces);
	free(residue);
}

int residue_look(const struct residue *residue, struct residue_report *ret)
{
	struct residue_report report = { 0 };
	struct processes now = { 0 };
	int64_t mounts = 0;
	int r = slots_look(residue, &report);
	if (!r)
		r = processes_read(residue->keeper, &now);
	for (size_t i = 0; i < now.count; i++)
		process_look(residue, &now.items[i], &report);
	if (!r)
		r = namespaces_look(residue, &now, &report);
	if (!r)
		r = outside_look(residue, &report);
	if (!r) {
		mounts = vault_mounts_count(&now);
		r = mounts < 0 ? (int)mounts : 0;
	}
	processes_done(&now);
	if (r < 0)
		return r;
	report.vault_mounts = (uint64_t)mounts;
	vault_look(residue, &report);
	*ret = report;
	return 0;
}

int64_t residue_alive(const struct residue *residue)
{
	struct residue_report report = { 0 };
	int r = slots_look(residue, &report);

	return r < 0 ? r : (int64_t)report.slots_populated;
}

uint64_t residue_total(const struct residue_report *report)
{
	return report->processes + report->zombies + report->namespaces + report->mounts;
}
