/* `dsec image`: its verbs. Called by main.c. */
#include "sdk/cli/image.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/copy.h"
#include "sdk/cli/json.h"
#include "sdk/cli/select.h"
#include "sdk/cli/subverb.h"
#include "sdk/cli/table.h"
#include "sdk/cli/values.h"
#include "sdk/cli/verbs.h"

enum { PARTS_MAX = 128, BUILD = 1 << 16 /* no verb of the op */ };
enum { LS_NAME, LS_DIGEST, LS_BYTES, LS_FILES, LS_LOCAL, LS_AGE, LS_USERS };

static const struct column columns[] = {
	[LS_NAME] = { "NAME", 28 },   [LS_DIGEST] = { "DIGEST", 19 },
	[LS_BYTES] = { "SIZE", 9 },   [LS_FILES] = { "FILES", 9 },
	[LS_LOCAL] = { "LOCAL", 6 },  [LS_AGE] = { "AGE", 7 },
	[LS_USERS] = { "IN USE", 0 }, { NULL, 0 },
};

json_t *image_row_json(const struct dsec_image_row *row)
{
	json_t *object = json_object();

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_add_bytes(object, "name", row->name);
	(void)json_add_bytes(object, "digest", row->digest);
	(void)json_add_bytes(object, "source", row->source);
	(void)json_add_bytes(object, "created", row->created);
	(void)json_object_set_new(object, "bytes", json_amount(row->bytes));
	(void)json_object_set_new(object, "content_bytes", json_amount(row->content_bytes));
	(void)json_object_set_new(object, "files", json_amount(row->files));
	(void)json_object_set_new(object, "segment_bytes", json_amount(row->segment_bytes));
	(void)json_object_set_new(object, "local_bytes", json_amount(row->local_bytes));
	(void)json_object_set_new(object, "layers", json_integer(row->layers));
	(void)json_object_set_new(object, "age_ms", json_amount(row->age_ms));
	(void)json_object_set_new(object, "in_use",
				  row->users == UINT32_MAX ? json_null() :
							     json_integer(row->users));
	return object;
}

/* ---- ls ---- */

/* Of its contents; all of it only where nothing is missing. */
static void local_print(const struct dsec_image_row *row, char ret[VALUE_TEXT_BYTES])
{
	const uint64_t all = row->segment_bytes, here = row->local_bytes;

	if (all == UINT64_MAX)
		(void)snprintf(ret, VALUE_TEXT_BYTES, "-"); /* fits */
	else if (here >= all)
		(void)snprintf(ret, VALUE_TEXT_BYTES, "all"); /* fits */
	else
		(void)snprintf(ret, VALUE_TEXT_BYTES, "%u%%",
			       (unsigned)(100.0 * (double)here / (double)all)); /* fits */
}

static void row_show(const void *state, bool name_alone)
{
	const struct dsec_image_row *row = state;
	struct dsec_bytes digest = row->digest;
	char text[VALUE_TEXT_BYTES];

	if (name_alone) {
		value_write(stdout, row->name);
		(void)putchar('\n'); /* told at the end, by main() */
		return;
	}
	table_cell(&columns[LS_NAME], row->name);
	if (digest.bytes > 19)
		digest.bytes = 19; /* enough to tell them apart */
	table_cell(&columns[LS_DIGEST], digest.bytes ? digest : (struct dsec_bytes){ "-", 1 });
	/* The file of an image of the store has no contents. */
	value_print_bytes(row->content_bytes == UINT64_MAX || row->content_bytes < row->bytes ?
				  row->bytes :
				  row->content_bytes,
			  text);
	table_text(&columns[LS_BYTES], text);
	if (row->files == UINT64_MAX)
		(void)snprintf(text, sizeof(text), "-"); /* fits */
	else
		value_print_count(row->files, text);
	table_text(&columns[LS_FILES], text);
	local_print(row, text);
	table_text(&columns[LS_LOCAL], text);
	value_print_ms(row->age_ms, text);
	table_text(&columns[LS_AGE], text);
	if (row->users == UINT32_MAX)
		(void)snprintf(text, sizeof(text), "-"); /* fits */
	else
		value_print_count(row->users, text);
	table_text(&columns[LS_USERS], text);
	table_end();
}

static void row_json(const void *state)
{
	auto_json json_t *json = image_row_json(state);

	(void)json_line(stdout, json); /* told at the end, by main() */
}

static const struct session_rows telling = { row_json, row_show };

