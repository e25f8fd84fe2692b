/*
 * The mounts of a policy around one sandbox. Called by the child that becomes PID 1, between the
 * making of its root and its entering it: with the host's rights, in a mount namespace of its own,
 * in the worker's memory, so system calls only; and by a worker inside a sandbox that runs. Must
 * hold: every path is resolved inside the sandbox's root, whatever links its image has; a link on
 * the way to what is kept from writing is kept in its place as well, or it could be pointed
 * elsewhere; a path that the image lacks is told of and passed over. `.` and `..` are taken out of
 * the text, where no link is before them: asked to stay below a root, the kernel fails at `..`
 * while anybody mounts anything (EAGAIN).
 */
#include <errno.h>
#include <linux/openat2.h>
#include <sched.h>
#include <string.h>

#include "backends/container/kernel.h"
#include "backends/container/root.h"
#include "backends/container/spawn.h"
#include "backends/container/worker.h"
#include "bpf/guard_policy.h"

enum { LINKS_MAX = 16 };

/* One rule being put up. */
struct wall {
	struct child *child;
	int root_fd, sandbox_fd; /* sandbox_fd: we are in its mount namespace; -1: in our own */
	uint32_t bits;
	struct statx found; /* what is at the end of its path */
};

#define WALL_TRY(call) LAUNCH_TRY(&wall->child->attempt, LAUNCH_STEP_WALLS, call)

static long wall_look(struct wall *wall, int fd)
{
	return WALL_TRY(KERNEL_CALL(SYS_statx, fd, (long)"", AT_EMPTY_PATH, STATX_TYPE,
				    (long)&wall->found));
}

static bool wall_found_mount(const struct wall *wall)
{
	return wall->found.stx_attributes & STATX_ATTR_MOUNT_ROOT;
}

/* The tree at fd, over itself: nobody renames or removes what something is mounted on. */
static long tree_bind(struct wall *wall, int fd, uint64_t attributes)
{
	const uint64_t secret = wall->child->worker->secret;
	struct mount_attr attr = { .attr_set = attributes };
	long tree, r = 0;

	tree = WALL_TRY(kernel_open_tree(
		fd, "", AT_EMPTY_PATH | AT_RECURSIVE | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC,
		secret));
	if (tree < 0)
		return tree;
	if (attributes)
		r = WALL_TRY(KERNEL_CALL(SYS_mount_setattr, tree, (long)"",
					 AT_EMPTY_PATH | AT_RECURSIVE, (long)&attr, sizeof attr,
					 secret));
	if (r >= 0)
		r = WALL_TRY(kernel_move_mount((int)tree, fd, "", secret));
	(void)kernel_close((int)tree); /* it hangs, or goes */
	return r;
}

static void namespace_enter(const struct wall *wall, int fd)
{
	long r = kernel_setns(fd, CLONE_NEWNS, wall->child->worker->secret);

	if (r < 0)
		worker_die("cannot change its mount namespace", r);
}

/* Covers lie in the worker's own namespace. */
static long cover_open(const struct wall *wall)
{
	const struct worker *w = wall->child->worker;
	const char *cover = S_ISDIR(wall->found.stx_mode) ? "/" ROOT_FOLDER : "/" ROOT_FILE;
	long tree;

	if (wall->sandbox_fd >= 0)
		namespace_enter(wall, w->own_mount_fd);
	tree = WALL_TRY(
		kernel_open_tree(AT_FDCWD, cover, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC, w->secret));
	if (wall->sandbox_fd >= 0)
		namespace_enter(wall, wall->sandbox_fd);
	return tree;
}

/* Our own empty file or folder over what was found. */
static long cover_put(struct wall *wall, int fd)
{
	const uint64_t secret = wall->child->worker->secret;
	long r, tree = cover_open(wall);

	if (tree < 0)
		return tree;
	r = WALL_TRY(kernel_move_mount((int)tree, fd, "", secret));
	(void)kernel_close((int)tree); /* it hangs, or goes */
	return r;
}

static long wall_put_up(struct wall *wall, int fd)
{
	struct mount_attr attr = { 0 };

	if (wall->bits & GUARD_FILE_HIDE)
		return cover_put(wall, fd);
	/* A folder alone is kept in its place; what is below it is not its rule's. */
	if (wall->bits & GUARD_FILE_WRITE &&
	    (wall->bits & GUARD_FILE_SUBTREE || !S_ISDIR(wall->found.stx_mode)))
		attr.attr_set |= MOUNT_ATTR_RDONLY;
	if (wall->bits & GUARD_FILE_EXECUTE)
		attr.attr_set |= MOUNT_ATTR_NOEXEC;
	if (!wall_found_mount(wall))
		return tree_bind(wall, fd, attr.attr_set);
	if (!attr.attr_set)
		return 0;
	return WALL_TRY(KERNEL_CALL(SYS_mount_setattr, fd, (long)"", AT_EMPTY_PATH | AT_RECURSIVE,
				    (long)&attr, sizeof attr, wall->child->worker->secret));
}

