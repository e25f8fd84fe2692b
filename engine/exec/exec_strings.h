/*
 * What a program is started with: argv, env and working directory as one packed block.
 */
#pragma once

#include "backends/backend.h"
#include "engine/request/status.h"
#include "engine/request/wire.h"

struct image;

struct exec_strings_of {
	const struct image *image;
	struct wire env; /* the sandbox's, as items: NAME=value */
	uint32_t env_count;
	const struct wire *payload;
	const struct dsec_wire_exec *wish; /* argv, env, cwd and flags of it; refers to payload */
	const char *user;
};

/*
 * From an exec's wish, its sandbox and the image: the wish's env over the sandbox's over the
 * image's over PATH; whether HOME is left to be found out; the image's command and working
 * directory where it has none. ret->strings is the caller's to free, also after a failure.
 */
struct status exec_strings(const struct exec_strings_of *of, struct run_spec *ret);
