/* `dsec ls`, `dsec cat` and `dsec file`: what there is in a sandbox, by paths. Called by main.c. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/remote.h"
#include "sdk/cli/subverb.h"
#include "sdk/cli/table.h"
#include "sdk/cli/values.h"
#include "sdk/cli/verbs.h"

enum { LS_MODE, LS_OWNER, LS_BYTES, LS_TIME, LS_NAME };

static const struct column columns[] = {
	[LS_MODE] = { "MODE", 10 }, [LS_OWNER] = { "OWNER", 11 }, [LS_BYTES] = { "BYTES", 13 },
	[LS_TIME] = { "TIME", 19 }, [LS_NAME] = { "NAME", 0 },	  { NULL, 0 },
};

/* ---- rows ---- */

static const char *type_name(uint32_t type)
{
	static const char *const names[] = { "other", "file",	"folder",    "link",
					     "fifo",  "socket", "character", "block" };

	return names[type < sizeof(names) / sizeof(names[0]) ? type : 0];
}

static void row_json(const void *state)
{
	const struct dsec_file_row *row = state;
	auto_json json_t *object = json_object();

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_add_bytes(object, "name", row->name);
	(void)json_object_set_new(object, "type", json_string(type_name(row->type)));
	(void)json_object_set_new(object, "mode", json_integer(row->mode));
	(void)json_object_set_new(object, "uid", json_integer(row->uid));
	(void)json_object_set_new(object, "gid", json_integer(row->gid));
	(void)json_object_set_new(object, "links", json_amount(row->links));
	(void)json_object_set_new(object, "bytes", json_amount(row->bytes));
	(void)json_object_set_new(object, "disk_bytes", json_amount(row->disk_bytes));
	(void)json_object_set_new(object, "mtime_ns", json_integer(row->mtime_ns));
	if (row->type == DSEC_FILE_TYPE_LINK)
		(void)json_add_bytes(object, "target", row->target);
	(void)json_line(stdout, object); /* told at the end, by main() */
}

static void mode_write(const struct dsec_file_row *row, char ret[static 11])
{
	static const char types[] = "?-dlpscb", bits[] = "rwxrwxrwx";

	ret[0] = types[row->type < sizeof(types) - 1 ? row->type : 0];
	for (int at = 0; at < 9; at++)
		ret[at + 1] = row->mode >> (8 - at) & 1 ? bits[at] : '-';
	if (row->mode & 04000)
		ret[3] = ret[3] == 'x' ? 's' : 'S';
	if (row->mode & 02000)
		ret[6] = ret[6] == 'x' ? 's' : 'S';
	if (row->mode & 01000)
		ret[9] = ret[9] == 'x' ? 't' : 'T';
	ret[10] = 0;
}

static void row_show(const void *state, bool name_alone)
{
	const struct dsec_file_row *row = state;
	static const struct column unpadded = { "", 0 };
	time_t seconds = (time_t)(row->mtime_ns / 1000000000);
	struct tm when = { 0 };
	char text[64];

	if (!name_alone) {
		mode_write(row, text);
		table_text(&columns[LS_MODE], text);
		(void)snprintf(text, sizeof(text), "%u:%u", row->uid, row->gid);
		table_text(&columns[LS_OWNER], text);
		(void)snprintf(text, sizeof(text), "%" PRIu64, row->bytes);
		table_text(&columns[LS_BYTES], text);
		(void)gmtime_r(&seconds, &when); /* a year that is none shows as 1900 */
		(void)strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &when);
		table_text(&columns[LS_TIME], text);
	}
	table_cell(&unpadded, row->name);
	if (!name_alone && row->type == DSEC_FILE_TYPE_LINK) {
		table_text(&unpadded, " -> ");
		table_cell(&unpadded, row->target);
	}
	table_end();
}

/* ---- ls ---- */

struct listing {
	const struct options *options;
	char *last; /* the name to go on after */
	size_t last_bytes;
	bool more, failed;
};

