/* Owns reading and writing of the kernel's small text files for probes. Stateless. */
#include "engine/check/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/cleanup.h"

int file_text(const char *path, char *ret_text, size_t bytes)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, ret_text, bytes - 1);
	if (n < 0)
		return -errno;
	if (n > 0 && ret_text[n - 1] == '\n')
		n--;
	ret_text[n] = '\0';
	return 0;
}

int file_number(const char *path, uint64_t *ret)
{
	char text[32], *end;
	uint64_t number;
	int r;

	r = file_text(path, text, sizeof(text));
	if (r < 0)
		return r;
	number = strtoull(text, &end, 10);
	if (end == text)
		return -EINVAL;
	*ret = number;
	return 0;
}

int file_field(const char *path, const char *key, int base, unsigned long long *ret)
{
	FILE *file = fopen(path, "re");
	char line[256];
	int r = -ENOENT;

	if (!file)
		return -errno;
	while (r && fgets(line, sizeof(line), file)) {
		if (strncmp(line, key, strlen(key)) != 0)
			continue;
		*ret = strtoull(line + strlen(key), NULL, base);
		r = 0;
	}
	(void)fclose(file); /* was only read */
	return r;
}

int file_write(const char *path, const char *text)
{
	auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}
