/*
 * The request that forks a sandbox. Called by applications, without the lock, as those of
 * request.c.
 */
#include <errno.h>
#include <string.h>

#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"
#include "sdk/lib/pack.h"
#include "sdk/lib/structs.h"

/* All but the count is the source's. */
static int opts_check(struct dsec_create_opts opts)
{
	const struct dsec_create_opts none = { .size = opts.size };

	opts.count = 0;
	return memcmp(&opts, &none, sizeof(opts)) == 0 ?
		       0 :
		       dsec__fail(-EINVAL, "fork: only a count is taken, the rest is the source's");
}

int64_t dsec_fork(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		  const struct dsec_create_opts *opts)
{
	struct submission submission = { .op = DSEC_OP_FORK, .subject = sandbox };
	struct dsec_wire_fork wire = { .size = sizeof(wire) };
	struct dsec_create_opts known = { .size = sizeof(known) };
	struct dsec_call known_call;
	struct pack pack;
	int r;

	r = dsec__call_take(d, call, &known_call);
	if (r == 0 && opts)
		r = dsec__struct_take(&known, sizeof(known), opts, "fork");
	if (r == 0)
		r = opts_check(known);
	if (r < 0)
		return r;
	wire.count = known.count;
	dsec__pack_begin(&pack, sizeof(wire));
	r = dsec__pack_end(&pack, &wire, sizeof(wire), &submission);
	return r < 0 ? r : dsec__submit(d, &known_call, &submission);
}