static void listing_see(void *state, const struct dsec_event *event)
{
	const struct dsec_file_result *result = event->body;
	const struct dsec_file_row *row = event->body;
	struct listing *listing = state;

	if (event->kind == DSEC_EV_DONE && result)
		listing->more = result->more;
	if (event->kind != DSEC_EV_ROW || !row)
		return;
	if (listing->options->json)
		row_json(row);
	else
		row_show(row, listing->options->quiet);
	free(listing->last);
	listing->last = malloc(row->name.bytes + 1);
	listing->failed |= !listing->last;
	listing->last_bytes = row->name.bytes;
	if (listing->last)
		memcpy(listing->last, row->name.data, row->name.bytes);
}

static int list(struct session *session, const struct remote *remote)
{
	struct dsec_file_opts opts = remote_opts(session, remote);
	struct dsec_call call = session_call(session);
	struct listing listing = { .options = session->options, .more = true };
	char what[REMOTE_WHAT_BYTES];
	int r = 0;

	(void)remote_what(remote, "ls", what);
	opts.verb = DSEC_FILE_LIST;
	if (!session->options->json && !session->options->quiet)
		table_head(session->options, columns);
	while (r == 0 && listing.more && !listing.failed) {
		listing.more = false;
		r = session_events(session, dsec_file(session->d, &call, remote->id, &opts), what,
				   listing_see, &listing);
		opts.to = (struct dsec_bytes){ listing.last, listing.last_bytes };
	}
	free(listing.last);
	if (listing.failed)
		return session_fail_error(session, -ENOMEM, "request", strerror(ENOMEM));
	return r < 0 ? EXIT_TROUBLE : 0;
}

static const struct session_rows telling = { row_json, row_show };

static int stat_show(struct session *session, const struct remote *remote, const char *verb)
{
	struct dsec_file_opts opts = remote_opts(session, remote);
	char what[REMOTE_WHAT_BYTES];
	struct dsec_call call = session_call(session);

	opts.verb = DSEC_FILE_STAT;
	opts.flags = DSEC_FILE_NO_FOLLOW;
	return session_tell_rows(session, dsec_file(session->d, &call, remote->id, &opts),
				 remote_what(remote, verb, what), &telling) < 0 ?
		       EXIT_TROUBLE :
		       0;
}

static int with_one(const struct options *options,
		    int (*run)(struct session *session, const struct remote *remote))
{
	struct session session = { .options = options };
	struct remote remote;
	int status;

	if (options->argument_count != 1)
		return session_end(&session, session_refuse(&session, "one ID:PATH is wanted"));
	if (session_open(&session, false) < 0)
		return session_end(&session, EXIT_TROUBLE);
	status = remote_find(&session, options->arguments[0], &remote);
	return session_end(&session, status ? status : run(&session, &remote));
}

/* A folder's names, or what a path is that is no folder. */
static int ls(struct session *session, const struct remote *remote)
{
	struct dsec_file_row row;
	int r = remote_stat(session, remote, &row);

	if (r == 0 && row.type == DSEC_FILE_TYPE_FOLDER)
		return list(session, remote);
	return r < 0 && r != -ENOENT ? EXIT_TROUBLE : stat_show(session, remote, "ls");
}

int verb_ls(const struct options *options)
{
	return with_one(options, ls);
}

/* ---- cat ---- */

static void data_write(void *state, const struct dsec_event *event)
{
	(void)state;
	if (event->kind == DSEC_EV_DATA)
		(void)fwrite(event->data, 1, event->bytes, stdout); /* told at the end, by main() */
}

static int cat(struct session *session, const struct remote *remote)
{
	struct dsec_file_opts opts = remote_opts(session, remote);
	struct dsec_call call = session_call(session);
	char what[REMOTE_WHAT_BYTES];

	if (session_refuse_json(session, "a file"))
		return EXIT_TROUBLE;
	return session_events(session, dsec_read(session->d, &call, remote->id, &opts),
			      remote_what(remote, "cat", what), data_write, NULL) < 0 ?
		       EXIT_TROUBLE :
		       0;
}

int verb_cat(const struct options *options)
{
	return with_one(options, cat);
}

/* ---- file ---- */

