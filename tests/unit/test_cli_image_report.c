/* What jobs of `dsec image` say to people. */
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

Test(cli_image_report, push_and_pull_say_what_was_copied_and_what_was_there)
{
	static const char report[] =
		"{\"manifests\":[\"sha256:01\",\"sha256:02\"],\"new_blobs\":3,\"shared_blobs\":5,"
		"\"new_bytes\":1048576,\"shared_bytes\":3145728,\"lazy\":true}";

	for (uint32_t verb = DSEC_IMAGE_PUSH; verb <= DSEC_IMAGE_PULL; verb++)
		shown_check(verb, report,
			    "copied: 3 blobs, 1.0 MB (25%)\nthere already: 5 blobs, 3.0 MB (75%)\n"
			    "an image of 2\ncontents come when they are read\n");
	shown_check(DSEC_IMAGE_PUSH,
		    "{\"manifests\":[\"sha256:01\"],\"new_blobs\":0,\"shared_blobs\":0,"
		    "\"new_bytes\":0,\"shared_bytes\":0,\"lazy\":false}",
		    "copied: 0 blobs, 0 B\nthere already: 0 blobs, 0 B\n");
}

Test(cli_image_report, pack_says_what_is_in_the_layer_and_what_is_not)
{
	shown_check(
		DSEC_IMAGE_PACK,
		"{\"layer\":\"sha256:0123456789abcdef\",\"manifests\":[\"sha256:01\"],\"folded\":0,"
		"\"files\":12,\"whiteouts\":1,\"bytes\":2048,\"new_bytes\":1024,"
		"\"shared_bytes\":1024,\"wiped\":{\"history\":1,\"git\":2},"
		"\"below\":{\"credentials\":1},\"dropped\":{\"sockets\":3},\"canaries\":2}",
		"layer sha256:0123456789ab: 12 files, 1 whiteouts, 2.0 KB\n"
		"contents: 1.0 KB stored, 1.0 KB there already (50%)\n"
		"wiped: 1 history, 2 git\nstays in layers below: 1 credentials\n"
		"left out: 3 sockets\n2 canaries, none was found\n");
	shown_check(DSEC_IMAGE_PACK,
		    "{\"layer\":\"sha256:01\",\"manifests\":[\"sha256:01\",\"sha256:02\"],"
		    "\"folded\":2,\"files\":1,\"whiteouts\":0,\"bytes\":0,\"new_bytes\":0,"
		    "\"shared_bytes\":0,\"wiped\":{},\"below\":{},\"dropped\":{},\"canaries\":0}",
		    "layer sha256:01: 1 files, 0 whiteouts, 0 B\n"
		    "contents: 0 B stored, 0 B there already\nmade one with 2 of 2 layers below\n");
}

Test(cli_image_report, hotset_says_which_segments_most_was_read_of)
{
	shown_check(DSEC_IMAGE_HOTSET,
		    "{\"percent\":90,\"segments_asked\":7,\"asked_bytes\":4096,\"segments\":["
		    "{\"digest\":\"sha256:0123456789abcdef\",\"bytes\":8192,\"asked_bytes\":3072}],"
		    "\"covered_bytes\":3072,\"bytes\":8192}",
		    "4.0 KB read of 7 segments; 3.0 KB (75%) of 1, which have 8.0 KB\n"
		    "sha256:0123456789ab  3.0 KB (75%) read, of 8.0 KB\n");
	shown_check(DSEC_IMAGE_HOTSET,
		    "{\"percent\":90,\"segments_asked\":0,\"asked_bytes\":0,\"segments\":[],"
		    "\"covered_bytes\":0,\"bytes\":0}",
		    "nothing was read of segments that come when they are read\n");
}

Test(cli_image_report, another_report_is_shown_as_it_came)
{
	cr_assert_null(shown(DSEC_IMAGE_HOTSET, "{\"images\":1}"));
	cr_assert_null(shown(DSEC_IMAGE_GC, "{\"asked\":1}"));
}
