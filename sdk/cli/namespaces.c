/*
 * Namespaces of processes and mounts, from /proc alone. Called by residue.c. What disappears while
 * it is looked at is skipped; memory that was not there is told when the set is counted.
 */
#include "sdk/cli/namespaces.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static const char *const kinds[] = { "cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts" };

static void inode_add(struct namespaces *set, uint64_t inode)
{
	size_t room = set->room ? 2 * set->room : 256;
	uint64_t *grown = set->inodes;

	if (set->count == set->room) {
		grown = realloc(set->inodes, room * sizeof(*grown));
		if (!grown) {
			set->error = -ENOMEM;
			return;
		}
		set->inodes = grown;
		set->room = room;
	}
	set->inodes[set->count++] = inode;
}

/* 0: there is none. */
static uint64_t inode_of(const char *process, const char *kind)
{
	char path[64];
	struct stat st;

	(void)snprintf(path, sizeof(path), "/proc/%s/ns/%s", process, kind); /* fits */
	return stat(path, &st) == 0 ? st.st_ino : 0;
}

void namespaces_add_process(struct namespaces *set, pid_t pid)
{
	char process[16];

	(void)snprintf(process, sizeof(process), "%d", pid); /* fits */
	for (size_t at = 0; at < sizeof(kinds) / sizeof(kinds[0]); at++) {
		uint64_t inode = inode_of(process, kinds[at]);

		if (inode && inode != inode_of("self", kinds[at]))
			inode_add(set, inode);
	}
}

void namespaces_add_mount(struct namespaces *set, const char *root)
{
	uint64_t inode;
	char kind[16];

	if (sscanf(root, "%15[a-z]:[%" SCNu64 "]", kind, &inode) == 2)
		inode_add(set, inode);
}

static int inode_compare(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

/* In order, each once. */
static void set_settle(struct namespaces *set)
{
	size_t count = 0;

	if (!set->count)
		return;
	qsort(set->inodes, set->count, sizeof(*set->inodes), inode_compare);
	for (size_t at = 0; at < set->count; at++) {
		if (!count || set->inodes[count - 1] != set->inodes[at])
			set->inodes[count++] = set->inodes[at];
	}
	set->count = count;
}

static bool set_has(const struct namespaces *set, uint64_t inode)
{
	return set && set->count &&
	       bsearch(&inode, set->inodes, set->count, sizeof(inode), inode_compare);
}

int64_t namespaces_count(struct namespaces *set, struct namespaces *without)
{
	int64_t count = 0;

	if (set->error || (without && without->error))
		return -ENOMEM;
	set_settle(set);
	if (without)
		set_settle(without);
	for (size_t at = 0; at < set->count; at++)
		count += !set_has(without, set->inodes[at]);
	return count;
}

void namespaces_done(struct namespaces *set)
{
	free(set->inodes);
	*set = (struct namespaces){ 0 };
}
