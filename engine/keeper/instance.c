/*
 * Owns what an instance's name stands for outside the process: files below /run/dsec, a range of
 * uids, a cgroup directory, a socket. Called by the keeper at its start and end. What must hold:
 * two live instances never share a uid, and nothing of another live instance is ever removed.
 *
 *	/run/dsec/NAME/lock	flock: one dsecd of that name
 *	/run/dsec/uids/K	flock: range K, holding the name of its owner. The name outlives a
 *				killed owner, whose sandboxes may still run on those uids
 */
#include "engine/keeper/instance.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/keeper/cgroup_root.h"
#include "engine/config.h"

enum {
	LISTEN_BACKLOG = 4096, /* clients that connect while an engine is restarted */
	STALE_PAUSES = 100,
	STALE_PAUSE_NS = 10 * 1000000,
	UID_LARGE = SLOTS_PER_INSTANCE * UID_RANGE,
	UID_SMALL = SLOTS_SMALL * UID_RANGE,
	UID_RANGES_LARGE = (UINT32_MAX - UID_RANGE_FIRST) / UID_LARGE,
	UID_RANGES_SMALL =
		(UINT32_MAX - UID_RANGE_FIRST - UID_RANGES_LARGE * (uint32_t)UID_LARGE) / UID_SMALL,
	UID_RANGES = UID_RANGES_LARGE + UID_RANGES_SMALL,
	UID_LARGE_FIRST = UID_RANGE_FIRST + UID_RANGES_SMALL * UID_SMALL,
};

/* All small ranges and a large one are below 2^31; see uids_end(). */
_Static_assert(UID_LARGE_FIRST + (uint32_t)UID_LARGE <= INT32_MAX, "no large range for Linux 6.12");

static int lock_take(struct instance *in, const struct instance_places *places);
static int uids_take(struct instance *in, const struct config *config,
		     const struct instance_places *places);
static int sockets_listen(struct instance *in, const struct config *config);
static void socket_remove(struct instance_socket *socket);
static void lock_release(struct instance *in, const struct instance_places *places);
static void descriptor_close(int *fd);

int instance_open(struct instance *instance, const struct config *config,
		  const struct instance_places *places)
{
	struct instance in = { .lock_fd = -1, .uids_fd = -1, .cgroup_fd = -1 };
	int r;

	for (int i = 0; i < TENANTS_MAX; i++)
		in.sockets[i].fd = -1;

	snprintf(in.name, sizeof(in.name), "%s", config->instance);
	snprintf(in.cgroup_name, sizeof(in.cgroup_name), "dsec-%s", config->instance);
	r = lock_take(&in, places);
	if (r < 0)
		goto fail;
	r = uids_take(&in, config, places);
	if (r < 0)
		goto fail;
	in.cgroup_fd = cgroup_root_open(in.cgroup_name);
	if (in.cgroup_fd < 0) {
		r = in.cgroup_fd;
		log_error("cgroup root %s: %s; mount cgroup2 for writing", in.cgroup_name,
			  strerrordesc_np(-r));
		goto fail;
	}
	r = sockets_listen(&in, config);
	if (r < 0)
		goto fail;
	*instance = in;
	return 0;
fail:
	if (in.lock_fd >= 0)
		(void)instance_close(&in, places); /* the first error counts */
	return r;
}

int instance_close(struct instance *in, const struct instance_places *places)
{
	int r = 0;

	for (int i = 0; i < TENANTS_MAX; i++)
		socket_remove(&in->sockets[i]);
	if (in->cgroup_fd >= 0)
		r = cgroup_root_remove(in->cgroup_name);
	if (r < 0)
		log_error("cgroup root %s stays: %s", in->cgroup_name, strerrordesc_np(-r));
	else if (in->uids_fd >= 0 && ftruncate(in->uids_fd, 0) < 0)
		log_debug("uid range still names %s: %s", in->name, strerrordesc_np(errno));
	for (int i = 0; i < TENANTS_MAX; i++)
		descriptor_close(&in->sockets[i].fd);
	descriptor_close(&in->cgroup_fd);
	descriptor_close(&in->uids_fd);
	lock_release(in, places); /* last: from here on a successor may start */
	return r;
}

static void descriptor_close(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd); /* nothing was written through it */
	*fd = -1;
}

/* ---- the lock of the name ---- */

static int directory_make(const char *path, mode_t mode)
{
	struct stat info;

	if (!mkdir(path, mode))
		return 0;
	if (errno != EEXIST)
		return -errno;
	if (lstat(path, &info) < 0)
		return -errno;
	return S_ISDIR(info.st_mode) && info.st_uid == geteuid() ? 0 : -ENOTDIR;
}

/* The last holder removes the file it holds: what was locked must still be what the name means. */
static bool file_is_current(int fd, const char *path)
{
	struct stat held, named;

	return !fstat(fd, &held) && !lstat(path, &named) && held.st_ino == named.st_ino &&
	       held.st_dev == named.st_dev;
}

