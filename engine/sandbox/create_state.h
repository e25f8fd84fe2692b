/* A create from the inside: create.c makes sandboxes, create_check.c looks at what is asked. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/image/image.h"
#include "engine/policy/policy_want.h"
#include "engine/request/request.h"
#include "engine/sandbox/network.h"
#include "engine/sandbox/sandbox.h"

struct create_source;

enum { CREATES_AT_ONCE = 16 /* per part: enough to keep a team of launchers busy */ };

/* What a part works from; part->work. */
struct creation {
	struct part *part;
	const struct dsec_wire_create *fields;
	const struct wire *payload;   /* that they refer to */
	struct create_source *source; /* of a fork; else NULL */
	struct image_want image;
	struct policy_want policy;
	struct network_want network;
	char hostname[HOSTNAME_BYTES_MAX], user[USER_BYTES_MAX];
	uint32_t excess;       /* to be refused */
	const char *excess_of; /* the limit */
	uint32_t retry_ms;
	struct status failure; /* of the image: of every one */
	bool is_done;	       /* one was not only refused */
	bool pumping, resting;
	struct sandbox *under_way[CREATES_AT_ONCE]; /* being built; NULL: a free place */
};

/* What is asked, into image, policy, host name and user. */
struct status create_check(struct creation *creation);
