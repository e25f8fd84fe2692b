/*
 * Owns the reading of /proc/PID: parents, states, namespaces, descriptors. Called by residue.c.
 * Must hold: it sees what the kernel has, whatever an engine believes; a process that ends while it
 * is looked at is skipped, any other failure is one.
 */
#include "loadgen/processes.h"

#include "loadgen/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Not in the headers of Debian 12; numbers and layout are the kernel's. */
#define LISTMOUNT_CALL	    458
#define LISTMOUNT_ROOT	    UINT64_MAX
#define NS_GET_MNTNS_ID_CMD _IOR(0xb7, 0x5, uint64_t)

struct listmount_request {
	uint32_t size, spare;
	uint64_t mount_id, after, namespace_id;
};

/* Makes room for one more item of item_bytes. */
static int grow(void *items, size_t count, size_t *room, size_t item_bytes)
{
	void **slot = items, *more;
	size_t wanted;

	if (count < *room)
		return 0;
	wanted = *room ? 2 * *room : 64;
	more = reallocarray(*slot, wanted, item_bytes);
	if (!more)
		return -ENOMEM;
	*slot = more;
	*room = wanted;
	return 0;
}

/* 0, -ESRCH when it is gone, or -errno. */
static int process_read(int32_t pid, struct process *ret)
{
	auto_file FILE *file = NULL;
	char path[64], text[1024], *at;
	size_t bytes;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return errno == ENOENT ? -ESRCH : -errno;
	bytes = fread(text, 1, sizeof(text) - 1, file);
	text[bytes] = '\0';
	/* The name may hold anything; what follows its last bracket does not. */
	at = strrchr(text, ')');
	if (!at)
		return -ESRCH;
	ret->pid = pid;
	if (sscanf(at + 1,
		   " %c %" SCNd32 " %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d"
		   " %*d %*d %" SCNu64,
		   &ret->state, &ret->parent, &ret->start_ticks) != 3)
		return -EINVAL;
	return 0;
}

static int process_compare(const void *a, const void *b)
{
	const struct process *left = a, *right = b;

	return left->pid < right->pid ? -1 : left->pid > right->pid;
}

static struct process *process_at(const struct processes *all, int32_t pid)
{
	const struct process key = { .pid = pid };

	if (!all->count)
		return NULL;
	return bsearch(&key, all->items, all->count, sizeof(key), process_compare);
}

static bool is_below(const struct processes *all, const struct process *process, int32_t root)
{
	size_t steps = 0;

	while (process && process->pid != root && steps++ < all->count)
		process = process_at(all, process->parent);
	return process && process->pid == root;
}

static int all_read(struct processes *all)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	int r = 0;

	if (!proc)
		return -errno;
	while (!r && (entry = readdir(proc))) {
		int32_t pid = atoi(entry->d_name);

		if (pid <= 0)
			continue;
		r = grow(&all->items, all->count, &all->room, sizeof(*all->items));
		if (r < 0)
			break;
		r = process_read(pid, &all->items[all->count]);
		if (!r)
			all->count++;
		if (r == -ESRCH)
			r = 0;
	}
	(void)closedir(proc); /* it was only read */
	if (all->count)
		qsort(all->items, all->count, sizeof(*all->items), process_compare);
	return r;
}

int processes_read(int32_t root, struct processes *ret)
{
	struct processes all = { 0 }, below = { 0 };
	int r = all_read(&all);

	for (size_t i = 0; i < all.count && !r; i++) {
		if (!is_below(&all, &all.items[i], root))
			continue;
		r = grow(&below.items, below.count, &below.room, sizeof(*below.items));
		if (!r)
			below.items[below.count++] = all.items[i];
	}
	processes_done(&all);
	if (!r && !below.count)
		r = -ESRCH;
	if (r < 0)
		processes_done(&below);
	else
		*ret = below;
	return r;
}

void processes_done(struct processes *processes)
{
	free(processes->items);
	*processes = (struct processes){ 0 };
}

const struct process *processes_find(const struct processes *processes,
				     const struct process *wanted)
{
	const struct process *found = process_at(processes, wanted->pid);

	return found && found->start_ticks == wanted->start_ticks ? found : NULL;
}

/* ---- namespaces ---- */

bool namespaces_have(const struct namespaces *namespaces, uint64_t inode)
{
	for (size_t i = 0; i < namespaces->count; i++) {
		if (namespaces->items[i] == inode)
			return true;
	}
	return false;
}

