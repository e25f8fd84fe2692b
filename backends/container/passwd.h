/* The sandbox's own /etc/passwd, which its users may have written. System calls only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct child;

struct passwd_wish {
	const char *name; /* NULL: by uid */
	uint32_t uid;
};

struct passwd_entry {
	uint32_t uid, gid;
	const char *home; /* in child->text */
};

/*
 * 0 and the first entry that fits, or -ENOENT, also where there is no such file; -EINVAL for
 * something that is no regular file of at most 64 KiB. The child has the credentials of the
 * sandbox's root, so the file says what any program inside would be told.
 */
long passwd_find(struct child *child, const struct passwd_wish *wish, struct passwd_entry *ret);

/* Decimal digits at *at, which moves behind them; false where there are none or too many. */
bool number_read(const char **at, uint32_t *ret);
