/*
 * Requests about functions: their structs are checked and packed, then submitted. Called by
 * applications, without the lock, as those of request.c.
 */
#include <errno.h>
#include <string.h>

#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"
#include "sdk/lib/pack.h"
#include "sdk/lib/structs.h"

static int function_check(const struct dsec_function_opts *opts)
{
	struct dsec_function_opts others = *opts;
	static const struct dsec_function_opts none;

	if (opts->verb < DSEC_FUNCTION_REGISTER || opts->verb > DSEC_FUNCTION_REMOVE)
		return dsec__fail(-EINVAL, "function: unknown verb");
	if (opts->reserved)
		return dsec__fail(-EINVAL, "function: reserved is not 0");
	if (opts->verb == DSEC_FUNCTION_REGISTER) {
		if (opts->id.hi || opts->id.lo)
			return dsec__fail(-EINVAL, "function: a new one has no id yet");
		if (!opts->name || !*opts->name)
			return dsec__fail(-EINVAL, "function: no name");
		if (!opts->image || !*opts->image)
			return dsec__fail(-EINVAL, "function: no image");
		return 0;
	}
	if ((opts->verb == DSEC_FUNCTION_REMOVE) != (opts->id.hi || opts->id.lo))
		return dsec__fail(-EINVAL, "function: only what is removed has an id");
	others.size = others.verb = 0;
	others.id = none.id;
	if (memcmp(&others, &none, sizeof(none)) != 0)
		return dsec__fail(-EINVAL, "function: only a new one has more than its id");
	return 0;
}

static int function_pack(const struct dsec_function_opts *opts, struct submission *submission)
{
	struct dsec_wire_function wire = {
		.size = sizeof(wire),
		.verb = opts->verb,
		.flags = opts->flags,
		.isolation = opts->isolation,
		.memory_bytes = opts->memory_bytes,
		.disk_bytes = opts->disk_bytes,
		.output_bytes = opts->output_bytes,
		.cpu_ms = opts->cpu_ms,
		.wall_ms = opts->wall_ms,
		.pids_max = opts->pids_max,
	};
	struct pack pack;

	dsec__pack_begin(&pack, sizeof(wire));
	wire.name = dsec__pack_text(&pack, opts->name);
	wire.image = dsec__pack_text(&pack, opts->image);
	wire.user = dsec__pack_text(&pack, opts->user);
	wire.policy = dsec__pack_text(&pack, opts->policy);
	wire.cwd = dsec__pack_text(&pack, opts->cwd);
	wire.argv = dsec__pack_items(&pack, opts->argv, opts->argc);
	wire.env = dsec__pack_items(&pack, opts->env, opts->env_count);
	return dsec__pack_end(&pack, &wire, sizeof(wire), submission);
}

int64_t dsec_function(struct dsec *d, const struct dsec_call *call,
		      const struct dsec_function_opts *opts)
{
	struct submission submission = { .op = DSEC_OP_FUNCTION };
	struct dsec_function_opts known;
	struct dsec_call known_call;
	int r;

	r = dsec__call_take(d, call, &known_call);
	if (r == 0)
		r = dsec__struct_take(&known, sizeof(known), opts, "function");
	if (r >= 0)
		r = function_check(&known);
	if (r < 0)
		return r;
	submission.subject = known.id;
	r = function_pack(&known, &submission);
	return r < 0 ? r : dsec__submit(d, &known_call, &submission);
}

int64_t dsec_invoke(struct dsec *d, const struct dsec_call *call, struct dsec_id function,
		    const struct dsec_bytes *inputs, uint32_t count)
{
	struct submission submission = { .op = DSEC_OP_INVOKE, .subject = function };
	struct dsec_wire_invoke wire = { .size = sizeof(wire) };
	struct dsec_call known_call;
	struct pack pack;
	int r;

	r = dsec__call_take(d, call, &known_call);
	if (r < 0)
		return r;
	if (!function.hi && !function.lo)
		return dsec__fail(-EINVAL, "invoke: no function");
	if (!inputs || !count)
		return dsec__fail(-EINVAL, "invoke: no inputs; one that is empty is one");
	if (count > DSEC_INVOKE_INPUTS_MAX)
		return dsec__fail(-EINVAL, "invoke: more than 1,024 inputs");
	dsec__pack_begin(&pack, sizeof(wire));
	wire.inputs = dsec__pack_items(&pack, inputs, count);
	r = dsec__pack_end(&pack, &wire, sizeof(wire), &submission);
	return r < 0 ? r : dsec__submit(d, &known_call, &submission);
}
