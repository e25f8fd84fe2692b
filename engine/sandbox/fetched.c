/*
 * The fetched op: who serves packages tells what sandboxes fetched, and where that is their task's
 * own it is an anomaly. Called by request.c. Must hold: what is told is judged by the sandbox's own
 * label and policy, so nobody is tainted by a path alone.
 */
#include <errno.h>

#include "engine/base/cleanup.h"
#include "engine/integrity/integrity.h"
#include "engine/request/request.h"
#include "engine/request/selection.h"
#include "engine/sandbox/sandbox.h"
#include "engine/shard.h"

enum { FETCHES_PER_TURN = 16 };

static struct status fetched_invalid(const char *field, int error, const char *detail)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = error,
				.table = "fetched",
				.step = field,
				.detail = detail };
}

static struct status fetched_check(const struct request *request)
{
	const struct dsec_wire_fetched *f = &request->body.fetched;
	const char *wrong = selection_wrong(request), *path;

	if (wrong)
		return fetched_invalid(wrong, EINVAL, NULL);
	if (!selection_names(request) && !f->select.labels.count)
		return fetched_invalid("ids", EINVAL, "names nothing");
	if (wire_bytes(&request->payload, f->path, &path) < 0 || !f->path.bytes)
		return fetched_invalid("path", EINVAL, "what was fetched");
	if (f->path.bytes > OWN_FETCH_BYTES_MAX)
		return fetched_invalid("path", E2BIG, "at most 2048 bytes");
	if (!wire_is_zero(f->reserved, sizeof f->reserved))
		return fetched_invalid("reserved", EINVAL, NULL);
	return STATUS_OK;
}

static void fetched_one(struct part *part, struct sandbox *sandbox)
{
	const struct request *request = part->request;
	const struct own_text path = { request->payload.payload + request->body.fetched.path.at,
				       request->body.fetched.path.bytes };
	struct emission e = { .kind = DSEC_EV_ROW, .subject = sandbox->id };
	struct status s;
	int r;

	if (sandbox->state != DSEC_STATE_RUNNING)
		return; /* it ends: as good as absent */
	part->count += selection_was_named(part);
	r = integrity_fetched(sandbox, path);
	if (r > 0)
		part_emit(part, &e);
	if (r >= 0)
		return;
	s = r == -EOPNOTSUPP ? status_unsupported("fetched", "verdict",
						  "this engine judges nothing: see dsecd "
						  "--check") :
			       status_of_errno(r, "fetched", "verdict");
	status_merge(&part->status, &s);
}

static void fetched_more(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, mail);
	uint32_t steps = WALK_STEPS;
	struct sandbox *sandbox;

	(void)owner; /* part->shard */
	for (int told = 0; told < FETCHES_PER_TURN; told++) {
		sandbox = selection_next(part, &steps);
		if (!sandbox)
			break;
		fetched_one(part, sandbox);
	}
	if (selection_is_over(part))
		part_end(part, NULL, NULL);
	else
		part_again_with_room(part, fetched_more);
}

/* part->count: how many of those that were named are here. */
void fetched_part(struct part *part)
{
	struct status s = fetched_check(part->request);

	if (s.code)
		part_end(part, &s, NULL);
	else
		part_again(part, fetched_more);
}
