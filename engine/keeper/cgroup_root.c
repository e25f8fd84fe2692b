/*
 * Owns an instance's directory in the cgroup2 tree: found, made, opened and, when everything ended,
 * removed. Called by the keeper, before an engine starts and after the last one ended. It never
 * kills: processes that are left are named, and the next engine of the instance sweeps them.
 */
#include "engine/keeper/cgroup_root.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"

enum {
	DEPTH_MAX = 24,	    /* of cgroups below the root: we make 3, a sandbox may make more */
	SURVIVORS_MAX = 32, /* processes named in the log */
};

static int mount_open(void);
static void controllers_enable(int cgroup_fd, const char *where);
static int tree_remove(int parent_fd, const char *name, int depth, int *survivors);

/* Octal escapes of mountinfo, in place. */
static void path_unescape(char *path)
{
	char *to = path;
	unsigned int byte;

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

int cgroup_mount_find(char *ret_path)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	auto_free char *line = NULL;
	size_t bytes = 0;
	int r = -ENOENT;

	if (!file)
		return -errno;
	while (r && getline(&line, &bytes, file) > 0) {
		char root[PATH_MAX], path[PATH_MAX], options[64];
		const char *type = strstr(line, " - ");

		if (!type || strncmp(type, " - cgroup2 ", 11) != 0)
			continue;
		if (sscanf(line, "%*d %*d %*s %4095s %4095s %63s", root, path, options) != 3)
			continue;
		/* A part of the tree bound elsewhere is not the mount. */
		if (strcmp(root, "/") != 0 || !strncmp(options, "ro", 2))
			continue;
		path_unescape(path);
		strcpy(ret_path, path);
		r = 0;
	}
	(void)fclose(file); /* was only read */
	return r;
}

int cgroup_root_open(const char *name)
{
	auto_close int mount_fd = mount_open();
	auto_close int fd = -1;

	if (mount_fd < 0)
		return mount_fd;
	controllers_enable(mount_fd, "the cgroup2 mount");
	if (mkdirat(mount_fd, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(mount_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	controllers_enable(fd, name);
	return take_fd(&fd);
}

int cgroup_root_remove(const char *name)
{
	auto_close int mount_fd = mount_open();
	int survivors = 0, r;

	if (mount_fd < 0)
		return mount_fd;
	r = tree_remove(mount_fd, name, 0, &survivors);
	if (survivors > SURVIVORS_MAX)
		log_error("... and %d more processes are left in cgroup %s",
			  survivors - SURVIVORS_MAX, name);
	return r == -ENOENT ? 0 : r;
}

int cgroup_root_exists(const char *name)
{
	auto_close int mount_fd = mount_open();
	struct stat info;

	if (mount_fd < 0)
		return mount_fd;
	if (!fstatat(mount_fd, name, &info, AT_SYMLINK_NOFOLLOW))
		return 1;
	return errno == ENOENT ? 0 : -errno;
}

static int mount_open(void)
{
	char path[PATH_MAX];
	int r, fd;

	r = cgroup_mount_find(path);
	if (r < 0)
		return r;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* The whole of a small control file, terminated. Returns its bytes. */
static int control_read(int cgroup_fd, const char *name, char *ret_text, size_t text_bytes)
{
	auto_close int fd = openat(cgroup_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, ret_text, text_bytes - 1);
	if (n < 0)
		return -errno;
	ret_text[n] = '\0';
	return (int)n;
}

static bool word_has(const char *text, const char *word)
{
	size_t bytes = strlen(word);

	while (*text) {
		size_t n = strcspn(text, " \n");

		if (n == bytes && !memcmp(text, word, n))
			return true;
		text += n;
		text += strspn(text, " \n");
	}
	return false;
}

static void controllers_enable(int cgroup_fd, const char *where)
{
	static const char *const wanted[] = { "memory", "pids", "cpu", "io" };
	char have[512], enabled[512], text[16];

	if (control_read(cgroup_fd, "cgroup.controllers", have, sizeof(have)) < 0)
		return;
	if (control_read(cgroup_fd, "cgroup.subtree_control", enabled, sizeof(enabled)) < 0)
		return;
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		auto_close int fd = -1;
		int bytes = snprintf(text, sizeof(text), "+%s", wanted[i]);

		if (!word_has(have, wanted[i])) {
			log_info("controller %s is not on cgroup v2 in %s: %s, continuing",
				 wanted[i], where,
				 strcmp(wanted[i], "pids") ?
					 "its limits are not enforced" :
					 "RLIMIT_NPROC limits processes instead");
			continue;
		}
		if (word_has(enabled, wanted[i]))
			continue;
		fd = openat(cgroup_fd, "cgroup.subtree_control", O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, text, (size_t)bytes) < 0)
			log_warning("controller %s could not be enabled in %s: %s, continuing",
				    wanted[i], where, strerrordesc_np(errno));
	}
}

static void survivors_name(int cgroup_fd, int *survivors)
{
	auto_close int fd = openat(cgroup_fd, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "re");
	int pid;

	if (!file)
		return;
	(void)take_fd(&fd); /* the stream's */
	while (fscanf(file, "%d", &pid) == 1) {
		char path[32], name[32] = "?", quoted[64];
		auto_close int name_fd = -1;
		ssize_t n;

		if ((*survivors)++ >= SURVIVORS_MAX)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/comm", pid);
		name_fd = open(path, O_RDONLY | O_CLOEXEC);
		n = name_fd < 0 ? -1 : read(name_fd, name, sizeof(name) - 1);
		if (n > 0)
			name[n - 1] = '\0';
		log_error("process %d %s is left", pid, log_quote(name, quoted, sizeof(quoted)));
	}
	(void)fclose(file); /* was only read */
}

static int children_remove(int cgroup_fd, int depth, int *survivors)
{
	int copy = fcntl(cgroup_fd, F_DUPFD_CLOEXEC, 0), ret = 0;
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;

	if (!dir) {
		int error = -errno;

		if (copy >= 0)
			(void)close(copy); /* was not taken over */
		return error;
	}
	while ((entry = readdir(dir))) {
		int r;

		if (entry->d_type != DT_DIR || !strcmp(entry->d_name, ".") ||
		    !strcmp(entry->d_name, ".."))
			continue;
		r = tree_remove(cgroup_fd, entry->d_name, depth + 1, survivors);
		if (r < 0 && r != -ENOENT)
			ret = r;
	}
	(void)closedir(dir); /* was only read */
	return ret;
}

/* Goes on after an error, so that all that can go goes and all that is left is named. */
static int tree_remove(int parent_fd, const char *name, int depth, int *survivors)
{
	auto_close int fd =
		openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	int r;

	if (fd < 0)
		return -errno;
	if (depth > DEPTH_MAX) {
		log_error("cgroup %s is nested too deep to remove", name);
		return -ELOOP;
	}
	r = children_remove(fd, depth, survivors);
	survivors_name(fd, survivors);
	if (!unlinkat(parent_fd, name, AT_REMOVEDIR))
		return 0;
	/* The reason below says more than "busy" here. */
	return r < 0 ? r : -errno;
}
