/*
 * Hides what /proc/net says of sockets. Called by the vault's maker, between fork and exit, and by
 * workers. Must hold: what is not named here is masked, so a kernel's new file is too.
 */
#include "backends/container/netns.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "backends/container/kernel.h"

/* As the kernel writes it; the name goes on after the struct. */
struct kernel_dirent {
	uint64_t inode, offset;
	uint16_t size;
	uint8_t type;
	char name[];
};

static bool name_is_open(const char *name)
{
	/* What ip, ifconfig and getifaddrs() read; it names interfaces and routes, no sockets. */
	static const char *const open_names[] = { ".",	   "..",       "dev",
						  "route", "if_inet6", "ipv6_route" };

	for (unsigned i = 0; i < sizeof open_names / sizeof *open_names; i++)
		if (strcmp(name, open_names[i]) == 0)
			return true;
	return false;
}

static long entries_mask(int dir_fd, const char *entries, long bytes)
{
	for (long at = 0; at < bytes;) {
		const struct kernel_dirent *entry = (const void *)(entries + at);
		long r;

		at += entry->size;
		if (name_is_open(entry->name))
			continue;
		r = KERNEL_CALL(SYS_fchmodat, dir_fd, (long)entry->name,
				entry->type == 4 /* directory */ ? 0500 : 0400);
		if (r < 0 && r != -ENOENT)
			return r;
	}
	return 0;
}

long netns_mask(int proc_fd)
{
	char entries[4096] __attribute__((aligned(8)));
	long fd = kernel_openat(proc_fd, "self/net", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0), r;

	if (fd < 0)
		return fd;
	do {
		r = KERNEL_CALL(SYS_getdents64, fd, (long)entries, sizeof entries);
		if (r > 0 && entries_mask((int)fd, entries, r) < 0)
			r = -EIO;
	} while (r > 0);
	(void)kernel_close((int)fd); /* only read */
	return r;
}
