/* JSON from what an engine says. Called by the verbs. Stateless. */
#include "sdk/cli/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/cli/report.h"
#include "sdk/cli/values.h"

json_t *json_text(struct dsec_bytes bytes)
{
	if (!bytes.bytes)
		return json_string("");
	if (!value_is_utf8(bytes))
		return json_null();
	return json_stringn(bytes.data, bytes.bytes);
}

json_t *json_id(struct dsec_id id)
{
	char text[27];

	dsec_id_print(id, text);
	return json_string(text);
}

json_t *json_amount(uint64_t amount)
{
	return amount > INT64_MAX ? json_null() : json_integer((json_int_t)amount);
}

json_t *json_base64(struct dsec_bytes bytes)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *at = bytes.data;
	char *text = malloc(bytes.bytes / 3 * 4 + 5), *to = text;
	json_t *json;

	if (!text)
		return NULL;
	for (size_t left = bytes.bytes; left; at += 3) {
		uint32_t group = (uint32_t)at[0] << 16;

		group |= left > 1 ? (uint32_t)at[1] << 8 : 0;
		group |= left > 2 ? (uint32_t)at[2] : 0;
		*to++ = digits[group >> 18];
		*to++ = digits[group >> 12 & 63];
		*to++ = left > 1 ? digits[group >> 6 & 63] : '=';
		*to++ = left > 2 ? digits[group & 63] : '=';
		left = left > 3 ? left - 3 : 0;
	}
	json = json_stringn(text, (size_t)(to - text));
	free(text);
	return json;
}

int json_add_bytes(json_t *object, const char *name, struct dsec_bytes bytes)
{
	json_t *text = json_text(bytes);
	char base64[64];

	if (json_object_set_new(object, name, text) < 0)
		return -ENOMEM;
	if (!json_is_null(text))
		return 0;
	(void)snprintf(base64, sizeof(base64), "%s_base64", name); /* names are ours: it fits */
	return json_object_set_new(object, strcmp(name, "text") ? base64 : "base64",
				   json_base64(bytes)) < 0 ?
		       -ENOMEM :
		       0;
}

static struct dsec_bytes text_of(const char *text)
{
	return (struct dsec_bytes){ text, strlen(text) };
}

/* "ENOENT"; the number of one that has no name here. */
static json_t *json_errno(int error)
{
	const char *name = strerrorname_np(error);

	return name ? json_string(name) : json_integer(error);
}

json_t *json_status(const struct dsec_status *status)
{
	json_t *object = json_object();

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_object_set_new(object, "status", json_string(code_name(status->code)));
	(void)json_object_set_new(object, "blame", json_string(blame_name(status->blame)));
	if (status->step[0])
		(void)json_add_bytes(object, "step", text_of(status->step));
	if (status->detail[0])
		(void)json_add_bytes(object, "detail", text_of(status->detail));
	if (status->error)
		(void)json_object_set_new(object, "errno", json_errno(status->error));
	if (status->retry_after_ms)
		(void)json_object_set_new(object, "retry_after_ms",
					  json_integer(status->retry_after_ms));
	return object;
}

int json_line(FILE *file, const json_t *object)
{
	if (!object || json_dumpf(object, file, JSON_COMPACT | JSON_REAL_PRECISION(15)) < 0)
		return -EIO;
	if (fputc('\n', file) == EOF || fflush(file) == EOF)
		return -EIO;
	return 0;
}
