/*
 * What `dsec image gc` and `verify` found, for people. Called by image_job.c. Must hold: texts of
 * images are quoted, as JSON has them: no terminal obeys them.
 */
#include <inttypes.h>
#include <string.h>

#include "sdk/cli/image.h"
#include "sdk/cli/json.h"
#include "sdk/cli/values.h"

static uint64_t number_of(const json_t *report, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(report, key));
}

static void count_print(FILE *out, const json_t *report, const char *key, const char *what)
{
	char text[VALUE_TEXT_BYTES];

	value_print_count(number_of(report, key), text);
	(void)fprintf(out, "%s %s", text, what); /* all of it is told by main() */
}

static void bytes_print(FILE *out, const json_t *report, const char *key)
{
	char text[VALUE_TEXT_BYTES];

	value_print_bytes(number_of(report, key), text);
	(void)fprintf(out, ", %s\n", text);
}

static void quoted_print(FILE *out, const json_t *text)
{
	if (json_dumpf(text, out, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) < 0)
		(void)fputs("?", out); /* no memory */
}

static void gc_print(FILE *out, const json_t *report)
{
	bool dry = json_is_true(json_object_get(report, "dry_run"));

	count_print(out, report, "images", "images, ");
	count_print(out, report, "blobs", "blobs");
	bytes_print(out, report, "bytes");
	(void)fputs(dry ? "would go: " : "gone: ", out);
	count_print(out, report, "deleted", "blobs, ");
	count_print(out, report, "composed_deleted", "compositions");
	bytes_print(out, report, "deleted_bytes");
	if (!number_of(report, "incomplete"))
		return;
	count_print(out, report, "incomplete", "images lack something, such as ");
	quoted_print(out, json_object_get(report, "incomplete_image"));
	(void)fputs(": see dsec image verify\n", out);
}

static void fault_print(FILE *out, const json_t *fault)
{
	const json_t *image = json_object_get(fault, "image");
	const json_t *path = json_object_get(fault, "path");
	const char *what = json_string_value(json_object_get(fault, "what"));
	const char *how = json_string_value(json_object_get(fault, "how"));
	const char *digest = json_string_value(json_object_get(fault, "digest"));

	if (image)
		quoted_print(out, image);
	else
		(void)fputs("of no image", out);
	(void)fprintf(out, ": %s %s ", what ? what : "?", how ? how : "?");
	if (path)
		quoted_print(out, path);
	(void)fprintf(out, "%.16s\n", !path && digest ? digest : "");
}

static void verify_print(FILE *out, const json_t *report)
{
	const json_t *fault;
	size_t at;

	json_array_foreach(json_object_get(report, "faults"), at, fault)
	{
		fault_print(out, fault);
	}
	if (number_of(report, "left_out"))
		count_print(out, report, "left_out", "more\n");
	count_print(out, report, "images", "images, ");
	count_print(out, report, "blobs", "blobs, ");
	count_print(out, report, "files", "files");
	bytes_print(out, report, "bytes");
	if (number_of(report, "absent"))
		count_print(out, report, "absent", "segments come when they are read\n");
	if (number_of(report, "unchecked"))
		count_print(out, report, "unchecked",
			    "images were made by other means: nothing to compare them with\n");
	if (number_of(report, "fault_count"))
		count_print(out, report, "fault_count", "faults\n");
	else if (number_of(report, "unchecked") < number_of(report, "images"))
		(void)fputs("all sound\n", out);
}

bool image_report_print(FILE *out, uint32_t verb, const json_t *report)
{
	if (!json_is_integer(json_object_get(report, "images")))
		return false;
	if (verb == DSEC_IMAGE_GC)
		gc_print(out, report);
	else if (verb == DSEC_IMAGE_VERIFY)
		verify_print(out, report);
	else
		return false;
	return true;
}
