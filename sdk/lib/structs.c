/* The rule by which structs of dsec.h grow. Called by every function that takes one. Stateless. */
#include "sdk/lib/structs.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "sdk/lib/error.h"

enum { STRUCT_BYTES_MAX = 4096 };

int dsec__struct_take(void *known, size_t known_bytes, const void *given, const char *what)
{
	const unsigned char *bytes = given;
	uint32_t size;

	if (!given)
		return dsec__fail(-EINVAL, "%s: no options", what);
	memcpy(&size, given, sizeof(size));
	if (size < 2 * sizeof(size))
		return dsec__fail(-EINVAL, "%s: size is %u: set it to sizeof", what, size);
	if (size > STRUCT_BYTES_MAX)
		return dsec__fail(-E2BIG, "%s: size is %u, more than any version's", what, size);
	for (size_t at = known_bytes; at < size; at++) {
		if (bytes[at])
			return dsec__fail(-E2BIG, "%s: byte %zu is set, this library knows %zu",
					  what, at, known_bytes);
	}
	memset(known, 0, known_bytes);
	memcpy(known, given, size < known_bytes ? size : known_bytes);
	return 0;
}