static int64_t image_ask(struct session *session, uint32_t verb, const char *name)
{
	struct dsec_call call = session_call(session);
	struct dsec_image_opts opts = { .size = sizeof(opts), .verb = verb, .name = name };

	return dsec_image(session->d, &call, &opts);
}

static int image_list(struct session *session)
{
	const struct options *options = session->options;

	if (!options->json && !options->quiet)
		table_head(options, columns);
	return session_tell_rows(session, image_ask(session, DSEC_IMAGE_LIST, NULL), "image ls",
				 &telling) < 0 ?
		       EXIT_TROUBLE :
		       0;
}

/* ---- inspect ---- */

struct inspection {
	char *record;
	size_t bytes;
	json_t *json;
};

static void record_take(void *state, const struct dsec_event *event)
{
	struct inspection *inspection = state;

	if (event->kind == DSEC_EV_ROW && event->body)
		inspection->json = image_row_json(event->body);
	if (event->kind != DSEC_EV_DATA || !event->bytes)
		return;
	char *grown = realloc(inspection->record, inspection->bytes + event->bytes);

	if (!grown)
		return; /* what is missing is no JSON, which is told */
	memcpy(grown + inspection->bytes, event->data, event->bytes);
	inspection->record = grown;
	inspection->bytes += event->bytes;
}

static int image_inspect(struct session *session, const char *name)
{
	struct inspection inspection = { 0 };
	int r = session_events(session, image_ask(session, DSEC_IMAGE_INSPECT, name),
			       "image inspect", record_take, &inspection);
	auto_json json_t *json = inspection.json;
	auto_json json_t *record =
		inspection.bytes ? json_loadb(inspection.record, inspection.bytes, 0, NULL) : NULL;

	free(inspection.record);
	if (r < 0)
		return EXIT_TROUBLE;
	if (!json || (inspection.bytes && !record))
		return session_fail_error(session, -EPROTO, "record", "the engine's answer is cut");
	if (record)
		(void)json_object_update(json, record); /* fails on memory alone */
	session_tell(session, json);
	if (!session->options->json)
		(void)json_dumpf(json, stdout, JSON_INDENT(2));
	if (!session->options->json)
		(void)putchar('\n'); /* told at the end, by main() */
	return 0;
}

/* ---- rm ---- */

static int images_remove(struct session *session, const struct subverb *sub, char **names,
			 int count)
{
	int status = 0;

	(void)sub;
	for (int at = 0; at < count; at++)
		if (session_events(session, image_ask(session, DSEC_IMAGE_REMOVE, names[at]),
				   names[at], NULL, NULL) < 0)
			status = EXIT_TROUBLE;
	return status ? status : session_done(session);
}

/* ---- the verb ---- */

static int list_run(struct session *session, const struct subverb *sub, char **arguments, int count)
{
	(void)sub;
	(void)arguments;
	(void)count;
	return image_list(session);
}

static int inspect_run(struct session *session, const struct subverb *sub, char **arguments,
		       int count)
{
	(void)sub;
	(void)count;
	return image_inspect(session, arguments[0]);
}

static int import_run(struct session *session, const struct subverb *sub, char **arguments,
		      int count)
{
	(void)sub;
	(void)count;
	return image_import(session, arguments[0]);
}

/* NAME, then texts; or texts, then NAME. */
static int job_ask(struct session *session, const struct subverb *sub, const char *name,
		   char **texts, int count)
{
	const struct options *options = session->options;
	struct dsec_image_opts opts = { .size = sizeof(opts), .verb = sub->code, .name = name };
	struct dsec_bytes layers[PARTS_MAX];
	char what[32];

	if (count > PARTS_MAX)
		return session_refuse(session, "image %s: at most %d", sub->name, PARTS_MAX);
	for (int at = 0; at < count; at++)
		layers[at] = (struct dsec_bytes){ texts[at], strlen(texts[at]) };
	opts.layers = layers;
	opts.layer_count = (uint32_t)count;
	opts.flags = (options->dry_run ? DSEC_IMAGE_DRY_RUN : 0) |
		     (options->zstd ? DSEC_IMAGE_ZSTD : 0) | (options->lazy ? DSEC_IMAGE_LAZY : 0);
	(void)snprintf(what, sizeof(what), "image %s", sub->name); /* fits */
	return image_job(session, &opts, what);
}