static int lock_take(struct instance *in, const struct instance_places *places)
{
	char directory[PATH_MAX], path[PATH_MAX + 8];
	int r;

	for (;;) {
		auto_close int fd = -1;

		snprintf(directory, sizeof(directory), "%s/%s", places->run, in->name);
		snprintf(path, sizeof(path), "%s/lock", directory);
		r = directory_make(places->run, 0755);
		if (!r) {
			r = directory_make(directory, 0700);
			if (r == -ENOENT)
				continue; /* the last holder removed it in between */
		}
		if (r < 0) {
			log_error("directory %s: %s", directory, strerrordesc_np(-r));
			return r;
		}
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0 && errno == ENOENT)
			continue; /* the same */
		if (fd < 0) {
			r = -errno;
			log_error("lock %s: %s", path, strerrordesc_np(-r));
			return r;
		}
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			r = errno == EWOULDBLOCK ? -EBUSY : -errno;
			log_error(r == -EBUSY ? "instance %s: another dsecd runs it (%s: %s)" :
						"instance %s: lock %s: %s",
				  in->name, path, strerrordesc_np(-r));
			return r;
		}
		if (file_is_current(fd, path)) {
			in->lock_fd = take_fd(&fd);
			return 0;
		}
	}
}

static void lock_release(struct instance *in, const struct instance_places *places)
{
	char path[PATH_MAX];

	if (in->lock_fd < 0)
		return;
	snprintf(path, sizeof(path), "%s/%s/lock", places->run, in->name);
	(void)unlink(path); /* left: the next one uses it */
	snprintf(path, sizeof(path), "%s/%s", places->run, in->name);
	(void)rmdir(path); /* an engine may have left files, and a successor may be there */
	descriptor_close(&in->lock_fd);
}

/* ---- the uid range ---- */

/* Who was given this range last; "" for nobody. */
static void owner_read(int fd, char *ret_name, size_t bytes)
{
	ssize_t n = pread(fd, ret_name, bytes - 1, 0);

	ret_name[n > 0 ? n : 0] = '\0';
	ret_name[strcspn(ret_name, "\n")] = '\0';
}

static int owner_write(int fd, const char *name)
{
	if (ftruncate(fd, 0) < 0)
		return -errno;
	if (dprintf(fd, "%s\n", name) < 0)
		return -errno;
	return 0;
}

/* The small ranges have the lowest uids, the large ones share what is left below 2^32. */
static uint32_t range_first(uint32_t k)
{
	if (k < UID_RANGES_LARGE)
		return UID_LARGE_FIRST + k * (uint32_t)UID_LARGE;
	return UID_RANGE_FIRST + (k - UID_RANGES_LARGE) * (uint32_t)UID_SMALL;
}

static uint32_t range_end(uint32_t k)
{
	return range_first(k) + (k < UID_RANGES_LARGE ? (uint32_t)UID_LARGE : (uint32_t)UID_SMALL);
}

