/*
 * A policy by name, for a shard. The ready-made ones are read at once once they were used, others
 * are asked of the control thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/io.h"
#include "engine/policy/policies.h"
#include "engine/request/status.h"

struct shard;

/* Somebody who waits for a policy. Embedded; lives until ready(). */
struct policy_want {
	struct mail mail;
	struct shard *shard;
	uint32_t tenant;
	char name[GUARD_POLICY_NAME_MAX + 1]; /* "": default */
	/* To be compared with this one, which somebody uses until ready(); NULL: with none. */
	const struct policy *wider;
	bool goes_further; /* its way out is not that one's, or none */
	uint32_t lacks;	   /* the first rule of that which it does not keep, from 1; 0: none */
	int result;
	int unheld; /* why the kernel could not be told of its rules: it may not be given */
	struct policy *policy; /* result 0: used from now on, until policy_put() */
	void (*ready)(struct policy_want *want, int result); /* 0, -ENOENT */
};

/* Of one that the kernel could not be told of: without its rules a sandbox would run unwatched. */
struct status policy_unheld(const struct policy_want *want, const char *table, char ret_detail[80]);
/* Of a policy with a required rule that nothing enforces here: by name, in ret_detail. */
struct status policy_unmet(const struct policy *policy, const char *table, char ret_detail[80]);
/*
 * 0: want->policy is used; -EAGAIN: ready() will be called; -EINVAL: no name of a policy. What the
 * first sandbox of a version needs is done on the control thread.
 */
int policy_get(struct policy_want *want);
