/*
 * Slots of one shard and the proof that a root file system was not touched. Called by the container
 * backend. The proof: the upper directory starts empty, so the first change of any kind adds an
 * entry to its root or alters that inode, which moves its ctime, and a ctime cannot be set; free
 * inodes and blocks must be equal as well. It holds only when everything that ran was reaped. The
 * way to an upper leads through the vault, where workers mount and unmount: it is opened by an op
 * of the loop, which waits for them; what is looked at behind it is the slot's own.
 */
#include "backends/container/slot.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <time.h>

#include "engine/base/cleanup.h"

enum { CTIME_SETTLE_NS = 20 * 1000000 }; /* two ticks of the slowest clock, HZ=100 */

/*
 * Since Linux 6.13 a change after a stat always shows in a newer ctime. Before, ctimes move once
 * per tick, and a change in the tick that made the baseline would not show: the baseline must be
 * older, or what the change could have left is looked at.
 */
static bool ctime_is_fine(int vault_fd, uint32_t number)
{
	enum { ROUNDS = 16 };
	char path[40], below[48];
	struct statx before, after;
	bool fine = true;

	(void)snprintf(path, sizeof path, "slots/.ctime-%u", number);
	if (mkdirat(vault_fd, path, 0700) < 0)
		return false;
	for (int i = 0; fine && i < ROUNDS; i++) {
		(void)snprintf(below, sizeof below, "%s/%d", path, i);
		fine = statx(vault_fd, path, 0, STATX_CTIME, &before) == 0 &&
		       mkdirat(vault_fd, below, 0700) == 0 &&
		       statx(vault_fd, path, 0, STATX_CTIME, &after) == 0 &&
		       unlinkat(vault_fd, below, AT_REMOVEDIR) == 0 &&
		       (before.stx_ctime.tv_sec != after.stx_ctime.tv_sec ||
			before.stx_ctime.tv_nsec != after.stx_ctime.tv_nsec);
	}
	return unlinkat(vault_fd, path, AT_REMOVEDIR) == 0 && fine;
}

int slots_init(struct slots *slots, int vault_fd, uint32_t first, uint32_t count)
{
	*slots = (struct slots){ .vault_fd = vault_fd, .count = count };
	slots->fine_ctime = ctime_is_fine(vault_fd, first);
	slots->all = calloc(count, sizeof *slots->all);
	if (!slots->all)
		return -ENOMEM;
	for (uint32_t i = 0; i < SLOT_STATES; i++)
		slots->lists[i].next = slots->lists[i].previous = &slots->lists[i];
	for (uint32_t i = 0; i < count; i++) {
		struct slot *slot = &slots->all[i];

		slot->number = first + i;
		slot->next = slot->previous = slot;
		slots->counts[SLOT_EMPTY]++;
		slot_move(slots, slot, SLOT_EMPTY);
	}
	return 0;
}

void slots_done(struct slots *slots)
{
	free(slots->all);
	slots->all = NULL;
}

struct slot *slots_find(const struct slots *slots, uint32_t number)
{
	uint32_t at = number - slots->all[0].number;

	return at < slots->count ? &slots->all[at] : NULL;
}

/* At the head of the list: the slot used last is the warmest. */
void slot_move(struct slots *slots, struct slot *slot, enum slot_state state)
{
	struct slot *head = &slots->lists[state];

	slots->counts[slot->state]--;
	slots->counts[state]++;
	slot->previous->next = slot->next;
	slot->next->previous = slot->previous;
	slot->state = state;
	slot->next = head->next;
	slot->previous = head;
	head->next->previous = slot;
	head->next = slot;
}

struct slot *slot_first(struct slots *slots, enum slot_state state)
{
	struct slot *head = &slots->lists[state];

	return head->next == head ? NULL : head->next;
}

static bool slot_fits(const struct slot *slot, const struct slot_wish *wish)
{
	return slot->image == wish->image && slot->disk_bytes == wish->disk_bytes &&
	       slot->inodes == wish->inodes && slot->processes_max == wish->processes_max;
}

