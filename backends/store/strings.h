/* The lists of texts that a record and a config have, one behind the other in a packed block. */
#pragma once

#include <stdint.h>

struct image_record;
struct json_value;
struct json_writer;

/* `count` of them from `at` on; what is behind the last. */
const char *strings_write(struct json_writer *w, const char *key, const char *at, uint32_t count);
/* Behind the record's others. -EBADMSG: no list of texts, or more than fit. */
int strings_read(const struct json_value *list, struct image_record *record, uint32_t *ret_count);
