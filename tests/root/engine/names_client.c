/*
 * What tests of egress by name have in common. Called by test_engine_names.c and
 * forwarder_claims.c.
 */
#include "tests/root/engine/names_client.h"

#include <stdio.h>
#include <string.h>

#include "dsec/policies.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

bool policy_put(struct dsec *d, const char *document)
{
	const struct dsec_policy_opts opts = { .size = sizeof opts,
					       .verb = DSEC_POLICY_LOAD,
					       .document = { document, strlen(document) } };

	return expect(ticket_end(d, dsec_policy(d, NULL, &opts)).code == DSEC_OK);
}

struct dsec_id policed_make(struct dsec *d, const char *policy, uint32_t network)
{
	struct dsec_create_opts opts = create_opts(1);

	opts.network = network;
	opts.policy = policy;
	opts.flags &= ~(uint32_t)DSEC_CREATE_ALLOW_DEGRADED;
	return one_make(d, &opts);
}

bool says(struct dsec *d, struct dsec_id id, const char *script, const char *expected)
{
	auto_ran struct ran ran = shell_run(d, id, script);

	if (ran_exited(&ran, 0) && ran_wrote(&ran, 1, expected, strlen(expected)))
		return true;
	note("\"%s\" does not say \"%s\"", script, expected);
	ran_note(&ran);
	return false;
}

struct told told_of(struct dsec *d, struct dsec_id id)
{
	const struct dsec_select select = { .size = sizeof select, .count = 1, .ids = &id };
	const struct dsec_subscribe_opts opts = { .size = sizeof opts,
						  .flags = DSEC_SUBSCRIBE_SO_FAR,
						  .select = &select,
						  .from_seq = 1 };
	int64_t ticket = dsec_subscribe(d, NULL, &opts);
	struct told told = { .anomaly = UINT32_MAX };
	struct dsec_event *event;
	bool last = false;

	while (!last && expect(ticket >= 0 && dsec_wait(d, ticket, 20000, &event) == 0)) {
		const struct dsec_news *news = event->kind == DSEC_EV_STATE ? event->body : NULL;

		last = event->flags & DSEC_LAST;
		if (news && news->topic == DSEC_TOPIC_ANOMALY) {
			told.anomaly = news->anomaly;
			(void)snprintf(told.where, sizeof told.where, "%.*s", (int)news->text.bytes,
				       (const char *)news->text.data);
		}
		if (news && news->topic == DSEC_TOPIC_VIOLATION) {
			told.hook = news->hook;
			told.rule = news->rule;
			told.count = news->count;
			(void)snprintf(told.text, sizeof told.text, "%.*s", (int)news->text.bytes,
				       (const char *)news->text.data);
		}
		dsec_event_free(event);
		if (ticket < 0)
			break;
	}
	return told;
}
