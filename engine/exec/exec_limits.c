/*
 * Resource limits of a program: from the wire to the backend, and what is said when this host does
 * not give one. Called by exec.c and exec_result.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/exec/exec_state.h"
#include "engine/request/request.h"

static const char *const names[] = DSEC_RESOURCE_NAMES;

_Static_assert(sizeof names / sizeof *names == DSEC_RESOURCES, "a resource has no name");
_Static_assert((int)DSEC_RESOURCES == (int)RUN_LIMITS_MAX, "the backend takes them all");
_Static_assert(sizeof(struct run_limit) == sizeof(struct dsec_wire_rlimit), "copied as a whole");

static struct status limits_invalid(const char *step, int error, const char *detail)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = -error,
				.table = "limit",
				.step = step,
				.detail = detail };
}

static struct status limits_check(const struct run_limit *limits, uint32_t count)
{
	uint32_t seen = 0;

	for (uint32_t i = 0; i < count; i++) {
		const struct run_limit *limit = &limits[i];

		if (limit->resource >= DSEC_RESOURCES || limit->reserved)
			return limits_invalid("resource", -EINVAL, "there is no such resource");
		if (seen & 1u << limit->resource)
			return limits_invalid(names[limit->resource], -EINVAL, "it comes twice");
		if (limit->soft > limit->hard)
			return limits_invalid(names[limit->resource], -EINVAL,
					      "the soft limit is above the hard one");
		seen |= 1u << limit->resource;
	}
	return STATUS_OK;
}

struct status exec_limits(struct exec *exec, const struct request *request)
{
	const struct dsec_wire_ref ref = request->body.exec.rlimits;
	const char *bytes;

	if (wire_bytes(&request->payload, ref, &bytes) < 0 || ref.bytes % sizeof *exec->limits ||
	    ref.bytes / sizeof *exec->limits > DSEC_RESOURCES)
		return limits_invalid("rlimits", -EINVAL, NULL);
	if (!ref.bytes)
		return STATUS_OK;
	exec->limits = malloc(ref.bytes);
	if (!exec->limits)
		return status_of_errno(-ENOMEM, "limit", "rlimits");
	memcpy(exec->limits, bytes, ref.bytes);
	exec->spec.limits = exec->limits;
	exec->spec.limit_count = ref.bytes / (uint32_t)sizeof *exec->limits;
	return limits_check(exec->limits, exec->spec.limit_count);
}

struct status exec_limit_refusal(const struct exec *exec)
{
	uint32_t resource = exec->run->failed_limit;

	return (struct status){
		.code = DSEC_DENIED,
		.blame = DSEC_BLAME_CALLER,
		.error = EPERM,
		.table = "limit",
		.step = names[resource < DSEC_RESOURCES ? resource : 0],
		.detail = resource == DSEC_RESOURCE_CORE ?
				  "a program of the host gets cores: see kernel.core_pattern" :
				  "it is above the hard limit of this host",
	};
}
