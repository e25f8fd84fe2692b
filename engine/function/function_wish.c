/*
 * Wishes of functions. Called by function.c. Limits are those of sandboxes, so that both are
 * refused in the same words; a function's time has a limit, whatever was asked.
 */
#include "engine/function/function_wish.h"

#include <errno.h>
#include <string.h>

#include "backends/image.h"
#include "engine/config.h"
#include "engine/exec/exec_strings.h"
#include "engine/function/function.h"
#include "engine/sandbox/limits.h"
#include "engine/request/request.h"
#include "engine/shard.h"

static struct status wish_invalid(const char *field, int error, const char *detail)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = -error,
				.table = "function",
				.step = field,
				.detail = detail };
}

/* Its limits as those of a sandbox. */
static struct dsec_wire_create wish_as_create(const struct dsec_wire_function *wish)
{
	const bool degraded = wish->flags & DSEC_FUNCTION_ALLOW_DEGRADED;

	return (struct dsec_wire_create){
		.flags = degraded ? DSEC_CREATE_ALLOW_DEGRADED : 0,
		.memory_bytes = wish->memory_bytes,
		.disk_bytes = wish->disk_bytes,
		.pids_max = wish->pids_max,
	};
}

static struct status check_limits(const struct dsec_wire_function *wish, uint32_t unenforced)
{
	const struct dsec_wire_create limits = wish_as_create(wish);
	struct status s;

	if (wish->cpu_ms > CALL_CPU_MS_MAX)
		return wish_invalid("cpu", -ERANGE, "at most an hour");
	if (wish->wall_ms > CALL_CPU_MS_MAX)
		return wish_invalid("wall", -ERANGE, "at most an hour");
	if (wish->output_bytes > CALL_OUTPUT_BYTES_MAX)
		return wish_invalid("output", -ERANGE, "at most 1 MiB");
	s = limits_check(&limits, unenforced);
	if (s.code)
		s.table = "function";
	return s;
}

struct status function_check(const struct request *request, uint32_t unenforced,
			     char ret_image[IMAGE_NAMES_MAX],
			     char ret_policy[GUARD_POLICY_NAME_MAX + 1])
{
	const struct dsec_wire_function *wish = &request->body.function;
	char name[FUNCTION_NAME_BYTES_MAX], user[FUNCTION_USER_BYTES_MAX];
	const struct wire *w = &request->payload;
	int r;

	if (wish->flags & ~(uint32_t)DSEC_FUNCTION_FLAGS_KNOWN)
		return wish_invalid("flags", -EINVAL, "unknown flag");
	if (wish->isolation > DSEC_ISOLATION_DOMAIN)
		return wish_invalid("isolation", -EINVAL, "fresh or domain");
	if (wish->reserved0 || !wire_is_zero(wish->reserved, sizeof wish->reserved))
		return wish_invalid("reserved", -EINVAL, NULL);
	r = wire_string(w, wish->name, name, sizeof name);
	if (r >= 0)
		r = image_name_check(name);
	if (r < 0)
		return wish_invalid("name", r, "letters, digits, . _ - : and /, at most 63 bytes");
	r = wire_user(w, wish->user, user, sizeof user);
	if (r < 0)
		return wish_invalid("user", r, WIRE_USER_RULE);
	r = wire_string(w, wish->image, ret_image, IMAGE_NAMES_MAX);
	if (r < 0 || !*ret_image)
		return wish_invalid("image", r < 0 ? r : -EINVAL, IMAGE_NAMES_RULE);
	r = wire_string(w, wish->policy, ret_policy, GUARD_POLICY_NAME_MAX + 1);
	if (r < 0)
		return wish_invalid("policy", r, "a name, at most 63 bytes");
	return check_limits(wish, unenforced);
}

static uint32_t wall_of(const struct dsec_wire_function *wish)
{
	if (wish->wall_ms)
		return wish->wall_ms;
	if (!wish->cpu_ms)
		return CALL_WALL_MS_DEFAULT;
	/* For one that sleeps; who waits for a CPU that others use must not come to it. */
	return 10 * wish->cpu_ms + 1000;
}

static struct status wish_strings(struct function *function, const struct request *request)
{
	const struct dsec_wire_function *wish = &request->body.function;
	const bool command = wish->flags & DSEC_FUNCTION_IMAGE_COMMAND;
	const struct dsec_wire_exec program = {
		.argv = wish->argv,
		.env = wish->env,
		.cwd = wish->cwd,
		.flags = command ? DSEC_EXEC_IMAGE_COMMAND : 0,
	};
	const struct exec_strings_of strings = {
		.image = function->image,
		.payload = &request->payload,
		.wish = &program,
		.user = function->user,
	};
	struct status s = exec_strings(&strings, &function->spec);

	if (s.code)
		s.table = "function";
	return s;
}

struct status function_wish(struct function *function, const struct request *request)
{
	const struct dsec_wire_function *wish = &request->body.function;
	const struct dsec_wire_create limits = wish_as_create(wish);
	const struct wire *w = &request->payload;

	/* Both were checked. */
	(void)wire_string(w, wish->name, function->name, sizeof function->name);
	(void)wire_string(w, wish->user, function->user, sizeof function->user);
	if (!*function->user && function->image->record)
		memcpy(function->user, function->image->record->user, sizeof function->user);
	function->flags = wish->flags;
	function->isolation = wish->isolation;
	function->limits = limits_of(function->shard->config, &limits);
	function->disk_bytes = wish->disk_bytes;
	function->output_bytes = wish->output_bytes ? wish->output_bytes :
						      CALL_OUTPUT_BYTES_DEFAULT;
	function->cpu_ms = wish->cpu_ms;
	function->wall_ms = wall_of(wish);
	return wish_strings(function, request);
}
