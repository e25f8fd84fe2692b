/* `dsec fetched`: what a package proxy saw sandboxes fetch. Called by main.c. */
#include <stdio.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/select.h"
#include "sdk/cli/verbs.h"

struct telling {
	const struct options *options;
	json_t *own;
};

/* Each one whose own it is. */
static void own_tell(void *state, const struct dsec_event *event)
{
	const struct telling *telling = state;
	char text[27];

	if (event->kind != DSEC_EV_ROW)
		return;
	if (telling->options->json) {
		(void)json_array_append_new(telling->own, json_id(event->subject)); /* or none */
		return;
	}
	dsec_id_print(event->subject, text);
	(void)printf(telling->options->quiet ? "%s\n" : "%s  its own\n", text);
}

static int fetched(struct session *session)
{
	const struct options *o = session->options;
	const struct dsec_fetched_opts opts = { .size = sizeof(opts), .path = o->path };
	struct dsec_call call = session_call(session);
	struct telling telling = { .options = o, .own = json_array() };
	auto_free struct dsec_id *ids = NULL;
	auto_free struct dsec_label *labels = NULL;
	auto_json json_t *json = NULL;
	struct dsec_select select;
	int r = -1;

	if (select_all(session, &select, &ids, &labels) == 0) {
		r = session_events(session, dsec_fetched(session->d, &call, &select, &opts),
				   "fetched", own_tell, &telling);
		json = json_status(&session->failure);
		(void)json_object_set(json, "own", telling.own); /* as in created_json() */
		session_tell(session, json);
	}
	json_decref(telling.own);
	return r < 0 ? EXIT_TROUBLE : 0;
}

int verb_fetched(const struct options *options)
{
	struct session session = { .options = options };
	int status = EXIT_TROUBLE;

	if (!options->path || !*options->path)
		status = session_refuse(&session, "fetched: what? give --path");
	else if (session_open(&session, false) == 0)
		status = fetched(&session);
	return session_end(&session, status);
}
