/*
 * The port request of dsec.h. Called by applications, without the lock.
 */
#include <errno.h>

#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"
#include "sdk/lib/pack.h"
#include "sdk/lib/structs.h"

int64_t dsec_port(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		  const struct dsec_port_opts *opts)
{
	struct submission submission = { .op = DSEC_OP_PORT, .subject = sandbox };
	struct dsec_wire_port wire = { .size = sizeof(wire) };
	struct dsec_port_opts known;
	struct dsec_call known_call;
	struct pack pack;
	int r;

	r = dsec__call_take(d, call, &known_call);
	if (r == 0)
		r = dsec__struct_take(&known, sizeof(known), opts, "port");
	if (r < 0)
		return r;
	if (known.flags & ~(uint32_t)DSEC_PORT_FLAGS_KNOWN)
		return dsec__fail(-EINVAL, "port: unknown flags");
	if (known.port < 1 || known.port > 65535)
		return dsec__fail(-EINVAL, "port: a port is 1 to 65535");
	wire.flags = known.flags;
	wire.port = known.port;
	wire.wait_ms = known.wait_ms;
	dsec__pack_begin(&pack, sizeof(wire));
	r = dsec__pack_end(&pack, &wire, sizeof(wire), &submission);
	return r < 0 ? r : dsec__submit(d, &known_call, &submission);
}
