/* The processes below one process, as /proc shows them, and the namespaces they hold. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct process {
	int32_t pid, parent;
	uint64_t start_ticks; /* with pid: who it is, for ever */
	char state;	      /* 'Z': a zombie */
};

struct processes {
	struct process *items; /* in order of pid */
	size_t count, room;
};

/* root and everything below it. 0, -ESRCH without root, or -errno. Free with processes_done(). */
int processes_read(int32_t root, struct processes *ret);
void processes_done(struct processes *processes);
/* The same process, not only the same pid; NULL: not among them. */
const struct process *processes_find(const struct processes *processes,
				     const struct process *wanted);

/* Inode numbers of namespaces. */
struct namespaces {
	uint64_t *items;
	size_t count, room;
};

/* Those this process is in, and with is_held those it has descriptors of. What ended is skipped. */
int namespaces_add(struct namespaces *namespaces, int32_t pid, bool is_held);
/* The two that a worker makes for itself: of mounts, and of the network. */
int namespaces_add_vault(struct namespaces *namespaces, int32_t pid);
bool namespaces_have(const struct namespaces *namespaces, uint64_t inode);
void namespaces_done(struct namespaces *namespaces);

/* How many mounts hang in mount namespaces that this process holds by descriptor but is not in. */
int64_t mounts_held_count(int32_t pid, struct namespaces *seen);
