/*
 * Lists of texts. Called by records and configs. Must hold: what is read fits a record, or is
 * refused.
 */
#include "backends/store/strings.h"

#include <errno.h>
#include <string.h>

#include "backends/image.h"
#include "engine/base/json.h"

const char *strings_write(struct json_writer *w, const char *key, const char *at, uint32_t count)
{
	json_array(w, key);
	for (uint32_t i = 0; i < count; i++) {
		json_string(w, NULL, at);
		at += strlen(at) + 1;
	}
	json_end(w);
	return at;
}

int strings_read(const struct json_value *list, struct image_record *record, uint32_t *ret_count)
{
	struct json_value item;
	size_t cursor = 0;

	if (list->kind != JSON_ARRAY)
		return -EBADMSG;
	while (json_next(list, &cursor, &item) >= 0) {
		int r;

		if (item.kind != JSON_STRING || *ret_count == IMAGE_STRINGS_MAX)
			return -EBADMSG;
		r = json_to_string(&item, record->strings + record->string_bytes,
				   sizeof record->strings - record->string_bytes);
		if (r < 0)
			return -EBADMSG;
		record->string_bytes += (uint32_t)r + 1;
		++*ret_count;
	}
	return 0;
}
