/* What a policy says of a create as a whole: see create.c. */
#pragma once

#include "engine/policy/policy_want.h"
#include "engine/request/status.h"

struct part;

/* Of what policy_get() ended with; text of the status may be the part's. */
struct status create_policy_status(struct part *part, const struct policy_want *want, int result,
				   uint32_t network);

/* create.c: a field of a create is wrong. */
struct status create_invalid(const char *field, int error, const char *detail);