static int namespace_add(struct namespaces *namespaces, uint64_t inode)
{
	int r;

	if (namespaces_have(namespaces, inode))
		return 0;
	r = grow(&namespaces->items, namespaces->count, &namespaces->room,
		 sizeof(*namespaces->items));
	if (!r)
		namespaces->items[namespaces->count++] = inode;
	return r;
}

void namespaces_done(struct namespaces *namespaces)
{
	free(namespaces->items);
	*namespaces = (struct namespaces){ 0 };
}

/* "mnt:[4026531841]" gives the number; 0: no namespace. */
static uint64_t link_namespace(int directory, const char *name)
{
	static const char *const kinds[] = { "mnt:[", "pid:[",	"ipc:[",    "uts:[",
					     "net:[", "user:[", "cgroup:[", "time:[" };
	char link[64];
	ssize_t length = readlinkat(directory, name, link, sizeof(link) - 1);

	if (length < 0)
		return 0;
	link[length] = '\0';
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (!strncmp(link, kinds[i], strlen(kinds[i])))
			return strtoull(link + strlen(kinds[i]), NULL, 10);
	}
	return 0;
}

typedef int link_visit(void *context, int directory, const char *name, uint64_t inode);

/* Calls visit for each link to a namespace in /proc/PID/<folder>. */
static int links_walk(int32_t pid, const char *folder, link_visit *visit, void *context)
{
	char path[64];
	struct dirent *entry;
	DIR *links;
	int r = 0;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, folder);
	links = opendir(path);
	if (!links)
		return errno == ENOENT || errno == ESRCH ? 0 : -errno;
	while (!r && (entry = readdir(links))) {
		uint64_t inode = link_namespace(dirfd(links), entry->d_name);

		if (inode)
			r = visit(context, dirfd(links), entry->d_name, inode);
	}
	(void)closedir(links); /* it was only read */
	return r;
}

static int link_collect(void *context, int directory, const char *name, uint64_t inode)
{
	(void)directory;
	(void)name;
	return namespace_add(context, inode);
}

int namespaces_add(struct namespaces *namespaces, int32_t pid, bool is_held)
{
	int r = links_walk(pid, "ns", link_collect, namespaces);
	if (!r && is_held)
		r = links_walk(pid, "fd", link_collect, namespaces);
	return r;
}

static int link_collect_vault(void *context, int directory, const char *name, uint64_t inode)
{
	(void)directory;
	return strcmp(name, "mnt") && strcmp(name, "net") ? 0 : namespace_add(context, inode);
}

int namespaces_add_vault(struct namespaces *namespaces, int32_t pid)
{
	return links_walk(pid, "ns", link_collect_vault, namespaces);
}

/* ---- mounts of namespaces that are held ---- */

struct mount_count {
	struct namespaces *seen;
	int64_t mounts;
};

static int64_t mounts_count(int namespace_fd)
{
	struct listmount_request request = { .size = sizeof(request), .mount_id = LISTMOUNT_ROOT };
	uint64_t ids[512];
	int64_t total = 0, count;

	/* Another kind of namespace has no such id. */
	if (ioctl(namespace_fd, NS_GET_MNTNS_ID_CMD, &request.namespace_id))
		return 0;
	do {
		count = syscall(LISTMOUNT_CALL, &request, ids, sizeof(ids) / sizeof(*ids), 0);
		if (count < 0)
			return -errno;
		total += count;
		request.after = count ? ids[count - 1] : 0;
	} while (count == sizeof(ids) / sizeof(*ids));
	return total;
}

static int link_mounts(void *context, int directory, const char *name, uint64_t inode)
{
	struct mount_count *count = context;
	auto_close int fd = -1;
	int64_t mounts;
	int r;

	if (namespaces_have(count->seen, inode))
		return 0;
	r = namespace_add(count->seen, inode);
	if (r < 0)
		return r;
	fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ESRCH ? 0 : -errno;
	mounts = mounts_count(fd);
	if (mounts < 0)
		return (int)mounts;
	count->mounts += mounts;
	return 0;
}

int64_t mounts_held_count(int32_t pid, struct namespaces *seen)
{
	struct mount_count count = { .seen = seen };
	int r = links_walk(pid, "fd", link_mounts, &count);

	return r < 0 ? r : count.mounts;
}
