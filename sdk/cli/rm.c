/* `dsec rm`: sandboxes go. Called by main.c. */
#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/select.h"
#include "sdk/cli/verbs.h"

static int remove_all(struct session *session)
{
	auto_free struct dsec_id *ids = NULL;
	auto_free struct dsec_label *labels = NULL;
	auto_json json_t *json = NULL;
	struct dsec_call call = session_call(session);
	struct dsec_select select;

	if (select_all(session, &select, &ids, &labels) < 0)
		return EXIT_TROUBLE;
	if (session_events(session, dsec_destroy(session->d, &call, &select), "rm", NULL, NULL) < 0)
		return EXIT_TROUBLE;
	json = json_status(&session->failure); /* none */
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
