/*
 * The machine's own account of an instance. Called by check.c. Read only; what disappears while it
 * reads is skipped, since things may end at any time.
 *
 *	MOUNT/dsec-INSTANCE/SHARD/bSLOT	a slot: PID 1 of its sandbox; its attribute has the id
 *	.../bSLOT/eLEAF			an exec
 */
#include "sdk/cli/residue.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/xattr.h>

#include "sdk/cli/cleanup.h"

static const char sandbox_attribute[] = "trusted.dsec.sandbox";
static const char cgroup_prefix[] = "dsec-";

struct walk {
	struct residue *residue;
	const struct residue_live *live;
	bool running;
	short slot_level; /* of the slot that we are in; 0: none */
	bool slot_live;
	uint64_t slot_processes;
};

static void first_note(struct residue *residue, const char *what, const char *where)
{
	if (!residue->first[0])
		(void)snprintf(residue->first, sizeof(residue->first), "%s %.200s", what,
			       where); /* cut is fine */
}

/* Octal escapes of mountinfo, in place. */
static void path_unescape(char *path)
{
	unsigned int byte;
	char *to = path;

	for (const char *from = path; *from; to++) {
		if (from[0] == '\\' && sscanf(from + 1, "%3o", &byte) == 1) {
			*to = (char)byte;
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = '\0';
}

int residue_mount_find(char *ret_path)
{
	auto_file FILE *file = fopen("/proc/self/mountinfo", "re");
	auto_free char *line = NULL;
	size_t bytes = 0;

	if (!file)
		return -errno;
	while (getline(&line, &bytes, file) > 0) {
		char root[PATH_MAX], path[PATH_MAX];
		const char *type = strstr(line, " - cgroup2 ");

		if (!type || sscanf(line, "%*s %*s %*s %4095s %4095s", root, path) != 2)
			continue;
		if (strcmp(root, "/") != 0)
			continue;
		path_unescape(path);
		(void)snprintf(ret_path, PATH_MAX, "%s", path); /* fits: as long as its source */
		return 0;
	}
	return -ENOENT;
}

/* ---- cgroups ---- */

static bool is_slot(const char *name)
{
	if (*name++ != 'b' || !*name)
		return false;
	while (isdigit((unsigned char)*name))
		name++;
	return !*name;
}

static bool slot_is_live(const char *path, const struct residue_live *live)
{
	struct dsec_id id;
	char text[33];

	if (getxattr(path, sandbox_attribute, text, 32) != 32)
		return false;
	text[32] = '\0';
	if (sscanf(text, "%16" SCNx64 "%16" SCNx64, &id.hi, &id.lo) != 2)
		return false;
	for (size_t at = 0; at < live->count; at++) {
		if (live->ids[at].hi == id.hi && live->ids[at].lo == id.lo)
			return true;
	}
	return false;
}

static uint64_t processes_count(const char *folder, struct residue *residue, bool left)
{
	auto_file FILE *file = NULL;
	char path[PATH_MAX + 16], what[32];
	uint64_t count = 0;
	int pid;

	(void)snprintf(path, sizeof(path), "%s/cgroup.procs", folder); /* fits */
	file = fopen(path, "re");
	while (file && fscanf(file, "%d", &pid) == 1) {
		count++;
		namespaces_add_process(left ? &residue->left_namespaces : &residue->namespaces,
				       pid);
		(void)snprintf(what, sizeof(what), "process %d in", pid); /* fits */
		if (left)
			first_note(residue, what, folder);
	}
	return count;
}

/* An import's: its engine accounts for it by a gauge. */
static bool is_import(const char *name)
{
	return !strncmp(name, "import", 6) && isdigit((unsigned char)name[6]);
}

static void folder_enter(struct walk *walk, const FTSENT *entry)
{
	struct residue *residue = walk->residue;
	uint64_t processes;

	if (!walk->slot_level && is_slot(entry->fts_name)) {
		walk->slot_level = entry->fts_level;
		walk->slot_processes = 0;
		walk->slot_live = walk->running && slot_is_live(entry->fts_path, walk->live);
		residue->slots += walk->running;
	}
	if (walk->running && is_import(entry->fts_name))
		return;
	processes =
		processes_count(entry->fts_path, residue, !(walk->slot_level && walk->slot_live));
	if (walk->slot_level && walk->slot_live) {
		residue->processes += processes;
		walk->slot_processes += processes;
	} else {
		residue->left_processes += processes;
	}
	if (!walk->running) {
		residue->left_cgroups++;
		first_note(residue, "cgroup", entry->fts_path);
	}
}

static void folder_leave(struct walk *walk, const FTSENT *entry)
{
	if (!walk->slot_level || walk->slot_level != entry->fts_level)
		return;
	walk->residue->sandboxes += walk->slot_live && walk->slot_processes;
	walk->slot_level = 0;
}

int residue_read_cgroups(const char *root, const char *instance, bool running,
			 const struct residue_live *live, struct residue *residue)
{
	struct walk walk = { .residue = residue, .live = live, .running = running };
	char path[PATH_MAX], *paths[] = { path, NULL };
	FTSENT *entry;
	FTS *fts;

	if (snprintf(path, sizeof(path), "%s/%s%s", root, cgroup_prefix, instance) >=
	    (int)sizeof(path))
		return -ENAMETOOLONG;
	if (access(path, F_OK) < 0)
		return -errno;
	fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	if (!fts)
		return -errno;
	while ((entry = fts_read(fts))) {
		if (entry->fts_info == FTS_D)
			folder_enter(&walk, entry);
		else if (entry->fts_info == FTS_DP)
			folder_leave(&walk, entry);
	}
	(void)fts_close(fts); /* it was only read */
	return 0;
}

int residue_instances(const char *root, void (*found)(void *state, const char *instance),
		      void *state)
{
	DIR *dir = opendir(root);
	struct dirent *entry;

	if (!dir)
		return -errno;
	while ((entry = readdir(dir))) {
		size_t bytes = strlen(cgroup_prefix);

		if (entry->d_type == DT_DIR && !strncmp(entry->d_name, cgroup_prefix, bytes))
			found(state, entry->d_name + bytes);
	}
	(void)closedir(dir); /* it was only read */
	return 0;
}

int residue_instance_runs(const char *instance)
{
	char path[PATH_MAX];
	auto_close int fd = -1;

	if (snprintf(path, sizeof(path), "/run/dsec/%s/lock", instance) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	/* Its engine holds the lock exclusively; a shared try of ours is gone at once. */
	if (flock(fd, LOCK_SH | LOCK_NB) == 0)
		return 0;
	return errno == EWOULDBLOCK ? 1 : -errno;
}

/* ---- mounts ---- */

/* Whose the mount is: NAME of /run/dsec/NAME/... -ENOENT: nobody's of ours. */
static int mount_instance(const char *path, char *ret_name, size_t name_bytes)
{
	static const char folder[] = "/run/dsec/";
	size_t bytes;

	if (strncmp(path, folder, strlen(folder)) != 0)
		return -ENOENT;
	path += strlen(folder);
	bytes = strcspn(path, "/");
	if (!bytes || bytes >= name_bytes)
		return -ENOENT;
	memcpy(ret_name, path, bytes);
	ret_name[bytes] = '\0';
	return 0;
}

int residue_read_mounts(const char *instance, struct residue *residue)
{
	auto_file FILE *file = fopen("/proc/self/mountinfo", "re");
	auto_free char *line = NULL;
	size_t bytes = 0;

	if (!file)
		return -errno;
	while (getline(&line, &bytes, file) > 0) {
		char root[PATH_MAX], path[PATH_MAX], name[RESIDUE_NAME_BYTES];

		if (sscanf(line, "%*s %*s %*s %4095s %4095s", root, path) != 2)
			continue;
		path_unescape(path);
		if (mount_instance(path, name, sizeof(name)) < 0)
			continue;
		if ((instance && strcmp(instance, name) != 0) || residue_instance_runs(name))
			continue;
		residue->left_mounts++;
		namespaces_add_mount(&residue->left_namespaces, root);
		first_note(residue, "mount", path);
	}
	return 0;
}

void residue_done(struct residue *residue)
{
	namespaces_done(&residue->namespaces);
	namespaces_done(&residue->left_namespaces);
}

uint64_t residue_left(const struct residue *residue)
{
	return residue->left_processes + residue->left_cgroups + residue->left_mounts;
}
