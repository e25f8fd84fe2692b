/* Small files of /proc and /sys. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The text of a file without its last newline, terminated and cut at `bytes`. 0 or -errno. */
int file_text(const char *path, char *ret_text, size_t bytes);
/* The one number in a file: 0, -errno, -EINVAL. */
int file_number(const char *path, uint64_t *ret);
/* The number behind `key` in the line that begins with it: 0, -errno, -ENOENT. */
int file_field(const char *path, const char *key, int base, unsigned long long *ret);
/* Write a string to a file that exists: 0 or -errno. */
int file_write(const char *path, const char *text);
