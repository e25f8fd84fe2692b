/*
 * Feeds the reader of ClientHellos arbitrary bytes: what it takes keeps the contract of hello.h,
 * and what comes in pieces is understood as what comes at once. Holds no state between inputs.
 */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/names/hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char untouched[] = "untouched";

/* Exactly as large: a read past the end is seen. */
static int read_copy(const uint8_t *data, size_t bytes, char *ret_name)
{
	uint8_t *copy = malloc(bytes ? bytes : 1);
	int r;

	assert(copy);
	memcpy(copy, data, bytes);
	r = hello_read(copy, bytes, ret_name);
	free(copy);
	return r;
}

static void name_check(const char *name)
{
	const size_t bytes = strlen(name);

	assert(bytes > 0);
	assert(bytes < HELLO_NAME_BYTES);
	assert(strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == bytes);
	assert(name[0] != '.');
	assert(name[bytes - 1] != '.');
	assert(!strstr(name, ".."));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	char name[HELLO_NAME_BYTES] = "untouched";
	const int r = read_copy(data, bytes, name);
	const size_t step = bytes / 16 + 1;

	assert(r == 0 || r == -EAGAIN || r == -EPROTO || r == -ENOENT);
	if (r == 0)
		name_check(name);
	else
		assert(!strcmp(name, untouched));
	/* What is good at its end was no mistake before: it is whole from some moment on. */
	for (size_t cut = 0; (r == 0 || r == -ENOENT) && cut < bytes; cut += step) {
		char part[HELLO_NAME_BYTES] = "untouched";
		const int before = read_copy(data, cut, part);

		assert(before == -EAGAIN || before == r);
		assert(!strcmp(part, before == 0 ? name : untouched));
	}
	return 0;
}
