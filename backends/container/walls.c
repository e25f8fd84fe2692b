/*
 * Sheets of walls: made of a policy on the engine's control thread. Must hold: a sheet is sealed
 * before anybody else sees it.
 */
#include "backends/container/walls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "backends/backend.h"
#include "backends/container/filter.h"
#include "backends/container/launch.h"
#include "bpf/guard_policy.h"
#include "engine/base/cleanup.h"

_Static_assert((int)WALLS_MOUNTS_MAX == (int)GUARD_POLICY_RULES_MAX, "a mount for each rule");
_Static_assert((int)BOX_RULES_MAX == (int)GUARD_POLICY_RULES_MAX, "a bit for each rule");
_Static_assert((int)LAUNCH_RULES_MAX == (int)GUARD_POLICY_RULES_MAX, "a bit for each rule");
_Static_assert((int)WALLS_TEXT_BYTES_MAX ==
		       (int)GUARD_POLICY_RULES_MAX * ((int)GUARD_RULE_TEXT_MAX + 1),
	       "the text of each rule");

/* As it is put together. */
struct draft {
	struct walls_head head;
	struct walls_mount mounts[WALLS_MOUNTS_MAX];
	struct sock_filter filter[WALLS_FILTER_MAX];
	char text[WALLS_TEXT_BYTES_MAX];
};

/* What a mount can do of a rule. Attributes alone would need the whole tree read-only. */
static bool mount_can(const struct guard_rule *rule)
{
	const uint32_t bits = GUARD_FILE_HIDE | GUARD_FILE_WRITE | GUARD_FILE_EXECUTE |
			      GUARD_FILE_REPLACE;

	return rule->kind == GUARD_RULE_FILE && rule->bits & bits;
}

uint32_t walls_levels(const struct guard_rule *rule, bool has_lsm)
{
	uint32_t levels = 0;

	if (mount_can(rule) && !rule->is_audit && (!has_lsm || rule->bits & GUARD_FILE_HIDE))
		levels |= GUARD_LEVEL_MOUNT;
	if (rule->is_audit || has_lsm ? filter_refuses(rule) : filter_can_refuse(rule))
		levels |= GUARD_LEVEL_SECCOMP;
	if (rule->kind == GUARD_RULE_PROCESS &&
	    (rule->value == GUARD_PROCESS_PTRACE_OUTSIDE ||
	     rule->value == GUARD_PROCESS_SIGNAL_OUTSIDE || rule->value == GUARD_PROCESS_USERNS ||
	     rule->value == GUARD_PROCESS_MOUNT))
		levels |= GUARD_LEVEL_NAMESPACE;
	return levels;
}

static int mounts_draft(const struct guard_policy *policy, bool has_lsm, struct draft *draft)
{
	struct walls_head *head = &draft->head;

	if (policy->rule_count > GUARD_POLICY_RULES_MAX)
		return -E2BIG;
	for (uint32_t i = 0; i < policy->rule_count; i++) {
		const struct guard_rule *rule = &policy->rules[i];
		size_t bytes;

		if (rule->is_audit || !mount_can(rule) ||
		    (has_lsm && !(rule->bits & GUARD_FILE_HIDE)))
			continue;
		bytes = strnlen(rule->text, GUARD_RULE_TEXT_MAX + 1) + 1;
		if (rule->text[0] != '/' || bytes > GUARD_RULE_TEXT_MAX + 1)
			return -EINVAL;
		draft->mounts[head->mount_count++] =
			(struct walls_mount){ i + 1, rule->bits, head->text_bytes };
		memcpy(draft->text + head->text_bytes, rule->text, bytes);
		head->text_bytes += (uint32_t)bytes;
	}
	return 0;
}

