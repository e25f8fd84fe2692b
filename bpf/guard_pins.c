/*
 * Owns the directory of pins of one instance: dsec-INSTANCE below /sys/fs/bpf where that is a
 * bpffs, else below a bpffs of its own at /run/dsec/INSTANCE/bpf. Called by guard.c.
 *
 * Must hold: what is removed is detached first, for unpinning alone detaches some time later.
 */
#include "bpf/guard_pins.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "engine/base/cleanup.h"

enum { PIN_PATH_BYTES_MAX = GUARD_PATH_BYTES_MAX + 64 };

#define HOST_BPFFS "/sys/fs/bpf"
#define RUN	   "/run/dsec"

static bool path_is_bpffs(const char *path);
static int own_bpffs_mount(const char *instance, struct guard_pins *pins);
static int own_bpffs_unmount(const char *path);
static int pins_remove(const char *directory);

bool guard_instance_valid(const char *instance)
{
	size_t length;

	if (!instance)
		return false;
	length = strspn(instance, "abcdefghijklmnopqrstuvwxyz0123456789-");
	return length > 0 && length < GUARD_INSTANCE_BYTES_MAX && !instance[length];
}

int guard_pins_open(const char *instance, struct guard_pins *ret)
{
	struct guard_pins pins = {};
	const char *base = HOST_BPFFS;
	int r;

	if (!path_is_bpffs(HOST_BPFFS)) {
		r = own_bpffs_mount(instance, &pins);
		if (r < 0)
			return r;
		base = pins.mount;
	}
	r = snprintf(pins.directory, sizeof(pins.directory), "%s/dsec-%s", base, instance);
	if (r >= (int)sizeof(pins.directory))
		r = -ENAMETOOLONG;
	else
		r = mkdir(pins.directory, 0700) < 0 && errno != EEXIST ? -errno : 0;
	if (r < 0) {
		pins.directory[0] = '\0';
		guard_pins_close(&pins);
		return r;
	}
	*ret = pins;
	return 0;
}

int guard_pins_add(const struct guard_pins *pins, int fd, const char *name)
{
	char path[PIN_PATH_BYTES_MAX], fresh[PIN_PATH_BYTES_MAX];
	auto_close int old_fd = -1;
	int r;

	if (!pins->directory[0])
		return -ENOENT;
	snprintf(path, sizeof(path), "%s/%s", pins->directory, name);
	snprintf(fresh, sizeof(fresh), "%s/%s-new", pins->directory, name);
	(void)unlink(fresh); /* of an engine that died right here */
	r = bpf_obj_pin(fd, fresh);
	if (r < 0)
		return r;
	old_fd = bpf_obj_get(path);
	if (rename(fresh, path) < 0) {
		r = -errno;
		(void)unlink(fresh); /* the rename's error is what counts */
		return r;
	}
	if (old_fd >= 0)
		(void)bpf_link_detach(old_fd); /* fails for maps */
	return 0;
}

void guard_pins_close(struct guard_pins *pins)
{
	if (pins->directory[0])
		(void)pins_remove(pins->directory); /* what stays is found by the next sweep */
	if (pins->mount[0])
		(void)own_bpffs_unmount(pins->mount); /* likewise */
	if (pins->run_made)
		(void)rmdir(RUN); /* stays where others use it */
	*pins = (struct guard_pins){};
}

int guard_pins_sweep(const char *instance)
{
	char directory[PIN_PATH_BYTES_MAX], mount[GUARD_PATH_BYTES_MAX];
	int r = 0, failed;

	if (path_is_bpffs(HOST_BPFFS)) {
		snprintf(directory, sizeof(directory), "%s/dsec-%s", HOST_BPFFS, instance);
		r = pins_remove(directory);
	}
	snprintf(mount, sizeof(mount), "%s/%s/bpf", RUN, instance);
	if (path_is_bpffs(mount)) {
		snprintf(directory, sizeof(directory), "%s/dsec-%s", mount, instance);
		failed = pins_remove(directory);
		if (failed < 0)
			r = failed;
	}
	failed = own_bpffs_unmount(mount);
	return failed < 0 ? failed : r;
}

static bool path_is_bpffs(const char *path)
{
	struct statfs fs;

	return statfs(path, &fs) == 0 && fs.f_type == BPF_FS_MAGIC;
}

/* Sets ret_made when it was not there. */
static int directory_make(const char *path, mode_t mode, bool *ret_made)
{
	if (mkdir(path, mode) == 0) {
		*ret_made = true;
		return 0;
	}
	return errno == EEXIST ? 0 : -errno;
}

static int own_bpffs_mount(const char *instance, struct guard_pins *pins)
{
	bool made = false;
	int r;

	r = directory_make(RUN, 0755, &pins->run_made);
	if (r < 0)
		return r;
	snprintf(pins->mount, sizeof(pins->mount), "%s/%s", RUN, instance);
	r = directory_make(pins->mount, 0700, &made);
	if (r == 0) {
		snprintf(pins->mount, sizeof(pins->mount), "%s/%s/bpf", RUN, instance);
		r = directory_make(pins->mount, 0700, &made);
	}
	/* A dead engine's is taken over: its pins are replaced one by one. */
	if (r == 0 && !path_is_bpffs(pins->mount) &&
	    mount("bpf", pins->mount, "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700") < 0)
		r = -errno;
	if (r < 0)
		guard_pins_close(pins);
	return r;
}

/* The mount, its directory and the instance's, which holds nothing else of ours. */
static int own_bpffs_unmount(const char *path)
{
	char instance[GUARD_PATH_BYTES_MAX];

	while (path_is_bpffs(path))
		if (umount2(path, MNT_DETACH) < 0)
			return -errno;
	if (rmdir(path) < 0 && errno != ENOENT)
		return -errno;
	memcpy(instance, path, sizeof(instance));
	*strrchr(instance, '/') = '\0';
	(void)rmdir(instance); /* stays where others use it */
	return 0;
}

static int pin_remove(int directory_fd, const char *directory, const char *name)
{
	char path[GUARD_PATH_BYTES_MAX + NAME_MAX];
	auto_close int fd = -1;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = bpf_obj_get(path);
	if (fd >= 0)
		(void)bpf_link_detach(fd); /* fails for maps, which have nothing to detach */
	return unlinkat(directory_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

static int pins_remove(const char *directory)
{
	struct dirent *entry;
	int r = 0, failed;
	DIR *stream;

	stream = opendir(directory);
	if (!stream)
		return errno == ENOENT ? 0 : -errno;
	for (entry = readdir(stream); entry; entry = readdir(stream)) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		failed = pin_remove(dirfd(stream), directory, entry->d_name);
		if (failed < 0)
			r = failed;
	}
	closedir(stream);
	if (rmdir(directory) < 0 && errno != ENOENT && r == 0)
		r = -errno;
	return r;
}
