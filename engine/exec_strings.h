/*
 * What a program is started with: argv, env and working directory as one packed block.
 */
#pragma once

#include "backends/backend.h"
#include "engine/request.h"

struct sandbox;

/*
 * From an exec request, its sandbox and the image: the request's env over the sandbox's over the
 * image's over PATH; whether HOME is left to be found out; the image's command and working
 * directory where it has none. ret->strings is the caller's to free, also after a failure.
 */
struct status exec_strings(const struct sandbox *sandbox, const struct request *request,
			   const char *user, struct run_spec *ret);
