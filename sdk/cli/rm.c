/* `dsec rm`: sandboxes go. Called by main.c. */
#include <stdio.h>
#include <stdlib.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/verbs.h"
#include "sdk/cli/session.h"

static int remove_all(struct session *session)
{
	auto_free struct dsec_id *ids = NULL;
	auto_free struct dsec_label *labels = NULL;
	struct dsec_call call = session_call(session);
	struct dsec_select select;
	struct dsec_event *event;
	bool last = false;
	int status = 0;
	int64_t ticket;

	if (session_select(session, &select, &ids, &labels) < 0)
		return EXIT_TROUBLE;
	ticket = dsec_destroy(session->d, &call, &select);
	while (!last) {
		if (session_next(session, ticket, &event) < 0)
			return EXIT_TROUBLE;
		last = event->flags & DSEC_LAST;
		if (event->status.code != DSEC_OK) {
			report_status(session, "rm", &event->status);
			status = EXIT_TROUBLE;
		}
		if (last && session->options->json) {
			auto_json json_t *json = json_status(&event->status);

			(void)json_line(stdout, json); /* told at the end, by main() */
		}
		dsec_event_free(event);
	}
	return status;
}

int verb_rm(const struct options *options)
{
	struct session session;
	int status;

	if (session_open(&session, options, false) < 0)
		return EXIT_TROUBLE;
	status = remove_all(&session);
	session_close(&session);
	return status;
}