/* Terminals belong to a group of the slot's range. */
static bool devpts_takes(const char *gid)
{
	auto_close int fd = fsopen("devpts", FSOPEN_CLOEXEC);

	return fd >= 0 && !fsconfig(fd, FSCONFIG_SET_STRING, "gid", gid, 0) &&
	       !fsconfig(fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
}

/*
 * Where ranges must end. Linux 6.12 reads the group of a devpts as a signed number, and sandboxes
 * beyond it could not be made.
 */
static uint32_t uids_end(void)
{
	return devpts_takes("2147483648") ? UINT32_MAX : INT32_MAX;
}

/*
 * Locks range k for us if it is free. `mine_only`: only when it was ours before, so that an
 * instance that restarts keeps its range. 1: taken, 0: not.
 */
static int uids_try(struct instance *in, const char *directory, uint32_t k, bool mine_only)
{
	auto_close int fd = -1;
	char path[PATH_MAX + 16], owner[32], cgroup[48];
	int r;

	snprintf(path, sizeof(path), "%s/%" PRIu32, directory, k);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? 0 : -errno;
	owner_read(fd, owner, sizeof(owner));
	if (strcmp(owner, in->name) != 0) {
		if (mine_only)
			return 0;
		snprintf(cgroup, sizeof(cgroup), "dsec-%s", owner);
		r = owner[0] ? cgroup_root_exists(cgroup) : 0;
		if (r != 0) {
			log_warning("uid range %" PRIu32 " is skipped: instance %s was killed and"
				    " left cgroup root %s; start it once to clean up",
				    k, owner, cgroup);
			return 0;
		}
		r = owner_write(fd, in->name);
		if (r < 0)
			return r;
	}
	in->uid_first = range_first(k);
	in->uids_fd = take_fd(&fd);
	return 1;
}

/* One of [first, end) that is free, our last one if it is. 1: taken, 0: none. */
static int uids_take_of(struct instance *in, const char *directory, uint32_t first, uint32_t end)
{
	const uint32_t uid_end = uids_end();
	int r = 0;

	for (int pass = 0; r == 0 && pass < 2; pass++)
		for (uint32_t k = first; r == 0 && k < end; k++)
			if (range_end(k) <= uid_end)
				r = uids_try(in, directory, k, pass == 0);
	return r;
}

static int uids_take(struct instance *in, const struct config *config,
		     const struct instance_places *places)
{
	uint32_t slots = config->sandboxes_max + SLOTS_SPARE * config->shards;
	char directory[PATH_MAX];
	int r;

	snprintf(directory, sizeof(directory), "%s/uids", places->run);
	r = directory_make(directory, 0700);
	if (r == 0 && slots <= SLOTS_SMALL)
		r = uids_take_of(in, directory, UID_RANGES_LARGE, UID_RANGES);
	if (r == 0)
		r = uids_take_of(in, directory, 0, UID_RANGES_LARGE);
	if (r == 1)
		return 0;
	if (r < 0) {
		log_error("uid ranges in %s: %s", directory, strerrordesc_np(-r));
		return r;
	}
	log_error("instance %s: all uid ranges are taken: no more instances of this size fit on"
		  " this machine: end one, or take --sandboxes-max of %d less %d for each shard",
		  in->name, SLOTS_SMALL, SLOTS_SPARE);
	return -ENOSPC;
}

/* ---- the socket ---- */

/* What is at the path may go when it is a socket that nobody listens on. */
static int stale_remove(const struct sockaddr_un *address)
{
	auto_close int fd = -1;
	struct stat info;

	if (lstat(address->sun_path, &info) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(info.st_mode))
		return -EEXIST;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (!connect(fd, (const struct sockaddr *)address, sizeof(*address)))
		return -EADDRINUSE;
	if (errno != ECONNREFUSED)
		return errno == EAGAIN ? -EADDRINUSE : -errno;
	return unlink(address->sun_path) < 0 ? -errno : 0;
}

/* The kernel takes a killed engine's ring apart later, and with it its hold on the socket. */
static int stale_wait(const struct sockaddr_un *address)
{
	const struct timespec pause = { .tv_nsec = STALE_PAUSE_NS };
	int r = stale_remove(address);

	for (int i = 0; r == -EADDRINUSE && i < STALE_PAUSES; i++) {
		(void)nanosleep(&pause, NULL); /* shorter is fine */
		r = stale_remove(address);
	}
	return r;
}

static int socket_bind(int fd, const struct sockaddr_un *address, mode_t mode)
{
	/* Nobody may connect between bind and chmod; the keeper has one thread. */
	mode_t before = umask(0777);
	int r = bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ? -errno : 0;

	(void)umask(before); /* cannot fail */
	if (r < 0)
		return r;
	if (chmod(address->sun_path, mode) < 0)
		return -errno;
	return listen(fd, LISTEN_BACKLOG) < 0 ? -errno : 0;
}

static int socket_listen(struct instance_socket *ret, const char *path, mode_t mode)
{
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct stat info;
	int r;

	if (fd < 0)
		return -errno;
	if (strlen(path) >= sizeof(ret->path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	r = stale_wait(&address);
	if (!r)
		r = socket_bind(fd, &address, mode);
	if (!r && lstat(path, &info) < 0)
		r = -errno;
	if (r < 0) {
		log_error(r == -EADDRINUSE ? "socket %s: somebody listens on it (%s)" :
			  r == -EEXIST	   ? "socket %s: there is a file that is no socket (%s)" :
					     "socket %s: %s",
			  path, strerrordesc_np(-r));
		return r == -EADDRINUSE ? -EBUSY : r;
	}
	strcpy(ret->path, path);
	ret->device = info.st_dev;
	ret->inode = info.st_ino;
	ret->fd = take_fd(&fd);
	return 0;
}

/* In the place of each tenant its own; the first is the engine's. */
static int sockets_listen(struct instance *in, const struct config *config)
{
	int r = socket_listen(&in->sockets[0], config->socket_path, config->socket_mode);

	for (uint32_t i = 1; r == 0 && i < config->tenant_count; i++) {
		const struct tenant_config *tenant = &config->tenants[i];

		if (tenant->socket_path)
			r = socket_listen(&in->sockets[i], tenant->socket_path,
					  tenant->socket_mode);
	}
	return r;
}

static void socket_remove(struct instance_socket *socket)
{
	struct stat info;

	if (socket->fd < 0 || lstat(socket->path, &info) < 0)
		return;
	if (info.st_dev == socket->device && info.st_ino == socket->inode)
		(void)unlink(socket->path); /* a stale one is replaced at the next start */
}
