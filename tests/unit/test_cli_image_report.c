/* What `dsec image gc` and `verify` say to people. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "sdk/cli/image.h"

/* The caller frees. NULL: it is not shown so. */
static char *shown(uint32_t verb, const char *text)
{
	json_t *report = json_loads(text, 0, NULL);
	char *said = NULL;
	size_t bytes;
	FILE *out = open_memstream(&said, &bytes);

	cr_assert_not_null(report);
	cr_assert_not_null(out);
	bool known = image_report_print(out, verb, report);
	cr_assert_eq(fclose(out), 0);
	json_decref(report);
	if (known)
		return said;
	free(said);
	return NULL;
}

static void shown_check(uint32_t verb, const char *text, const char *wanted)
{
	char *said = shown(verb, text);

	cr_assert_str_eq(said, wanted);
	free(said);
}

Test(cli_image_report, gc_says_what_went)
{
	shown_check(DSEC_IMAGE_GC,
		    "{\"dry_run\":false,\"images\":2,\"blobs\":12,\"bytes\":3145728,\"deleted\":5,"
		    "\"deleted_bytes\":1048576,\"composed_deleted\":1,\"incomplete\":0}",
		    "2 images, 12 blobs, 3.0 MB\ngone: 5 blobs, 1 compositions, 1.0 MB\n");
	shown_check(DSEC_IMAGE_GC,
		    "{\"dry_run\":true,\"images\":1,\"blobs\":0,\"bytes\":0,\"deleted\":0,"
		    "\"deleted_bytes\":0,\"composed_deleted\":0,\"incomplete\":1,"
		    "\"incomplete_image\":\"a\\u001b[2J\"}",
		    "1 images, 0 blobs, 0 B\nwould go: 0 blobs, 0 compositions, 0 B\n"
		    "1 images lack something, such as \"a\\u001B[2J\": see dsec image verify\n");
}

Test(cli_image_report, verify_says_that_all_is_sound_or_a_line_for_each_fault)
{
	shown_check(DSEC_IMAGE_VERIFY,
		    "{\"faults\":[],\"images\":2,\"blobs\":7,\"files\":40,\"bytes\":2048,"
		    "\"fault_count\":0,\"left_out\":0,\"absent\":0}",
		    "2 images, 7 blobs, 40 files, 2.0 KB\nall sound\n");
	shown_check(
		DSEC_IMAGE_VERIFY,
		"{\"faults\":[{\"image\":\"one\",\"what\":\"file\",\"how\":\"damaged\","
		"\"path\":\"/x\\u0007\"},{\"what\":\"blob\",\"how\":\"damaged\",\"digest\":"
		"\"0123456789abcdef0123\"}],\"images\":1,\"blobs\":1,\"files\":1,\"bytes\":0,"
		"\"fault_count\":2,\"left_out\":0,\"absent\":3}",
		"\"one\": file damaged \"/x\\u0007\"\n"
		"of no image: blob damaged 0123456789abcdef\n"
		"1 images, 1 blobs, 1 files, 0 B\n3 segments come when they are read\n2 faults\n");
}

Test(cli_image_report, another_report_is_shown_as_it_came)
{
	cr_assert_null(shown(DSEC_IMAGE_HOTSET, "{\"images\":1}"));
	cr_assert_null(shown(DSEC_IMAGE_GC, "{\"asked\":1}"));
}
