/*
 * The request about images: its struct is checked and packed, then submitted. Called by
 * applications, without the lock, as those of request.c.
 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"
#include "sdk/lib/pack.h"
#include "sdk/lib/structs.h"

static int source_kind(const char *source, uint32_t *ret)
{
	if (!source)
		*ret = DSEC_IMAGE_AUTO;
	else if (!strcmp(source, "tree"))
		*ret = DSEC_IMAGE_TREE;
	else if (!strcmp(source, "archive"))
		*ret = DSEC_IMAGE_ARCHIVE;
	else
		return dsec__fail(-EINVAL, "image: source is \"tree\", \"archive\" or NULL");
	return 0;
}

static int image_pack(const struct dsec_image_opts *opts, uint32_t kind,
		      struct submission *submission)
{
	struct dsec_wire_image wire = { .size = sizeof(wire),
					.verb = opts->verb,
					.kind = kind,
					.flags = opts->flags,
					.sandbox = { opts->sandbox.hi, opts->sandbox.lo } };
	struct pack pack;

	dsec__pack_begin(&pack, sizeof(wire));
	wire.name = dsec__pack_text(&pack, opts->name);
	wire.tag = dsec__pack_text(&pack, opts->tag);
	wire.items = dsec__pack_items(&pack, opts->layers, opts->layer_count);
	return dsec__pack_end(&pack, &wire, sizeof(wire), submission);
}

/* What each verb takes. The engine says the rest. */
static const struct rule {
	uint32_t flags;
	uint32_t layers_least, layers_most;
	bool takes_name, needs_name;
} rules[] = {
	[DSEC_IMAGE_IMPORT] = { DSEC_IMAGE_LAYER, 0, 0, true, true },
	[DSEC_IMAGE_LIST] = { 0 },
	[DSEC_IMAGE_INSPECT] = { 0, 0, 0, true, true },
	[DSEC_IMAGE_REMOVE] = { 0, 0, 0, true, true },
	[DSEC_IMAGE_COMPOSE] = { 0, 1, 128, true, true },
	[DSEC_IMAGE_GC] = { DSEC_IMAGE_DRY_RUN, 0, 0, false, false },
	[DSEC_IMAGE_VERIFY] = { DSEC_IMAGE_LAZY, 0, 0, true, false },
	[DSEC_IMAGE_PUSH] = { DSEC_IMAGE_ZSTD, 1, 1, true, true },
	[DSEC_IMAGE_PULL] = { DSEC_IMAGE_LAZY, 1, 1, true, true },
	[DSEC_IMAGE_PACK] = { DSEC_IMAGE_LAYER | DSEC_IMAGE_FLATTEN | DSEC_IMAGE_KILL, 0, 256, true,
			      true },
	[DSEC_IMAGE_HOTSET] = { 0, 0, 0, true, false },
};

enum { VERBS = sizeof(rules) / sizeof(rules[0]) };

static int image_check(const struct dsec_image_opts *opts)
{
	const struct rule *rule = &rules[opts->verb < VERBS ? opts->verb : 0];
	bool import = opts->verb == DSEC_IMAGE_IMPORT, pack = opts->verb == DSEC_IMAGE_PACK;

	if (opts->verb < DSEC_IMAGE_IMPORT || opts->verb >= VERBS)
		return dsec__fail(-EINVAL, "image: unknown verb");
	if (opts->layer_count < rule->layers_least || opts->layer_count > rule->layers_most ||
	    (opts->layer_count && !opts->layers))
		return dsec__fail(-EINVAL, "image: too many or too few layers for this verb");
	if (opts->flags & ~rule->flags)
		return dsec__fail(-EINVAL, "image: flags are not of this verb");
	if ((opts->source || opts->tag) && !import)
		return dsec__fail(-EINVAL, "image: only an import has a source and a tag");
	if (opts->tag && !*opts->tag)
		return dsec__fail(-EINVAL, "image: the tag is empty");
	if ((opts->sandbox.hi || opts->sandbox.lo) != pack)
		return dsec__fail(-EINVAL, "image: a pack names a sandbox, and nothing else does");
	if (opts->name && !rule->takes_name)
		return dsec__fail(-EINVAL, "image: this verb takes no name");
	if ((opts->name && !*opts->name) || (!opts->name && rule->needs_name))
		return dsec__fail(-EINVAL, "image: no name");
	return 0;
}

int64_t dsec_image(struct dsec *d, const struct dsec_call *call, const struct dsec_image_opts *opts)
{
	struct submission submission = { .op = DSEC_OP_IMAGE };
	struct dsec_image_opts known;
	struct dsec_call known_call;
	uint32_t kind = DSEC_IMAGE_AUTO;
	int r;

	r = dsec__call_take(d, call, &known_call);
	if (r == 0)
		r = dsec__struct_take(&known, sizeof(known), opts, "image");
	if (r >= 0)
		r = image_check(&known);
	if (r >= 0)
		r = source_kind(known.source, &kind);
	if (r < 0)
		return r;
	submission.is_stream = known.verb == DSEC_IMAGE_IMPORT;
	r = image_pack(&known, kind, &submission);
	return r < 0 ? r : dsec__submit(d, &known_call, &submission);
}
