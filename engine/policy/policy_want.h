/*
 * A policy by name, for a shard. The ready-made ones are read at once, others are asked of the
 * control thread.
 */
#pragma once

#include <stdint.h>

#include "engine/base/io.h"
#include "engine/policy/policies.h"

struct shard;

/* Somebody who waits for a policy. Embedded; lives until ready(). */
struct policy_want {
	struct mail mail;
	struct shard *shard;
	uint32_t tenant;
	char name[GUARD_POLICY_NAME_MAX + 1]; /* "": default */
	int result;
	struct policy *policy; /* result 0: used from now on, until policy_put() */
	void (*ready)(struct policy_want *want, int result); /* 0, -ENOENT */
};

/* 0: want->policy is used; -EAGAIN: ready() will be called; -EINVAL: no name of a policy. */
int policy_get(struct policy_want *want);
