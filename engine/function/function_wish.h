/*
 * From a request to a function: every field has a range, and one outside of it is an error that
 * names the field.
 */
#pragma once

#include <stdint.h>

#include "engine/image/image.h"
#include "engine/policy/policies.h"
#include "engine/request/status.h"

struct function;
struct request;

/* What can be said before the image is there; its name. */
struct status function_check(const struct request *request, uint32_t unenforced,
			     char ret_image[IMAGE_NAMES_MAX],
			     char ret_policy[GUARD_POLICY_NAME_MAX + 1]);
/* Its name, program and limits, from a request that was checked. function->image is there. */
struct status function_wish(struct function *function, const struct request *request);
