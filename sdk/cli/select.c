/* Finding the sandboxes that a command line names. Called by the verbs. Stateless. */
#include "sdk/cli/select.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/cli/cleanup.h"

enum { ID_CHARACTERS = 26, PART_CHARACTERS_MIN = 4, CANDIDATES_MAX = 8 };

struct search {
	const char *text; /* beginning or end of an id; NULL: every row */
	struct dsec_id found[CANDIDATES_MAX];
	uint32_t count;
};

bool select_has_labels(const struct options *options)
{
	return options->labels.count || options->job;
}

static struct dsec_label label_of(const char *key, const char *value)
{
	return (struct dsec_label){ { key, strlen(key) }, { value, strlen(value) } };
}

struct dsec_label *select_labels(const struct options *options, uint32_t *ret_count)
{
	struct dsec_label *labels = calloc(options->labels.count + 2ul, sizeof(*labels));
	uint32_t count = 0;

	if (!labels)
		return NULL;
	for (; count < options->labels.count; count++) {
		const char *text = options->labels.items[count], *equal = strchr(text, '=');

		labels[count].key = (struct dsec_bytes){ text, (size_t)(equal - text) };
		labels[count].value = (struct dsec_bytes){ equal + 1, strlen(equal + 1) };
	}
	if (options->name)
		labels[count++] = label_of("name", options->name);
	if (options->job)
		labels[count++] = label_of("job", options->job);
	*ret_count = count;
	return labels;
}

static bool id_matches(struct dsec_id id, const char *text)
{
	size_t bytes = strlen(text);
	char name[ID_CHARACTERS + 1];

	dsec_id_print(id, name);
	return bytes <= ID_CHARACTERS &&
	       (!strncasecmp(name, text, bytes) || !strcasecmp(name + ID_CHARACTERS - bytes, text));
}

static void row_search(void *state, const struct dsec_event *event)
{
	const struct dsec_row *row = event->body;
	struct search *search = state;

	if (event->kind != DSEC_EV_ROW || !row)
		return;
	if (search->text && !id_matches(row->id, search->text))
		return;
	if (search->count < CANDIDATES_MAX)
		search->found[search->count] = row->id;
	search->count++;
}

/* Several: which, so that nobody has to look for them. */
static int part_refuse(struct session *session, const char *text, const struct search *search)
{
	struct dsec_status status = {
		.code = search->count ? DSEC_CONFLICT : DSEC_ABSENT,
		.blame = DSEC_BLAME_CALLER,
	};
	char id[ID_CHARACTERS + 1];

	/* Cut is fine. */
	if (search->count)
		(void)snprintf(status.detail, sizeof(status.detail), "%.24s: %u sandboxes", text,
			       search->count);
	else
		(void)snprintf(status.detail, sizeof(status.detail), "%.24s: no such sandbox",
			       text);
	(void)session_fail(session, "id", &status);
	for (uint32_t at = 0; at < search->count && at < CANDIDATES_MAX; at++) {
		dsec_id_print(search->found[at], id);
		(void)fprintf(stderr, "dsec: one of them: %s\n", id);
	}
	return search->count ? -ENOTUNIQ : -ENOENT;
}

int select_one(struct session *session, const char *text, struct dsec_id *ret)
{
	static const char by_name[] = "name:";
	struct dsec_label label;
	struct dsec_list_opts opts = { .size = sizeof(opts) };
	struct search search = { .text = text };
	struct dsec_call call = session_call(session);
	const char *given = text;
	int r;

	if (dsec_id_parse(text, ret) == 0)
		return 0;
	if (!strncmp(text, by_name, strlen(by_name))) {
		label = label_of("name", text + strlen(by_name));
		opts.labels = &label;
		opts.label_count = 1;
		search.text = NULL;
	} else if (strlen(text) < PART_CHARACTERS_MIN) {
		(void)session_refuse(session,
				     "'%s' is too short for an id: give at least %d characters of "
				     "its beginning or end, or name:NAME",
				     text, PART_CHARACTERS_MIN);
		return -EINVAL;
	}
	r = session_events(session, dsec_list(session->d, &call, &opts), "list", row_search,
			   &search);
	if (r < 0)
		return r;
	if (search.count != 1)
		return part_refuse(session, given, &search);
	*ret = search.found[0];
	return 0;
}

int select_all(struct session *session, struct dsec_select *select, struct dsec_id **ret_ids,
	       struct dsec_label **ret_labels)
{
	const struct options *options = session->options;
	const uint32_t named = (uint32_t)options->argument_count;
	const uint32_t count = named + options->sandboxes.count;
	auto_free struct dsec_id *ids = calloc(count + 1, sizeof(*ids));
	uint32_t label_count;
	int r;

	if (!count && !select_has_labels(options)) {
		(void)session_refuse(session, "which? give ids, name:NAME, --job or --label");
		return -EINVAL;
	}
	*ret_labels = select_labels(options, &label_count);
	if (!ids || !*ret_labels) {
		(void)session_fail_error(session, -ENOMEM, "select", strerror(ENOMEM));
		return -ENOMEM;
	}
	for (uint32_t at = 0; at < count; at++) {
		r = select_one(session,
			       at < named ? options->arguments[at] :
					    options->sandboxes.items[at - named],
			       &ids[at]);
		if (r < 0)
			return r;
	}
	*ret_ids = ids;
	*select = (struct dsec_select){
		.size = sizeof(*select),
		.count = count,
		.ids = count ? ids : NULL,
		.labels = label_count ? *ret_labels : NULL,
		.label_count = label_count,
	};
	ids = NULL;
	return 0;
}
