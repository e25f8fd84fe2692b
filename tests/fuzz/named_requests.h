/*
 * Requests about images and policies, chosen: payloads to be freed.
 */
#pragma once

#include "dsec/ring.h"

struct choices;
struct pack;

/* `sandbox`: of a pack. */
struct pack *image_choose(struct choices *c, struct dsec_wire_id sandbox);
struct pack *fork_choose(struct choices *c);
struct pack *policy_choose(struct choices *c);