static void change_see(void *state, const struct dsec_event *event)
{
	static const struct {
		uint32_t bit;
		const char *name;
	} names[] = {
		{ DSEC_FILE_CHANGE_CREATED, "created" },
		{ DSEC_FILE_CHANGE_REMOVED, "removed" },
		{ DSEC_FILE_CHANGE_CONTENT, "content" },
		{ DSEC_FILE_CHANGE_CLOSED, "closed" },
		{ DSEC_FILE_CHANGE_ATTRIBUTES, "attributes" },
		{ DSEC_FILE_CHANGE_LOST, "lost" },
		{ DSEC_FILE_CHANGE_GONE, "gone" },
	};
	const struct dsec_file_row *row = event->body;
	const struct options *options = state;
	auto_json json_t *object = json_object();
	const char *what = "watching";

	if (event->kind != DSEC_EV_ROW || !row)
		return;
	for (size_t at = 0; at < sizeof(names) / sizeof(names[0]); at++)
		if (row->change & names[at].bit)
			what = names[at].name;
	/* These fail on memory alone, and what could not be written is told at the end. */
	(void)json_object_set_new(object, "change", json_string(what));
	(void)json_add_bytes(object, "name", row->name);
	if (options->json) {
		(void)json_line(stdout, object);
		return;
	}
	(void)printf("%-10s ", what);
	value_write(stdout, row->name);
	(void)putchar('\n');
	(void)fflush(stdout);
}

static int where_run(struct session *session, const struct subverb *sub, char **arguments,
		     int count)
{
	const struct options *options = session->options;
	struct dsec_call call = session_call(session);
	const char *to = count == 2 ? arguments[1] : NULL;
	void (*see)(void *state, const struct dsec_event *event);
	struct dsec_file_opts opts;
	struct remote remote, target;
	char what[REMOTE_WHAT_BYTES];
	int status = remote_find(session, arguments[0], &remote);

	if (status)
		return status;
	if (sub->code == DSEC_FILE_STAT)
		return stat_show(session, &remote, "stat");
	see = sub->code == DSEC_FILE_WATCH ? change_see : NULL;
	opts = remote_opts(session, &remote);
	opts.verb = sub->code;
	opts.flags = (options->parents ? DSEC_FILE_PARENTS : 0) |
		     (options->recursive ? DSEC_FILE_RECURSIVE : 0);
	if (to && remote_is(to)) {
		status = remote_find(session, to, &target);
		if (status)
			return status;
		if (target.id.hi != remote.id.hi || target.id.lo != remote.id.lo)
			return session_refuse(session, "mv: that is another sandbox; see cp");
		to = target.path;
	}
	if (to)
		opts.to = (struct dsec_bytes){ to, strlen(to) };
	if (session_events(session, dsec_file(session->d, &call, remote.id, &opts),
			   remote_what(&remote, sub->name, what), see, (void *)options) < 0)
		return EXIT_TROUBLE;
	return see ? 0 : session_done(session);
}

static const struct subverb subverbs[] = {
	{ "stat", "one ID:PATH", 1, 1, where_run, DSEC_FILE_STAT },
	{ "mkdir", "one ID:PATH", 1, 1, where_run, DSEC_FILE_MKDIR },
	{ "rm", "one ID:PATH", 1, 1, where_run, DSEC_FILE_REMOVE },
	{ "mv", "ID:PATH and PATH", 2, 2, where_run, DSEC_FILE_RENAME },
	{ "watch", "one ID:PATH", 1, 1, where_run, DSEC_FILE_WATCH },
};

static int refuse(struct session *session, const struct subverb *sub)
{
	if (session->options->parents && sub->code != DSEC_FILE_MKDIR)
		return session_refuse(session, "--parents belongs to file mkdir");
	if (session->options->recursive && sub->code != DSEC_FILE_REMOVE)
		return session_refuse(session, "--recursive belongs to file rm");
	return 0;
}

int verb_file(const struct options *options)
{
	static const struct subverbs all = { "file", subverbs,
					     sizeof(subverbs) / sizeof(subverbs[0]), refuse };

	return subverb_run(options, &all);
}
