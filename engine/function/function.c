/*
 * The registry of functions: the function op, on every shard in turn. Called by request.c. Shard 0
 * comes first and decides: whether a name is free, and the id, which the others take over. Must
 * hold: every shard has its own copy and its own hold on the image; a register that failed halfway
 * may be asked again, or its function removed.
 */
#include "engine/function/function.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/function/call.h"
#include "engine/function/call_set.h"
#include "engine/function/function_wish.h"
#include "engine/image/image.h"
#include "engine/policy/policy_want.h"
#include "engine/sandbox/limits.h"
#include "engine/request/request.h"
#include "engine/shard.h"
#include "engine/tenant/tenancy.h"

enum { ROWS_PER_TURN = 32, ROW_BYTES_MAX = 8192 };

/* No sandbox is of this shard: an id of one is never one of the other. */
#define FUNCTION_SHARD 0xfffull

/* What a part works from; part->work. */
struct registering {
	struct part *part;
	struct image_want image;
	struct policy_want policy; /* name "": none */
};

int functions_init(struct shard *shard)
{
	struct functions *all = &shard->functions;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int r;

	all->waiting_last = &all->waiting;
	all->cpus = cpus > 0 ? (uint32_t)cpus : 1;
	r = pool_init(&all->calls, sizeof(struct call), CALLS_PER_SHARD_MAX);
	return r < 0 ? r : pool_init(&all->sets, sizeof(struct call_set), CALL_SETS_PER_SHARD_MAX);
}

void functions_done(struct shard *shard)
{
	pool_done(&shard->functions.calls);
	pool_done(&shard->functions.sets);
}

/* ---- their end ---- */

void function_settle(struct function *function)
{
	struct shard *shard = function->shard;
	struct function **link = &shard->functions.all;

	if (!function->removed || function->invocations || function->running || function->sets ||
	    function->is_waiting)
		return;
	while (*link != function)
		link = &(*link)->next;
	*link = function->next;
	quota_give(function->tenancy, QUOTA_FUNCTIONS, 1);
	image_put(shard, function->image);
	if (function->policy)
		policy_put(function->policy);
	free((void *)function->spec.strings);
	free(function);
	shard_check_stopped(shard);
}

static void function_remove(struct function *function)
{
	function->removed = true;
	function->sets++; /* it stays until all of them were told to go */
	call_sets_drop(function);
	function->sets--;
	function_settle(function);
}

void functions_stop(struct shard *shard)
{
	struct function *next;

	for (struct function *function = shard->functions.all; function; function = next) {
		next = function->next;
		if (!function->removed)
			function_remove(function);
	}
}

bool functions_are_gone(const struct shard *shard)
{
	return !shard->functions.all;
}

/* ---- finding ---- */

/* All are looked at: how long it takes says nothing of those of others. */
static struct function *function_find(const struct tenancy *tenancy, struct dsec_wire_id id)
{
	struct function *found = NULL;

	for (struct function *f = tenancy->shard->functions.all; f; f = f->next)
		if (f->tenancy == tenancy && f->id.lo == id.lo && f->id.hi == id.hi)
			found = f;
	return found;
}

struct function *function_of(const struct part *part)
{
	return function_find(tenancy_of(part), part->request->entry.subject);
}

static struct function *function_named(const struct tenancy *tenancy, const char *name)
{
	struct function *function = tenancy->shard->functions.all;

	while (function && (function->removed || function->tenancy != tenancy ||
			    strcmp(function->name, name) != 0))
		function = function->next;
	return function;
}

static struct status function_absent(void)
{
	return (struct status){ .code = DSEC_ABSENT,
				.blame = DSEC_BLAME_CALLER,
				.table = "function",
				.step = "subject",
				.detail = "no such function" };
}

/* ---- register ---- */

static void function_add(struct function *function)
{
	struct functions *all = &function->shard->functions;
	struct function **link = &all->all;

	while (*link && (*link)->id.lo < function->id.lo)
		link = &(*link)->next;
	function->next = *link;
	*link = function;
	function->tenancy->used[QUOTA_FUNCTIONS]++;
}

static bool is_same(const struct function *a, const struct function *b)
{
	return a->image == b->image && a->policy == b->policy && a->flags == b->flags &&
	       a->isolation == b->isolation && a->disk_bytes == b->disk_bytes &&
	       a->output_bytes == b->output_bytes && a->cpu_ms == b->cpu_ms &&
	       a->wall_ms == b->wall_ms && !memcmp(&a->limits, &b->limits, sizeof a->limits) &&
	       !strcmp(a->user, b->user) && a->spec.argument_count == b->spec.argument_count &&
	       a->spec.environment_count == b->spec.environment_count &&
	       a->spec.string_bytes == b->spec.string_bytes &&
	       !memcmp(a->spec.strings, b->spec.strings, a->spec.string_bytes);
}

