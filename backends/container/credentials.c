/*
 * Credentials of what runs in a sandbox. Called by children that share the worker's memory: system
 * calls only, no libc beyond copying. Must hold: entering the user namespace gave every capability
 * and a full bounding set back, so both functions come after it; no_new_privs keeps execve from
 * giving them again, which makes the 41 calls that would empty the bounding set needless.
 */
#include "backends/container/credentials.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>

#include "backends/container/kernel.h"
#include "backends/container/passwd.h"
#include "backends/container/spawn.h"
#include "backends/container/tty.h"
#include "backends/container/worker.h"

#define CAP(name) (1u << CAP_##name)

enum { IDS_MAX = 65536 };

/* Of Docker's set without MKNOD, NET_RAW and AUDIT_WRITE, all of them below 32. */
static const uint32_t root_capabilities =
	CAP(CHOWN) | CAP(DAC_OVERRIDE) | CAP(FOWNER) | CAP(FSETID) | CAP(KILL) | CAP(SETGID) |
	CAP(SETUID) | CAP(SETPCAP) | CAP(NET_BIND_SERVICE) | CAP(SYS_CHROOT) | 1u << CAP_SETFCAP;

#define CHILD_TRY(step, call) LAUNCH_TRY(&child->attempt, LAUNCH_STEP_##step, call)

static long capabilities_set(struct child *child, uint32_t set)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	const struct __user_cap_data_struct data[2] = { { set, set, 0 } };

	return CHILD_TRY(CREDENTIALS, KERNEL_CALL(SYS_capset, (long)&header, (long)data));
}

static long ids_set(struct child *child, uint32_t uid, uint32_t gid)
{
	long r = CHILD_TRY(CREDENTIALS, KERNEL_CALL(SYS_setresgid, gid, gid, gid));

	return r < 0 ? r : CHILD_TRY(CREDENTIALS, KERNEL_CALL(SYS_setresuid, uid, uid, uid));
}

long credentials_root(struct child *child)
{
	long r = ids_set(child, 0, 0);

	if (r >= 0)
		r = capabilities_set(child, root_capabilities);
	return r < 0 ? r : CHILD_TRY(CREDENTIALS, kernel_prctl(PR_SET_NO_NEW_PRIVS, 1));
}

static long user_become(struct child *child, const struct passwd_entry *entry)
{
	const bool has_tty = child->worker->order.request.flags & LAUNCH_TTY;
	long r = CHILD_TRY(CREDENTIALS, KERNEL_CALL(SYS_setgroups, 0, 0));

	if (r >= 0 && has_tty && entry->uid != 0)
		r = tty_pass(child, entry->uid);
	if (r >= 0)
		r = ids_set(child, entry->uid, entry->gid);
	if (r >= 0 && entry->uid != 0)
		r = capabilities_set(child, 0);
	return r;
}

/* A number that an id can be. */
static bool id_read(const char **at, uint32_t *ret)
{
	return number_read(at, ret) && *ret < IDS_MAX;
}

/* Whatever is wrong with the file: who names both ids does not depend on it. */
static void home_find(struct child *child, struct passwd_entry *entry)
{
	struct passwd_entry found;

	if (passwd_find(child, &(struct passwd_wish){ .uid = entry->uid }, &found) >= 0)
		entry->home = found.home;
}

/*
 * "7:8" asks for a home only. "7" takes the group from the entry of that uid, and gid 7 where there
 * is none. A name must have an entry; it begins with no digit.
 */
static long user_find(struct child *child, const char *user, struct passwd_entry *ret)
{
	struct passwd_wish wish = { .name = user };
	const char *at = user;
	long r;

	ret->home = "/";
	if (*at >= '0' && *at <= '9') {
		if (!id_read(&at, &ret->uid))
			return -EINVAL;
		if (*at == ':') {
			at++;
			if (!id_read(&at, &ret->gid) || *at != 0)
				return -EINVAL;
			home_find(child, ret);
			return 0;
		}
		if (*at != 0)
			return -EINVAL;
		ret->gid = ret->uid;
		wish = (struct passwd_wish){ .uid = ret->uid };
	}
	r = passwd_find(child, &wish, ret);
	if (r == -ENOENT && !wish.name)
		return 0;
	return r >= 0 && (ret->uid >= IDS_MAX || ret->gid >= IDS_MAX) ? -EINVAL : r;
}

long credentials_user(struct child *child, const char **ret_home)
{
	const char *user = child->worker->order.request.user;
	struct passwd_entry entry = { 0 };
	long r;

	if (*user == 0) {
		*ret_home = "/root";
		return 0;
	}
	r = CHILD_TRY(USER, user_find(child, user, &entry));
	if (r >= 0)
		r = user_become(child, &entry);
	if (r >= 0)
		*ret_home = entry.home;
	return r;
}