/* ---- paths: child->text holds one, and its links are put into it one after the other ---- */

static long place_open(struct wall *wall, const char *path)
{
	const struct open_how how = { .flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
				      .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };

	return WALL_TRY(KERNEL_CALL(SYS_openat2, wall->root_fd, (long)(*path ? path : "."),
				    (long)&how, sizeof how));
}

/* `fd` is a link, at text[0..end) of a path that goes on after it. */
static long link_follow(struct wall *wall, int fd, size_t name_at, size_t end)
{
	char *text = wall->child->text, *target = wall->child->home;
	const size_t rest_bytes = strlen(text + end) + 1;
	long bytes, r = 0;

	if (wall->bits & (GUARD_FILE_WRITE | GUARD_FILE_REPLACE) && !wall_found_mount(wall))
		r = tree_bind(wall, fd, 0);
	if (r < 0)
		return r;
	bytes = WALL_TRY(KERNEL_CALL(SYS_readlinkat, fd, (long)"", (long)target, STACK_HOME_BYTES));
	if (bytes < 0)
		return bytes;
	if (bytes == 0 || bytes == STACK_HOME_BYTES)
		return -ELOOP;
	if (*target == '/')
		name_at = 0;
	if (name_at + (size_t)bytes + rest_bytes > STACK_TEXT_BYTES)
		return -ELOOP;
	memmove(text + name_at + bytes, text + end, rest_bytes);
	memcpy(text + name_at, target, (size_t)bytes);
	return 1;
}

/* The next name of the path, from text[*at] on; `.` and `..` are gone with what they undo. */
static void name_next(char *text, size_t *ret_at, size_t *ret_end)
{
	size_t at = *ret_end, end;

	for (;;) {
		at += strspn(text + at, "/");
		end = at + strcspn(text + at, "/");
		if (end - at == 2 && text[at] == '.' && text[at + 1] == '.') {
			while (at > 0 && text[at - 1] == '/')
				at--;
			while (at > 0 && text[at - 1] != '/')
				at--;
		} else if (end - at != 1 || text[at] != '.') {
			break;
		}
		memmove(text + at, text + end, strlen(text + end) + 1);
	}
	*ret_at = at;
	*ret_end = end;
}

/* text[0..end), and what it is. */
static long prefix_open(struct wall *wall, size_t end)
{
	char *text = wall->child->text, kept = text[end];
	long fd, r;

	text[end] = 0;
	fd = place_open(wall, text);
	text[end] = kept;
	if (fd < 0)
		return fd;
	r = wall_look(wall, (int)fd);
	if (r >= 0)
		return fd;
	(void)kernel_close((int)fd); /* of no use */
	return r;
}

/* From the root to the next link: 1, and it is in the text. Else what the path leads to. */
static long path_walk(struct wall *wall, int *ret_fd)
{
	char *text = wall->child->text;
	size_t name_at, end = 0;

	for (;;) {
		long fd, r = 0;

		name_next(text, &name_at, &end);
		fd = prefix_open(wall, end);
		if (fd < 0)
			return fd;
		if (S_ISLNK(wall->found.stx_mode)) {
			r = link_follow(wall, (int)fd, name_at, end);
		} else if (text[end + strspn(text + end, "/")] == 0) {
			*ret_fd = (int)fd;
			return 0;
		}
		(void)kernel_close((int)fd); /* only the way */
		if (r != 0)
			return r;
	}
}

static long wall_make(struct wall *wall)
{
	int fd = -1, links = 0;
	long r;

	while ((r = path_walk(wall, &fd)) == 1)
		if (++links > LINKS_MAX)
			return -ELOOP;
	if (r < 0)
		return r;
	r = wall_put_up(wall, fd);
	(void)kernel_close(fd); /* only the way there */
	return r;
}

long walls_mount(struct child *child, int root_fd, int sandbox_fd)
{
	struct order *o = &child->worker->order;
	const struct walls *walls = &o->walls;

	for (uint32_t i = 0; walls->head && i < walls->head->mount_count; i++) {
		const struct walls_mount *mount = &walls->mounts[i];
		struct wall wall = { .child = child,
				     .root_fd = root_fd,
				     .sandbox_fd = sandbox_fd,
				     .bits = mount->bits };
		const char *path = walls->text + mount->path;
		long r;

		memcpy(child->text, path, strlen(path) + 1);
		r = wall_make(&wall);
		if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP || r == -ENAMETOOLONG)
			o->reply.rules_absent[(mount->rule - 1) / 64] |= 1ull
									 << (mount->rule - 1) % 64;
		else if (r < 0)
			return r;
	}
	return 0;
}