/* compose NAME PART..., push NAME TARGET, gc, verify [NAME], hotset [NAME] */
static int named_run(struct session *session, const struct subverb *sub, char **arguments,
		     int count)
{
	return job_ask(session, sub, count ? arguments[0] : NULL, arguments + 1,
		       count ? count - 1 : 0);
}

static int pull_run(struct session *session, const struct subverb *sub, char **arguments, int count)
{
	const char *source = arguments[0];

	if (count < 2 && (!strncmp(source, "oci:", 4) || strstr(source, "://")))
		return session_refuse(session, "image pull %s wants a NAME", source);
	return job_ask(session, sub, count < 2 ? source : arguments[1], arguments, 1);
}

static int pack_run(struct session *session, const struct subverb *sub, char **arguments, int count)
{
	struct dsec_id sandbox;

	(void)sub;
	(void)count;
	if (select_one(session, arguments[0], &sandbox) < 0)
		return EXIT_TROUBLE;
	return image_pack(session, sandbox, session->options->name);
}

static int build_run(struct session *session, const struct subverb *sub, char **arguments,
		     int count)
{
	(void)sub;
	(void)count;
	return image_build(session, arguments[0]);
}

static const struct subverb subverbs[] = {
	{ "import", "one SOURCE", 1, 1, import_run, DSEC_IMAGE_IMPORT },
	{ "ls", "nothing more", 0, 0, list_run, DSEC_IMAGE_LIST },
	{ "inspect", "one NAME", 1, 1, inspect_run, DSEC_IMAGE_INSPECT },
	{ "rm", "names", 1, INT32_MAX, images_remove, DSEC_IMAGE_REMOVE },
	{ "compose", "a NAME and 1 to 128 PARTs, the lowest first", 2, 1 + PARTS_MAX, named_run,
	  DSEC_IMAGE_COMPOSE },
	{ "gc", "nothing more", 0, 0, named_run, DSEC_IMAGE_GC },
	{ "verify", "at most one NAME", 0, 1, named_run, DSEC_IMAGE_VERIFY },
	{ "push", "a NAME and a TARGET", 2, 2, named_run, DSEC_IMAGE_PUSH },
	{ "pull", "a SOURCE and a NAME, or a NAME of the engine's remote", 1, 2, pull_run,
	  DSEC_IMAGE_PULL },
	{ "pack", "one sandbox's ID", 1, 1, pack_run, DSEC_IMAGE_PACK },
	{ "build", "a NAME", 1, 1, build_run, BUILD },
	{ "hotset", "at most one NAME", 0, 1, named_run, DSEC_IMAGE_HOTSET },
};

static int refuse(struct session *session, const struct subverb *sub)
{
	const struct options *options = session->options;
	const bool import = sub->code == DSEC_IMAGE_IMPORT, pack = sub->code == DSEC_IMAGE_PACK;
	const bool build = sub->code == BUILD;

	if ((import || pack) != (options->name != NULL))
		return session_refuse(session,
				      import || pack ? "image %s wants --name NAME" :
						       "--name does not belong to image %s",
				      sub->name);
	if (!pack && !build &&
	    (options->wipe || options->scan_file || options->scans.count || options->flatten))
		return session_refuse(session, "--wipe, --scan, --scan-file and --flatten are of "
					       "image pack and build");
	if (options->kill && !pack)
		return session_refuse(session, "--kill is of image pack");
	if (options->layer && options->flatten)
		return session_refuse(session, "--layer leaves out what --flatten takes in");
	if (build && (!options->image || !options->command_count))
		return session_refuse(session, "image build wants --image BASE, and -- PROGRAM");
	if (!build && (options->image || options->copies.count || options->env.count ||
		       options->policy || options->network))
		return session_refuse(session, "image %s makes no sandbox", sub->name);
	if ((options->layer && !import && !pack) ||
	    (options->dry_run && sub->code != DSEC_IMAGE_GC) ||
	    (options->zstd && sub->code != DSEC_IMAGE_PUSH) ||
	    (options->lazy && sub->code != DSEC_IMAGE_PULL && sub->code != DSEC_IMAGE_VERIFY))
		return session_refuse(
			session,
			"image %s: --layer is of import and pack, --dry-run of gc, --zstd of "
			"push, --lazy of pull and verify",
			sub->name);
	return build ? copies_check(session) : 0;
}

int verb_image(const struct options *options)
{
	static const struct subverbs all = { "image", subverbs,
					     sizeof(subverbs) / sizeof(subverbs[0]), refuse };

	return subverb_run(options, &all);
}
