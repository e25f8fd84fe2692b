/* `dsec rm`: sandboxes go. Called by main.c. */
#include <inttypes.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/select.h"
#include "sdk/cli/verbs.h"

static void row_count(void *state, const struct dsec_event *event)
{
	uint64_t *count = state;

	*count += event->kind == DSEC_EV_ROW;
}

/* How many there are of what is selected by labels alone. */
static int selected_count(struct session *session, const struct dsec_select *select,
			  uint64_t *ret_count)
{
	struct dsec_list_opts opts = { .size = sizeof(opts),
				       .labels = select->labels,
				       .label_count = select->label_count };
	struct dsec_call call = session_call(session);

	*ret_count = 0;
	if (select->count)
		return 0;
	return session_events(session, dsec_list(session->d, &call, &opts), "rm", row_count,
			      ret_count);
}

static int remove_all(struct session *session)
{
	auto_free struct dsec_id *ids = NULL;
	auto_free struct dsec_label *labels = NULL;
	auto_json json_t *json = NULL;
	struct dsec_call call = session_call(session);
	struct dsec_select select;
	uint64_t count;

	if (select_all(session, &select, &ids, &labels) < 0)
		return EXIT_TROUBLE;
	if (selected_count(session, &select, &count) < 0)
		return EXIT_TROUBLE;
	if (session_events(session, dsec_destroy(session->d, &call, &select), "rm", NULL, NULL) < 0)
		return EXIT_TROUBLE;
	json = json_status(&session->failure); /* none */
	if (!select.count) {
		/* It fails on memory alone, and json_line() shows what there is. */
		(void)json_object_set_new(json, "removed", json_amount(count));
		if (!session->options->json && !session->options->quiet)
			(void)printf("%" PRIu64 " removed\n", count);
	}
	session_tell(session, json);
	return 0;
}

int verb_rm(const struct options *options)
{
	struct session session = { .options = options };

	if (session_open(&session, false) < 0)
		return session_end(&session, EXIT_TROUBLE);
	return session_end(&session, remove_all(&session));
}