/* Shard 0: the id of a new one, or of the same one that is there. */
static struct status function_name(struct function *function)
{
	struct shard *shard = function->shard;
	const struct function *other = function_named(function->tenancy, function->name);

	if (!other && !quota_has(function->tenancy, QUOTA_FUNCTIONS))
		return status_of_errno(-EAGAIN, "function", "functions_max");
	if (!other) {
		function->id = (struct dsec_wire_id){
			.hi = shard->node->id,
			.lo = FUNCTION_SHARD << DSEC_ID_SHARD_SHIFT | ++shard->functions.numbers,
		};
		return STATUS_OK;
	}
	function->id = other->id;
	if (is_same(function, other))
		return STATUS_OK;
	return (struct status){ .code = DSEC_CONFLICT,
				.blame = DSEC_BLAME_CALLER,
				.error = EEXIST,
				.table = "function",
				.step = "name",
				.detail = "another function has this name: remove it first" };
}

static void function_free(struct function *function)
{
	free((void *)function->spec.strings);
	free(function);
}

/* The image is held: from here on by the function, if there is to be one. */
static struct status register_function(struct registering *registering)
{
	struct part *part = registering->part;
	struct shard *shard = part->shard;
	struct dsec_wire_id *subject = &part->request->entry.subject;
	struct function *function = calloc(1, sizeof *function);
	struct status s;

	if (!function)
		return status_of_errno(-ENOMEM, "function", "request");
	function->shard = shard;
	function->tenancy = tenancy_of(part);
	function->last = &function->first;
	function->registered_ns = io_now_ns(shard->io);
	function->image = registering->image.image;
	function->policy = registering->policy.policy;
	s = function_wish(function, part->request);
	if (!s.code && shard->number == 0) {
		s = function_name(function);
		*subject = function->id; /* of the request, which the other shards read later */
	}
	function->id = *subject;
	if (s.code || function_find(function->tenancy, function->id)) {
		function_free(function);
		return s;
	}
	image_use(shard, function->image);
	registering->policy.policy = NULL; /* it is the function's now */
	function_add(function);
	return STATUS_OK;
}

static void register_end(struct registering *registering, const struct status *status)
{
	struct part *part = registering->part;

	if (registering->image.image)
		image_put(part->shard, registering->image.image);
	if (registering->policy.policy)
		policy_put(registering->policy.policy);
	part->work = NULL;
	free(registering);
	part_end(part, status, NULL);
}

static struct status policy_failure(const struct registering *registering, int error)
{
	const struct policy *policy = registering->policy.policy;
	const uint32_t flags = registering->part->request->body.function.flags;
	char *detail = registering->part->detail;

	if (error < 0)
		return (struct status){
			.code = error == -ENOENT ? DSEC_ABSENT : DSEC_INVALID,
			.blame = DSEC_BLAME_CALLER,
			.error = -error,
			.table = "function",
			.step = "policy",
			.detail = error == -ENOENT ? "no such policy" :
						     "1 to 63 of a-z 0-9 and - inside",
		};
	if (registering->policy.unheld < 0)
		return policy_unheld(&registering->policy, "function", detail);
	if (policy->unmet && !(flags & DSEC_FUNCTION_ALLOW_DEGRADED))
		return policy_unmet(policy, "function", detail);
	return STATUS_OK;
}

static void policy_ready(struct policy_want *want, int result)
{
	struct registering *registering = container_of(want, struct registering, policy);
	struct status s = policy_failure(registering, result);

	if (!s.code && registering->part->shard->stopping)
		s = status_of_errno(-ECANCELED, "function", "cancel");
	if (!s.code)
		s = register_function(registering);
	register_end(registering, &s);
}

static void image_ready(struct image_want *want, int result)
{
	struct registering *registering = container_of(want, struct registering, image);
	struct part *part = registering->part;
	struct status s = STATUS_OK;
	int r;

	if (result < 0)
		s = image_want_status(want, result, "function", part->detail, sizeof part->detail);
	if (!s.code && part->shard->stopping)
		s = status_of_errno(-ECANCELED, "function", "cancel");
	if (s.code || !*registering->policy.name) {
		if (!s.code)
			s = register_function(registering);
		register_end(registering, &s);
		return;
	}
	registering->policy.shard = part->shard;
	registering->policy.tenant = part->request->tenant->index;
	registering->policy.ready = policy_ready;
	r = policy_get(&registering->policy);
	if (r != -EAGAIN)
		policy_ready(&registering->policy, r);
}

