/*
 * What a create asks. Called by create.c. Must hold: every field has a range, and one outside of it
 * is an error that names the field; what this engine does not have is refused, never ignored.
 */
#include "engine/sandbox/create_state.h"

#include <errno.h>
#include <string.h>

#include "engine/sandbox/create_policy.h"
#include "engine/sandbox/limits.h"
#include "engine/shard.h"
#include "engine/tenant/tenant.h"

struct status create_invalid(const char *field, int error, const char *detail)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = -error,
				.table = "create",
				.step = field,
				.detail = detail };
}

static const char no_pause[] = "pausing is not here yet: destroy is";

static struct status check_times(const struct dsec_wire_create *c)
{
	if (c->ttl_s > TTL_S_MAX)
		return create_invalid("ttl", -ERANGE, "at most 30 days");
	if (c->idle_ttl_s > TTL_S_MAX)
		return create_invalid("idle_ttl", -ERANGE, "at most 30 days");
	if (c->on_timeout > DSEC_ON_TIMEOUT_PAUSE)
		return create_invalid("on_timeout", -EINVAL, "destroy or pause");
	if (c->on_timeout == DSEC_ON_TIMEOUT_PAUSE)
		return status_unsupported("create", "on_timeout", no_pause);
	return STATUS_OK;
}

/* Fields that name something this engine does not have are refused, never ignored. */
static struct status check_absent(const struct wire *w, const struct dsec_wire_create *c)
{
	char backend[32];
	int r;

	r = wire_string(w, c->backend, backend, sizeof backend);
	if (r < 0)
		return create_invalid("backend", r, NULL);
	if (*backend && strcmp(backend, "container") != 0)
		return status_unsupported("create", "backend",
					  "only the container backend is here");
	if (c->job.hi || c->job.lo)
		return status_unsupported("create", "job", "jobs are not here yet");
	return STATUS_OK;
}

/* What no program could be started with is refused here already. */
static int check_env(const struct wire *w, const struct dsec_wire_items *env)
{
	struct dsec_wire_ref item;
	uint32_t cursor = 0;

	if (env->bytes > ENV_BYTES_MAX || env->count > EXEC_ENV_COUNT_MAX)
		return -E2BIG;
	if (wire_items_check(w, env) < 0)
		return -EINVAL;
	while (wire_next(w, env, &cursor, &item) > 0)
		if (memchr(w->payload + item.at, 0, item.bytes))
			return -EINVAL;
	return 0;
}

struct status create_check(struct creation *creation)
{
	struct request *request = creation->part->request;
	const struct wire *w = creation->payload;
	const struct dsec_wire_create *c = creation->fields;
	struct status s;
	int r;

	if (c->flags & ~(uint32_t)DSEC_CREATE_FLAGS_KNOWN)
		return create_invalid("flags", -EINVAL, "unknown flag");
	if (c->count > CREATE_COUNT_MAX)
		return create_invalid("count", -ERANGE, "more than 32768");
	s = network_check(creation->part->shard->config, c->network);
	if (s.code)
		return s;
	if (c->on_disconnect > DSEC_DISCONNECT_PAUSE)
		return create_invalid("on_disconnect", -EINVAL, "keep, destroy or pause");
	if (c->on_disconnect == DSEC_DISCONNECT_PAUSE)
		return status_unsupported("create", "on_disconnect", no_pause);
	if (c->reserved0 || !wire_is_zero(c->reserved, sizeof c->reserved))
		return create_invalid("reserved", -EINVAL, NULL);
	r = wire_string(w, c->image, creation->image.name, sizeof creation->image.name);
	if (r < 0 || !*creation->image.name)
		return create_invalid("image", r < 0 ? r : -EINVAL, IMAGE_NAMES_RULE);
	if (!tenant_reads_image(request->tenant, creation->part->shard->node, creation->image.name))
		return image_status("create", -ENOENT);
	r = wire_hostname(w, c->hostname, creation->hostname, sizeof creation->hostname);
	if (r < 0)
		return create_invalid("hostname", r, "letters, digits, . _ -, at most 63 bytes");
	r = wire_user(w, c->user, creation->user, sizeof creation->user);
	if (r < 0)
		return create_invalid("user", r, WIRE_USER_RULE);
	r = wire_string(w, c->policy, creation->policy.name, sizeof creation->policy.name);
	if (r < 0)
		return create_invalid("policy", r, "a name, at most 63 bytes");
	r = check_env(w, &c->env);
	if (r < 0)
		return create_invalid("env", r, "at most 512 of NAME=value, 16384 bytes in all");
	if (c->labels.bytes > LABEL_BYTES_MAX || c->labels.count > LABEL_COUNT_MAX ||
	    c->labels.count % 2)
		return create_invalid("labels", -E2BIG, "at most 64 pairs, 2048 bytes in all");
	r = wire_items_check(w, &c->labels);
	if (r < 0)
		return create_invalid("labels", r, NULL);
	s = check_absent(w, c);
	if (!s.code)
		s = check_times(c);
	return s.code ? s : limits_check(c, creation->part->shard->node->unenforced);
}
