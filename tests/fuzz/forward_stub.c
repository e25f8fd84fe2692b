/*
 * Forwards of fuzz runs: one per sandbox and no listener. Called by the port op and by sandboxes.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "engine/port/forward.h"
#include "engine/sandbox/sandbox.h"

int forward_get(struct sandbox *sandbox, uint32_t port, struct forward **ret,
		const char **ret_limit)
{
	*ret_limit = "forwards_per_sandbox_max";
	assert(port >= 1);
	assert(port <= 65535);
	if (sandbox->forwards && sandbox->forwards->port != port)
		return -EAGAIN;
	if (!sandbox->forwards) {
		sandbox->forwards = calloc(1, sizeof *sandbox->forwards);
		assert(sandbox->forwards);
		*sandbox->forwards =
			(struct forward){ .sandbox = sandbox, .port = port, .token = "token" };
	}
	*ret = sandbox->forwards;
	return 0;
}

const char *forward_address(const struct forward *forward)
{
	assert(forward->sandbox);
	return "127.0.0.1:1";
}

bool forward_revoke(struct sandbox *sandbox, uint32_t port)
{
	if (!sandbox->forwards || sandbox->forwards->port != port)
		return false;
	free(sandbox->forwards);
	sandbox->forwards = NULL;
	return true;
}

void forwards_end(struct sandbox *sandbox)
{
	free(sandbox->forwards);
	sandbox->forwards = NULL;
}

void forwards_stop(struct forwards *forwards)
{
	assert(!forwards->accepting);
}