static void register_part(struct part *part)
{
	struct registering *registering;
	struct status s;
	int r;

	/* Shard 0 refused it: there is nothing to take over. */
	if (part->shard->number && part->request->parts[0].status.code) {
		part_end(part, NULL, NULL);
		return;
	}
	registering = calloc(1, sizeof *registering);
	s = registering ? function_check(part->request, part->shard->node->unenforced,
					 registering->image.name, registering->policy.name) :
			  status_of_errno(-ENOMEM, "function", "request");
	if (!s.code &&
	    !tenant_reads_image(part->request->tenant, part->shard->node, registering->image.name))
		s = image_status("function", -ENOENT);
	if (s.code) {
		free(registering);
		part_end(part, &s, NULL);
		return;
	}
	registering->part = part;
	registering->image.shard = part->shard;
	registering->image.tenant = part->request->tenant->index;
	registering->image.ready = image_ready;
	part->work = registering;
	r = image_get(&registering->image);
	if (r != -EAGAIN)
		image_ready(&registering->image, r);
}

/* ---- list, remove ---- */

static uint32_t row_put(char *body, uint32_t *used, const char *text, uint32_t bytes)
{
	uint32_t at = *used;

	memcpy(body + at, text, bytes);
	*used += bytes;
	return at;
}

/* As much of the arguments as a row holds. */
static void row_arguments(const struct function *function, char *body, uint32_t *used,
			  struct dsec_wire_items *ret)
{
	const char *text = function->spec.strings;

	ret->at = *used;
	for (uint32_t i = 0; i < function->spec.argument_count; i++) {
		uint32_t bytes = (uint32_t)strlen(text);

		if (*used + bytes + sizeof bytes > ROW_BYTES_MAX)
			break;
		(void)row_put(body, used, (const char *)&bytes, sizeof bytes);
		(void)row_put(body, used, text, bytes);
		text += bytes + 1;
		ret->count++;
	}
	ret->bytes = *used - ret->at;
}

static void row_emit(struct part *part, const struct function *function)
{
	const struct shard *shard = part->shard;
	char body[ROW_BYTES_MAX];
	uint32_t used = sizeof(struct dsec_wire_function_row);
	struct dsec_wire_function_row row = {
		.size = sizeof row,
		.isolation = function->isolation,
		.id = function->id,
		.memory_bytes = function->limits.memory_bytes,
		.disk_bytes = function->disk_bytes ? function->disk_bytes :
						     shard->config->disk_bytes,
		.output_bytes = function->output_bytes,
		.cpu_ms = function->cpu_ms,
		.wall_ms = function->wall_ms,
		.pids_max = function->limits.pids_max,
		.unenforced = limits_in_force(&function->limits) & shard->node->unenforced,
		.age_ms = (io_now_ns(shard->io) - function->registered_ns) / 1000000,
	};
	struct emission e = { .kind = DSEC_EV_ROW,
			      .subject = function->id,
			      .index = (uint16_t)part->started++,
			      .body = body };

	row.name.bytes = (uint32_t)strlen(function->name);
	row.name.at = row_put(body, &used, function->name, row.name.bytes);
	row.image.bytes = (uint32_t)strlen(function->image->name);
	row.image.at = row_put(body, &used, function->image->name, row.image.bytes);
	if (function->policy) {
		row.policy.bytes = (uint32_t)strlen(function->policy->guard.name);
		row.policy.at =
			row_put(body, &used, function->policy->guard.name, row.policy.bytes);
	}
	row_arguments(function, body, &used, &row.argv);
	memcpy(body, &row, sizeof row);
	e.bytes = used;
	part_emit(part, &e);
}

static void list_more(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, mail);
	const struct function *function = part->shard->functions.all;
	int rows = 0;

	(void)owner; /* part->shard */
	for (; function && rows < ROWS_PER_TURN; function = function->next) {
		if (function->removed || function->tenancy != tenancy_of(part) ||
		    function->id.lo <= part->after)
			continue;
		row_emit(part, function);
		part->after = function->id.lo;
		rows++;
	}
	if (rows == ROWS_PER_TURN && !part->unheard)
		part_again_with_room(part, list_more);
	else
		part_end(part, NULL, NULL);
}

static void remove_part(struct part *part)
{
	struct function *function = function_of(part);
	struct status s = STATUS_OK;

	if (function && !function->removed)
		function_remove(function);
	else if (part->shard->number == 0)
		s = function_absent(); /* elsewhere a register may have failed */
	part_end(part, &s, NULL);
}

void function_part(struct part *part)
{
	static const struct status unknown = { .code = DSEC_INVALID,
					       .blame = DSEC_BLAME_CALLER,
					       .error = EINVAL,
					       .table = "function",
					       .step = "verb",
					       .detail = "unknown verb" };

	switch (part->request->body.function.verb) {
	case DSEC_FUNCTION_REGISTER:
		register_part(part);
		break;
	case DSEC_FUNCTION_LIST:
		if (part->shard->number == 0)
			list_more(&part->mail, part->shard);
		else
			part_end(part, NULL, NULL); /* they are the same */
		break;
	case DSEC_FUNCTION_REMOVE:
		remove_part(part);
		break;
	default:
		part_end(part, &unknown, NULL);
	}
}
