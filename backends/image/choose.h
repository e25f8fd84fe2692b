/* Which of an archive's images is meant: by the machine and by the tag that was asked for. */
#pragma once

#include "backends/image/import.h"

struct json_value;

/* Of an OCI index's descriptors, with in->tag where `has_tags`. 1: *ret; 0: it lists none. */
int choose_descriptor(struct import *in, const struct json_value *index, bool has_tags,
		      struct json_value *ret);
/* Of the images in a docker archive's manifest.json, an array. */
int choose_docker(struct import *in, const struct json_value *all, struct json_value *ret);
