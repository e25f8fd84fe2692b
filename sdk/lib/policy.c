/*
 * The request about policies: its struct is checked and packed, then submitted. Called by
 * applications, without the lock, as those of request.c.
 */
#include <errno.h>

#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"
#include "sdk/lib/pack.h"
#include "sdk/lib/structs.h"

static int policy_check(const struct dsec_policy_opts *opts)
{
	const bool has_name = opts->name && *opts->name;
	const bool has_document = opts->document.data && opts->document.bytes;

	switch (opts->verb) {
	case DSEC_POLICY_CHECK:
	case DSEC_POLICY_LOAD:
		if (!has_document)
			return dsec__fail(-EINVAL, "policy: no document");
		if (opts->document.bytes > DSEC_POLICY_DOCUMENT_BYTES_MAX)
			return dsec__fail(-E2BIG,
					  "policy: the document has more than 65,536 bytes");
		break;
	case DSEC_POLICY_SHOW:
	case DSEC_POLICY_REMOVE:
		if (!has_name)
			return dsec__fail(-EINVAL, "policy: no name");
		break;
	case DSEC_POLICY_LIST:
	case DSEC_POLICY_SERVICES:
		if (has_name)
			return dsec__fail(-EINVAL, "policy: a list has no name");
		break;
	default:
		return dsec__fail(-EINVAL, "policy: unknown verb");
	}
	if (has_document && opts->verb > DSEC_POLICY_LOAD)
		return dsec__fail(-EINVAL, "policy: only check and load have a document");
	if (opts->version && opts->verb != DSEC_POLICY_LOAD && opts->verb != DSEC_POLICY_REMOVE)
		return dsec__fail(-EINVAL, "policy: only load and remove have a version");
	return 0;
}

static int policy_pack(const struct dsec_policy_opts *opts, struct submission *submission)
{
	struct dsec_wire_policy wire = { .size = sizeof(wire),
					 .verb = opts->verb,
					 .version = opts->version };
	struct pack pack;

	dsec__pack_begin(&pack, sizeof(wire));
	wire.name = dsec__pack_text(&pack, opts->name);
	wire.document = dsec__pack_bytes(&pack, opts->document.data, opts->document.bytes);
	return dsec__pack_end(&pack, &wire, sizeof(wire), submission);
}

int64_t dsec_policy(struct dsec *d, const struct dsec_call *call,
		    const struct dsec_policy_opts *opts)
{
	struct submission submission = { .op = DSEC_OP_POLICY };
	struct dsec_policy_opts known;
	struct dsec_call known_call;
	int r;

	r = dsec__call_take(d, call, &known_call);
	if (r == 0)
		r = dsec__struct_take(&known, sizeof(known), opts, "policy");
	if (r >= 0)
		r = policy_check(&known);
	if (r >= 0)
		r = policy_pack(&known, &submission);
	return r < 0 ? r : dsec__submit(d, &known_call, &submission);
}
