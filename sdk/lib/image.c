/*
 * The request about images: its struct is checked and packed, then submitted. Called by
 * applications, without the lock, as those of request.c.
 */
#include <errno.h>
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
	struct dsec_wire_image wire = { .size = sizeof(wire), .verb = opts->verb, .kind = kind };
	struct pack pack;

	dsec__pack_begin(&pack, sizeof(wire));
	wire.name = dsec__pack_text(&pack, opts->name);
	wire.tag = dsec__pack_text(&pack, opts->tag);
	return dsec__pack_end(&pack, &wire, sizeof(wire), submission);
}

static int image_check(const struct dsec_image_opts *opts)
{
	bool import = opts->verb == DSEC_IMAGE_IMPORT, list = opts->verb == DSEC_IMAGE_LIST;

	if (opts->verb < DSEC_IMAGE_IMPORT || opts->verb > DSEC_IMAGE_REMOVE)
		return dsec__fail(-EINVAL, "image: unknown verb");
	if (opts->layers || opts->layer_count || opts->flags)
		return dsec__fail(-EINVAL, "image: layers and flags are not used yet");
	if ((opts->source || opts->tag) && !import)
		return dsec__fail(-EINVAL, "image: only an import has a source and a tag");
	if (opts->tag && !*opts->tag)
		return dsec__fail(-EINVAL, "image: the tag is empty");
	if (list ? opts->name != NULL : !opts->name || !*opts->name)
		return dsec__fail(-EINVAL, list ? "image: a list has no name" : "image: no name");
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