static uint64_t realtime_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct slot *slot_take(struct slots *slots, const struct slot_wish *wish, bool *ret_rebuild)
{
	enum { LOOK_MAX = 64 };
	struct slot *head = &slots->lists[SLOT_CLEAN], *slot = head->next;

	for (int looked = 0; slot != head && looked < LOOK_MAX; looked++, slot = slot->next)
		if (slot_fits(slot, wish) && !wish->fresh_root)
			break;
	*ret_rebuild = slot == head || !slot_fits(slot, wish) || wish->fresh_root;
	if (*ret_rebuild)
		slot = slot_first(slots, SLOT_DIRTY);
	/* One that is remade anyway may as well be one that has its user namespace already. */
	if (!slot && wish->fresh_root && slots->counts[SLOT_CLEAN])
		slot = head->previous;
	if (!slot)
		slot = slot_first(slots, SLOT_EMPTY);
	if (!slot && slots->counts[SLOT_CLEAN])
		slot = head->previous; /* the coldest, of another image */
	if (!slot)
		return NULL;
	slot->young = !slots->fine_ctime && realtime_ns() - slot->built_ns < CTIME_SETTLE_NS;
	slot->sandboxes++;
	slot->suspect = false;
	slot_move(slots, slot, SLOT_TAKEN);
	return slot;
}

void slot_built(const struct slots *slots, struct slot *slot, const struct slot_wish *wish,
		const struct launch_reply *reply)
{
	slot->image = wish->image;
	slot->forgotten = false;
	slot->disk_bytes = wish->disk_bytes;
	slot->inodes = wish->inodes;
	slot->processes_max = wish->processes_max;
	slot->baseline = reply->baseline;
	slot->cgroup_id = reply->cgroup_id;
	slot->uses = 0;
	slot->leaves_made |= 1;
	slot->built_ns = realtime_ns();
	slot->young = !slots->fine_ctime;
	slot->suspect = false;
}

/* Only the overlay's own, which nobody inside can see or set. */
static bool attributes_are_pristine(int fd)
{
	static const char overlays[] = "trusted.overlay.";
	char names[1024];
	ssize_t bytes = flistxattr(fd, names, sizeof names);

	for (const char *name = names; bytes > 0 && name < names + bytes; name += strlen(name) + 1)
		if (strncmp(name, overlays, sizeof overlays - 1) != 0)
			return false;
	return bytes >= 0;
}

/*
 * That the upper's root is as it was born, whatever its ctime: all of its inode, since entries show
 * in the count of free inodes. Its times are one as long as nobody set them or made an entry.
 */
static bool upper_is_pristine(int up, const struct launch_baseline *baseline)
{
	auto_close int fd = openat(up, "u", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct statx now;
	int flags;

	if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &now) < 0 ||
	    ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0)
		return false;
	return (now.stx_mask & STATX_BTIME) && !flags && now.stx_mode == baseline->mode &&
	       now.stx_uid == baseline->uid && now.stx_gid == baseline->uid &&
	       !memcmp(&now.stx_mtime, &now.stx_btime, sizeof now.stx_mtime) &&
	       !memcmp(&now.stx_atime, &now.stx_btime, sizeof now.stx_atime) &&
	       attributes_are_pristine(fd);
}

void slot_path(const struct slot *slot, char ret[static SLOT_PATH_BYTES])
{
	(void)snprintf(ret, SLOT_PATH_BYTES, "slots/%u/up", slot->number);
}

bool slot_untouched(const struct slot *slot, int up_fd)
{
	struct statx now;
	struct statfs usage;

	if (up_fd < 0 || statx(up_fd, "u", AT_SYMLINK_NOFOLLOW, STATX_CTIME, &now) < 0 ||
	    fstatfs(up_fd, &usage) < 0)
		return false;
	return (uint64_t)now.stx_ctime.tv_sec * 1000000000u + now.stx_ctime.tv_nsec ==
		       slot->baseline.ctime_ns &&
	       (uint64_t)usage.f_ffree == slot->baseline.free_inodes &&
	       (uint64_t)usage.f_bfree == slot->baseline.free_blocks &&
	       (!slot->young || upper_is_pristine(up_fd, &slot->baseline));
}

bool slot_give(struct slots *slots, struct slot *slot, int up_fd)
{
	bool clean = !slot->suspect && ++slot->uses < slots->uses_max &&
		     slot_untouched(slot, up_fd);

	slot_move(slots, slot, clean ? SLOT_CLEAN : SLOT_DIRTY);
	return clean;
}
