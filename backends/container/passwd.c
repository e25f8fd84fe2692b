/*
 * Looks a user up in a file that the sandbox controls. Called by a child in the worker's memory, so
 * it parses in place, in its own text, and calls nothing of libc's user database. Must hold: to
 * open never blocks, and a line that is not as it should be is skipped, never guessed at.
 */
#include "backends/container/passwd.h"

#include <errno.h>
#include <string.h>

#include "backends/container/kernel.h"
#include "backends/container/spawn.h"

enum { FIELD_NAME, FIELD_PASSWORD, FIELD_UID, FIELD_GID, FIELD_COMMENT, FIELD_HOME, FIELD_COUNT };

bool number_read(const char **at, uint32_t *ret)
{
	const char *digit = *at;
	uint64_t number = 0;

	for (; *digit >= '0' && *digit <= '9' && digit - *at < 10; digit++)
		number = number * 10 + (uint64_t)(*digit - '0');
	if (digit == *at || (*digit >= '0' && *digit <= '9') || number > UINT32_MAX)
		return false;
	*at = digit;
	*ret = (uint32_t)number;
	return true;
}

static bool field_number(const char *field, uint32_t *ret)
{
	return number_read(&field, ret) && *field == 0;
}

/* Cuts the line into its fields; false where some are missing. */
static bool line_split(char *line, char *fields[static FIELD_COUNT])
{
	for (unsigned i = 0; i < FIELD_COUNT; i++) {
		char *colon = strchr(line, ':');

		if (!colon)
			return false;
		*colon = 0;
		fields[i] = line;
		line = colon + 1;
	}
	return true;
}

static bool line_fits(char *line, const struct passwd_wish *wish, struct passwd_entry *ret)
{
	char *fields[FIELD_COUNT];
	struct passwd_entry entry;

	if (!line_split(line, fields) || !field_number(fields[FIELD_UID], &entry.uid) ||
	    !field_number(fields[FIELD_GID], &entry.gid))
		return false;
	if (wish->name ? strcmp(fields[FIELD_NAME], wish->name) != 0 : entry.uid != wish->uid)
		return false;
	entry.home = *fields[FIELD_HOME] ? fields[FIELD_HOME] : "/";
	*ret = entry;
	return true;
}

/* The whole file into the child's text; its length. */
static long file_read(struct child *child)
{
	const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	long fd = kernel_openat(AT_FDCWD, "/etc/passwd", flags, 0), r, bytes = 0;
	struct stat found;

	if (fd < 0)
		return fd;
	r = kernel_fstat((int)fd, &found);
	if (r >= 0 && (!S_ISREG(found.st_mode) || found.st_size >= STACK_TEXT_BYTES))
		r = -EINVAL;
	while (r >= 0 && bytes < STACK_TEXT_BYTES - 1) {
		r = kernel_read((int)fd, child->text + bytes,
				(size_t)(STACK_TEXT_BYTES - 1 - bytes));
		if (r <= 0)
			break;
		bytes += r;
	}
	(void)kernel_close((int)fd); /* only read */
	return r < 0 ? r : bytes;
}

long passwd_find(struct child *child, const struct passwd_wish *wish, struct passwd_entry *ret)
{
	long bytes = file_read(child);
	char *line = child->text;

	if (bytes < 0)
		return bytes;
	line[bytes] = 0;
	while (*line) {
		char *end = strchr(line, '\n');

		if (end)
			*end = 0;
		if (line_fits(line, wish, ret))
			return 0;
		if (!end)
			break;
		line = end + 1;
	}
	return -ENOENT;
}
