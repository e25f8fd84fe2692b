/* Resource limits as people write them. Called by outcome.c. Stateless. */
#include "sdk/cli/ulimit.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "sdk/cli/values.h"

enum { AMOUNT_BYTES_MAX = 24 };

static const char *const names[] = DSEC_RESOURCE_NAMES;

static int resource_parse(const char *name, size_t bytes, uint32_t *ret)
{
	for (uint32_t at = 0; at < sizeof(names) / sizeof(names[0]); at++) {
		if (strlen(names[at]) != bytes || memcmp(names[at], name, bytes) != 0)
			continue;
		*ret = at;
		return 0;
	}
	return -EINVAL;
}

static int amount_parse(const char *text, size_t bytes, uint64_t *ret)
{
	char amount[AMOUNT_BYTES_MAX];

	if (bytes == strlen("unlimited") && !memcmp(text, "unlimited", bytes)) {
		*ret = UINT64_MAX;
		return 0;
	}
	if (bytes >= sizeof(amount))
		return -EINVAL;
	memcpy(amount, text, bytes);
	amount[bytes] = '\0';
	return value_parse_bytes(amount, ret);
}

int ulimit_parse(const char *text, struct dsec_rlimit *ret)
{
	const char *equals = strchr(text, '='), *colon;
	struct dsec_rlimit limit = { 0 };
	int r;

	if (!equals)
		return -EINVAL;
	r = resource_parse(text, (size_t)(equals - text), &limit.resource);
	if (r < 0)
		return r;
	colon = strchrnul(equals, ':');
	r = amount_parse(equals + 1, (size_t)(colon - equals - 1), &limit.soft);
	limit.hard = limit.soft;
	if (r == 0 && *colon)
		r = amount_parse(colon + 1, strlen(colon + 1), &limit.hard);
	if (r < 0)
		return r;
	if (limit.soft > limit.hard)
		return -ERANGE;
	*ret = limit;
	return 0;
}
