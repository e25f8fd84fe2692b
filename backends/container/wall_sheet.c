/*
 * Reading sheets of walls. Called by a worker for each request that brings one. Must hold: what is
 * used was copied first, and every count and offset in it was checked.
 */
#include "backends/container/walls.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "backends/container/launch.h"

static bool walls_fit(const struct walls *walls)
{
	const struct walls_head *head = walls->head;

	if (!memchr(head->profile, 0, sizeof head->profile) ||
	    (head->text_bytes && walls->text[head->text_bytes - 1] != 0))
		return false;
	for (uint32_t i = 0; i < head->mount_count; i++) {
		const struct walls_mount *mount = &walls->mounts[i];

		if (mount->rule == 0 || mount->rule > LAUNCH_RULES_MAX ||
		    mount->path >= head->text_bytes || walls->text[mount->path] != '/')
			return false;
	}
	return true;
}

int walls_read(int sheet_fd, char *buffer, struct walls *ret)
{
	const ssize_t bytes = pread(sheet_fd, buffer, WALLS_BYTES_MAX, 0);
	const struct walls_head *head = (const void *)buffer;
	const char *mounts = buffer + sizeof *head, *filter;
	struct walls walls;

	if (bytes < (ssize_t)sizeof *head || head->mount_count > WALLS_MOUNTS_MAX ||
	    head->filter_count > WALLS_FILTER_MAX || head->text_bytes > WALLS_TEXT_BYTES_MAX ||
	    (size_t)bytes != sizeof *head + head->mount_count * sizeof *walls.mounts +
				     head->filter_count * sizeof *walls.filter + head->text_bytes)
		return -EINVAL;
	filter = mounts + head->mount_count * sizeof *walls.mounts;
	walls = (struct walls){
		.head = head,
		.mounts = (const void *)mounts,
		.filter = (const void *)filter,
		.text = filter + head->filter_count * sizeof *walls.filter,
	};
	if (!walls_fit(&walls))
		return -EINVAL;
	*ret = walls;
	return 0;
}
