/*
 * FUSE connections: made when a shard serves its first segment, parked with the keeper, taken over
 * from an engine before. Called by the control thread. Must hold: the mount is in no namespace, so
 * nobody but this process opens its files; a device's descriptor is non-blocking, or io_uring waits
 * where nobody wakes it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/control.h"
#include "engine/keeper/keeper.h"
#include "engine/serve/serve_state.h"
#include "engine/serve/server.h"
#include "engine/shard.h"

/* Newer than the headers of Debian 12. Until Linux 6.9's headers are the minimum. */
enum { NOTIFY_RESEND = 7 };

#define STRING(x)  STRING_(x)
#define STRING_(x) #x
#define MAX_READ   131072

_Static_assert(MAX_READ == ASK_READ_BYTES_MAX, "what a read is");

static int context_fill(int context, int fuse_fd)
{
	char number[16];
	const char *const options[][2] = {
		{ "source", "dsec" }, { "fd", number },	   { "rootmode", "40555" },
		{ "user_id", "0" },   { "group_id", "0" }, { "max_read", STRING(MAX_READ) },
	};

	(void)snprintf(number, sizeof number, "%d", fuse_fd);
	for (size_t i = 0; i < sizeof options / sizeof *options; i++)
		if (fsconfig(context, FSCONFIG_SET_STRING, options[i][0], options[i][1], 0) < 0)
			return -errno;
	if (fsconfig(context, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0 ||
	    fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	return 0;
}

static int connection_make(struct serve_connection *connection)
{
	auto_close int fuse = open("/dev/fuse", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	auto_close int context = fsopen("fuse", FSOPEN_CLOEXEC);
	int r, mount;

	if (fuse < 0 || context < 0)
		return -errno;
	r = context_fill(context, fuse);
	if (r < 0)
		return r;
	mount = fsmount(context, FSMOUNT_CLOEXEC,
			MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
				MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOATIME);
	if (mount < 0)
		return -errno;
	connection->fuse_fd = take_fd(&fuse);
	connection->mount_fd = mount;
	return 0;
}

/* The shard has a descriptor of its own. */
static int connection_send(struct serve *serve, uint32_t shard, int fuse_fd, bool is_old)
{
	struct server_join *join = calloc(1, sizeof *join);

	if (!join)
		return -ENOMEM;
	join->fd = fcntl(fuse_fd, F_DUPFD_CLOEXEC, 0);
	if (join->fd < 0) {
		free(join);
		return -errno;
	}
	join->is_old = is_old;
	join->mail.deliver = server_connect;
	mail_send(control_io(serve->control), serve->node->shards[shard]->io, &join->mail);
	return 0;
}

int serve_connect(struct serve *serve, uint32_t shard)
{
	struct serve_connection *connection = &serve->connections[shard];
	int r;

	if (connection->fuse_fd >= 0)
		return 0;
	r = connection_make(connection);
	if (r >= 0)
		r = connection_send(serve, shard, connection->fuse_fd, false);
	if (r < 0) {
		cleanup_close(&connection->fuse_fd);
		cleanup_close(&connection->mount_fd);
		connection->fuse_fd = connection->mount_fd = -1;
		return r;
	}
	(void)snprintf(connection->name, sizeof connection->name, "fuse.%u.%u.%llx", shard,
		       serve->node->shard_count, (unsigned long long)serve->node->epoch);
	r = keeper_put(serve->keeper_fd, connection->name, connection->fuse_fd);
	if (r < 0)
		log_warning("fuse connection cannot be parked err=%s: mounts of it end with this"
			    " engine, continuing",
			    strerror(-r));
	return 0;
}

int serve_connection_open(struct serve *serve, uint32_t shard, const uint8_t *digest)
{
	char name[DIGEST_HEX_BYTES];
	int fd;

	digest_hex(digest, name);
	fd = openat(serve->connections[shard].mount_fd, name, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* ---- engines before ---- */

/* Lost: whoever reads there gets EIO. */
static void old_drop(const struct serve *serve, const char *name)
{
	(void)keeper_drop(serve->keeper_fd, name); /* then it goes with the keeper */
}

uint32_t serve_forsake(int keeper_fd)
{
	char name[PARKING_NAME_BYTES_MAX + 1];
	uint32_t at = 0, count = 0;

	while (keeper_name(keeper_fd, at, name) >= 0) {
		if (!strncmp(name, "fuse.", 5) && keeper_drop(keeper_fd, name) >= 0)
			count++;
		else
			at++;
	}
	return count;
}

static void old_resend(int fuse_fd)
{
	const struct {
		uint32_t bytes;
		int32_t code;
		uint64_t unique;
	} notice = { 16, NOTIFY_RESEND, 0 };

	/* Kernels without it: what was being read is answered by nobody. Until Linux 6.9. */
	if (write(fuse_fd, &notice, sizeof notice) < 0)
		log_warning("fuse requests cannot be sent again err=%s, continuing",
			    strerror(errno));
}

static void old_adopt(struct serve *serve, const char *name)
{
	unsigned int shard, shards, of_shard = 0;
	struct serve_connection *old = &serve->old[serve->old_count];
	int fd, r;

	if (sscanf(name, "fuse.%u.%u.", &shard, &shards) != 2)
		return;
	for (uint32_t i = 0; i < serve->old_count; i++)
		of_shard += !strncmp(serve->old[i].name, name, strcspn(name + 5, ".") + 6);
	if (shards != serve->node->shard_count || shard >= shards || of_shard >= SERVE_OLD_MAX) {
		log_warning("fuse connection of an engine before is ended name=%s", name);
		old_drop(serve, name);
		return;
	}
	r = keeper_get(serve->keeper_fd, name, &fd);
	if (r < 0)
		return;
	r = connection_send(serve, shard, fd, true);
	if (r < 0) {
		(void)close(fd);
		return;
	}
	old_resend(fd);
	*old = (struct serve_connection){ .fuse_fd = fd, .mount_fd = -1 };
	(void)snprintf(old->name, sizeof old->name, "%s", name);
	serve->old_count++;
	log_info("fuse connection of an engine before goes on name=%s", name);
}

void serve_adopt(struct serve *serve)
{
	char(*names)[PARKING_NAME_BYTES_MAX + 1] = calloc(PARKING_MAX, sizeof *names);
	uint32_t count = 0;

	/* All names first: what is dropped changes their places. */
	while (names && count < PARKING_MAX &&
	       keeper_name(serve->keeper_fd, count, names[count]) >= 0)
		count++;
	for (uint32_t i = 0; i < count; i++)
		old_adopt(serve, names[i]);
	free(names);
}

void serve_old_look(struct serve *serve)
{
	for (uint32_t i = 0; i < serve->old_count; i++) {
		struct serve_connection *old = &serve->old[i];
		struct pollfd poll_fd = { .fd = old->fuse_fd };

		if (poll(&poll_fd, 1, 0) <= 0 || !(poll_fd.revents & (POLLERR | POLLHUP)))
			continue;
		old_drop(serve, old->name);
		(void)close(old->fuse_fd);
		*old = serve->old[--serve->old_count];
		i--;
	}
}

void serve_connections_close(struct serve *serve)
{
	for (uint32_t i = 0; serve->connections && i < serve->node->shard_count; i++) {
		if (serve->connections[i].fuse_fd < 0)
			continue;
		/* Its last descriptor: reads under way fail, or unmounting waits for them. */
		old_drop(serve, serve->connections[i].name);
		(void)close(serve->connections[i].fuse_fd);
		(void)close(serve->connections[i].mount_fd);
	}
	for (uint32_t i = 0; i < serve->old_count; i++) {
		old_drop(serve, serve->old[i].name);
		(void)close(serve->old[i].fuse_fd);
	}
}