static int draft_write(const struct draft *draft, int *ret_fd)
{
	const struct walls_head *head = &draft->head;
	const struct iovec parts[] = {
		{ (void *)&draft->head, sizeof draft->head },
		{ (void *)draft->mounts, head->mount_count * sizeof *draft->mounts },
		{ (void *)draft->filter, head->filter_count * sizeof *draft->filter },
		{ (void *)draft->text, head->text_bytes },
	};
	auto_close int fd = memfd_create("dsec-walls", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
		ssize_t bytes = write(fd, parts[i].iov_base, parts[i].iov_len);

		if (bytes < 0)
			return -errno;
		if ((size_t)bytes != parts[i].iov_len)
			return -ENOSPC;
	}
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return -errno;
	*ret_fd = take_fd(&fd);
	return 0;
}

int walls_make(const struct guard_policy *policy, const struct walls_wish *wish, int *ret_fd)
{
	const char *profile = wish->profile;
	auto_free struct draft *draft = calloc(1, sizeof *draft);
	int r = draft ? mounts_draft(policy, wish->has_lsm, draft) : -ENOMEM;

	if (r == 0 && !wish->has_lsm)
		r = filter_compile(policy, draft->filter, &draft->head.filter_count);
	if (r < 0)
		return r;
	if (profile) {
		if (strlen(profile) >= sizeof draft->head.profile)
			return -ENAMETOOLONG;
		(void)strcpy(draft->head.profile, profile);
	}
	if (!draft->head.mount_count && !draft->head.filter_count && !profile) {
		*ret_fd = -1;
		return 0;
	}
	return draft_write(draft, ret_fd);
}

/* ---- as the engine has them ---- */

struct backend_walls {
	int sheet_fd;
	bool bind_programs; /* a filter or a profile, and not only mounts */
	uint32_t filter_count;
	struct sock_filter *filter; /* of the sheet; NULL: none */
};

static int filter_keep(struct backend_walls *walls, const struct walls_head *head)
{
	const size_t bytes = head->filter_count * sizeof *walls->filter;
	const off_t at = (off_t)(sizeof *head + head->mount_count * sizeof(struct walls_mount));

	if (!bytes)
		return 0;
	walls->filter = malloc(bytes);
	if (!walls->filter)
		return -ENOMEM;
	walls->filter_count = head->filter_count;
	return pread(walls->sheet_fd, walls->filter, bytes, at) == (ssize_t)bytes ? 0 : -EIO;
}

static int walls_look(struct backend_walls *walls)
{
	struct walls_head head;

	if (walls->sheet_fd < 0)
		return 0;
	if (pread(walls->sheet_fd, &head, sizeof head, 0) != sizeof head)
		return -EIO;
	walls->bind_programs = head.filter_count || head.profile[0];
	return filter_keep(walls, &head);
}

int backend_walls_new(const struct guard_policy *policy, bool has_lsm, const char *profile,
		      struct backend_walls **ret)
{
	const struct walls_wish wish = { .has_lsm = has_lsm, .profile = *profile ? profile : NULL };
	auto_free struct backend_walls *walls = calloc(1, sizeof *walls);
	int r = walls ? walls_make(policy, &wish, &walls->sheet_fd) : -ENOMEM;

	if (r < 0)
		return r;
	r = walls_look(walls);
	if (r < 0) {
		backend_walls_free(take_ptr(walls));
		return r;
	}
	*ret = take_ptr(walls);
	return 0;
}

void backend_walls_free(struct backend_walls *walls)
{
	if (!walls)
		return;
	cleanup_close(&walls->sheet_fd);
	free(walls->filter);
	free(walls);
}

uint32_t backend_rule_levels(const struct guard_rule *rule, bool has_lsm)
{
	return walls_levels(rule, has_lsm);
}

bool backend_rule_stands(const struct guard_rule *rule)
{
	return filter_refuses(rule);
}

int walls_for_spawn(const struct backend_walls *walls)
{
	return walls ? walls->sheet_fd : -1;
}

uint32_t walls_filter(const struct backend_walls *walls, const struct sock_filter **ret)
{
	*ret = walls ? walls->filter : NULL;
	return walls ? walls->filter_count : 0;
}

int walls_for_exec(const struct backend_walls *walls)
{
	return walls && walls->bind_programs ? walls->sheet_fd : -1;
}
