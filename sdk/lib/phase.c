/*
 * The request that moves a sandbox to another phase. Called by applications, without the lock, as
 * those of request.c.
 */
#include <errno.h>

#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"
#include "sdk/lib/pack.h"
#include "sdk/lib/structs.h"

int64_t dsec_phase(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		   const struct dsec_phase_opts *opts)
{
	struct submission submission = { .op = DSEC_OP_PHASE, .subject = sandbox };
	struct dsec_wire_phase wire = { .size = sizeof(wire) };
	struct dsec_phase_opts known;
	struct dsec_call known_call;
	struct pack pack;
	int r;

	r = dsec__call_take(d, call, &known_call);
	if (r == 0)
		r = dsec__struct_take(&known, sizeof(known), opts, "phase");
	if (r < 0)
		return r;
	if (known.flags & ~(uint32_t)DSEC_PHASE_FLAGS_KNOWN)
		return dsec__fail(-EINVAL, "phase: unknown flags");
	if (!known.name || !*known.name)
		return dsec__fail(-EINVAL, "phase: no name");
	wire.flags = known.flags;
	wire.version = known.version;
	dsec__pack_begin(&pack, sizeof(wire));
	wire.name = dsec__pack_text(&pack, known.name);
	wire.policy = dsec__pack_text(&pack, known.policy);
	r = dsec__pack_end(&pack, &wire, sizeof(wire), &submission);
	return r < 0 ? r : dsec__submit(d, &known_call, &submission);
}
