/*
 * Who is in a control group. Called by hogs.c and bomb.c, on the governor's thread. Must hold: a
 * list is old when it is read, so nobody is touched by a number alone.
 */
#include "backends/container/members.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backends/container/group.h"
#include "engine/base/cleanup.h"

static void digit_take(struct members *ids, pid_t *number, char c)
{
	if (c >= '0' && c <= '9') {
		*number = *number * 10 + (c - '0');
		return;
	}
	if (*number && ids->count < MEMBERS_MAX)
		ids->all[ids->count++] = *number;
	*number = 0;
}

/* Of a control file; one that cannot be read is empty, and so is its group. */
void members_read(struct members *ids, int group_fd, const char *name)
{
	auto_close int fd = group_file_open(group_fd, name, O_RDONLY);
	char text[4096];
	pid_t number = 0;
	ssize_t n;

	ids->count = 0;
	while (fd >= 0 && ids->count < MEMBERS_MAX && (n = read(fd, text, sizeof text)) > 0)
		for (ssize_t i = 0; i < n; i++)
			digit_take(ids, &number, text[i]);
}

/*
 * A pid that was read may be somebody else's a moment later. Its cgroup reads "0::/GROUP", and the
 * leaf's path ends so; what cannot be read has ended.
 */
bool members_have(const char *group_path, pid_t tid)
{
	const size_t bytes = strlen(group_path);
	char path[32], text[4096];
	const char *group;
	size_t length;
	ssize_t n;

	(void)snprintf(path, sizeof path, "/proc/%d/cgroup", tid);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

	n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (n <= 0)
		return false;
	text[n] = 0;
	group = strstr(text, "0::/"); /* the others are "ID:NAMES:" */
	while (group && group > text && group[-1] != '\n')
		group = strstr(group + 1, "0::/");
	if (!group)
		return false;
	group += strlen("0::");
	length = strcspn(group, "\n");
	return length > 1 && length <= bytes &&
	       memcmp(group_path + bytes - length, group, length) == 0;
}
