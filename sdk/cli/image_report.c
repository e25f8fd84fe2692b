/*
 * What `dsec image gc`, `verify`, `push`, `pull`, `pack` and `hotset` found, for people. Called by
 * image_job.c. Must hold: texts of images are quoted, as JSON has them: no terminal obeys them.
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

/* ---- copies ---- */

/* ` (25%)`, or nothing of nothing. */
static void share_print(FILE *out, uint64_t part, uint64_t all)
{
	if (all)
		(void)fprintf(out, " (%u%%)", (unsigned)(100.0 * (double)part / (double)all));
}

static void blobs_print(FILE *out, const json_t *report, const char *what,
			const char *const keys[2])
{
	const uint64_t here = number_of(report, keys[1]);
	const uint64_t all = number_of(report, "new_bytes") + number_of(report, "shared_bytes");
	char text[VALUE_TEXT_BYTES];

	(void)fputs(what, out);
	count_print(out, report, keys[0], "blobs, ");
	value_print_bytes(here, text);
	(void)fputs(text, out);
	share_print(out, here, all);
	(void)fputc('\n', out);
}

static void transfer_print(FILE *out, const json_t *report)
{
	static const char *const moved[] = { "new_blobs", "new_bytes" };
	static const char *const there[] = { "shared_blobs", "shared_bytes" };

	blobs_print(out, report, "copied: ", moved);
	blobs_print(out, report, "there already: ", there);
	if (json_array_size(json_object_get(report, "manifests")) > 1)
		(void)fprintf(out, "an image of %zu\n",
			      json_array_size(json_object_get(report, "manifests")));
	if (json_is_true(json_object_get(report, "lazy")))
		(void)fputs("contents come when they are read\n", out);
}

/* ---- packs ---- */

/* `wiped: 1 history, 2 git`; nothing of nothing. */
static void counts_print(FILE *out, const json_t *report, const char *key, const char *what)
{
	json_t *counts = json_object_get(report, key), *count;
	const char *name, *before = what;
	char text[VALUE_TEXT_BYTES];

	json_object_foreach(counts, name, count)
	{
		value_print_count((uint64_t)json_integer_value(count), text);
		(void)fprintf(out, "%s%s %s", before, text, name);
		before = ", ";
	}
	if (before != what)
		(void)fputc('\n', out);
}

static void contents_print(FILE *out, const json_t *report)
{
	const uint64_t made = number_of(report, "new_bytes");
	const uint64_t shared = number_of(report, "shared_bytes");
	char text[VALUE_TEXT_BYTES];

	value_print_bytes(made, text);
	(void)fprintf(out, "contents: %s stored, ", text);
	value_print_bytes(shared, text);
	(void)fprintf(out, "%s there already", text);
	share_print(out, shared, made + shared);
	(void)fputc('\n', out);
}

static void pack_print(FILE *out, const json_t *report)
{
	const json_t *layer = json_object_get(report, "layer");
	const size_t below = json_array_size(json_object_get(report, "manifests"));
	const uint64_t folded = number_of(report, "folded");

	(void)fprintf(out, "layer %.19s: ", json_is_string(layer) ? json_string_value(layer) : "-");
	count_print(out, report, "files", "files, ");
	count_print(out, report, "whiteouts", "whiteouts");
	bytes_print(out, report, "bytes");
	contents_print(out, report);
	if (folded)
		(void)fprintf(out, "made one with %" PRIu64 " of %zu layers below\n", folded,
			      below);
	counts_print(out, report, "wiped", "wiped: ");
	counts_print(out, report, "below", "stays in layers below: ");
	counts_print(out, report, "dropped", "left out: ");
	if (number_of(report, "canaries"))
		count_print(out, report, "canaries", "canaries, none was found\n");
}

/* ---- what is read most ---- */

static void hot_row_print(FILE *out, const json_t *row, uint64_t asked)
{
	const char *digest = json_string_value(json_object_get(row, "digest"));
	char text[VALUE_TEXT_BYTES];

	value_print_bytes(number_of(row, "asked_bytes"), text);
	(void)fprintf(out, "%.19s  %s", digest ? digest : "-", text);
	share_print(out, number_of(row, "asked_bytes"), asked);
	value_print_bytes(number_of(row, "bytes"), text);
	(void)fprintf(out, " read, of %s\n", text);
}

static void hotset_print(FILE *out, const json_t *report)
{
	const json_t *rows = json_object_get(report, "segments"), *row;
	const uint64_t asked = number_of(report, "asked_bytes");
	char text[VALUE_TEXT_BYTES];
	size_t at;

	if (!asked) {
		(void)fputs("nothing was read of segments that come when they are read\n", out);
		return;
	}
	value_print_bytes(asked, text);
	(void)fprintf(out, "%s read of ", text);
	count_print(out, report, "segments_asked", "segments; ");
	value_print_bytes(number_of(report, "covered_bytes"), text);
	(void)fprintf(out, "%s", text);
	share_print(out, number_of(report, "covered_bytes"), asked);
	value_print_bytes(number_of(report, "bytes"), text);
	(void)fprintf(out, " of %zu, which have %s\n", json_array_size(rows), text);
	json_array_foreach(rows, at, row)
	{
		hot_row_print(out, row, asked);
	}
}

bool image_report_print(FILE *out, uint32_t verb, const json_t *report)
{
	static const struct {
		void (*print)(FILE *out, const json_t *report);
		const char *has; /* a number that its report has */
	} kinds[] = {
		[DSEC_IMAGE_GC] = { gc_print, "images" },
		[DSEC_IMAGE_VERIFY] = { verify_print, "images" },
		[DSEC_IMAGE_PUSH] = { transfer_print, "new_blobs" },
		[DSEC_IMAGE_PULL] = { transfer_print, "new_blobs" },
		[DSEC_IMAGE_PACK] = { pack_print, "whiteouts" },
		[DSEC_IMAGE_HOTSET] = { hotset_print, "segments_asked" },
	};

	if (verb >= sizeof(kinds) / sizeof(kinds[0]) || !kinds[verb].print ||
	    !json_is_integer(json_object_get(report, kinds[verb].has)))
		return false;
	kinds[verb].print(out, report);
	return true;
}
