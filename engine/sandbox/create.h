/*
 * Making sandboxes as others are: what a fork asks of the create op.
 */
#pragma once

#include <stdint.h>

#include "backends/backend.h"
#include "dsec/ring.h"
#include "engine/image/image.h"
#include "engine/request/wire.h"

struct part;
struct policy;

/* What the sandbox was that they are made after; lives until over(). */
struct create_source {
	struct dsec_wire_create fields; /* what of a create's is not below */
	struct wire payload;		/* that they refer to */
	struct box_spec spec;		/* all but what makes a box this one */
	struct policy *policy;		/* used */
	uint32_t network, network_why;
	char image[IMAGE_NAME_MAX]; /* no user's name */
	struct dsec_wire_id id;
	char first_image[IMAGE_NAMES_MAX]; /* a user's name for it */
	/* It is mounted, or cannot be: nobody needs its name any more. Once, if at all. */
	void (*mounted)(struct create_source *source);
	/* Of the LAST, before the part ends. */
	void (*over)(struct create_source *source, const struct status *status);
};

/* part->count of them; the part's CREATED events follow, then over(), which ends it. */
void create_after(struct part *part, struct create_source *source);
