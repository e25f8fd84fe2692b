/*
 * Sandboxes with a way out, of egress_client.h: made under policies, and what they reach. Called by
 * the claims of egress. Must hold: what is not reached costs one wait, however many places it is.
 */
#include "tests/root/engine/egress_client.h"

#include <stdio.h>
#include <string.h>

#include "dsec/policies.h"
#include "tests/root/engine/egress_world.h"

bool answers(struct dsec *d, struct dsec_id id, const char *address, int port, const char *expected)
{
	char script[160];

	(void)snprintf(script, sizeof script, "nc -w 2 %s %d </dev/null 2>/dev/null; :", address,
		       port);
	auto_ran struct ran ran = shell_run(d, id, script);

	return ran_wrote(&ran, 1, expected, strlen(expected));
}

bool reads(struct dsec *d, struct dsec_id id, const char *address, int port, const char *expected)
{
	bool same = answers(d, id, address, port, expected);

	if (!same)
		note("%s port %d: not \"%s\"", address, port, expected);
	return same;
}

bool reads_none(struct dsec *d, struct dsec_id id, const char *addresses)
{
	char script[768];

	(void)snprintf(script, sizeof script,
		       "for a in %s; do (nc -w 2 $a 80 </dev/null 2>/dev/null && echo $a) & done; "
		       "wait",
		       addresses);
	auto_ran struct ran ran = shell_run(d, id, script);

	if (ran_exited(&ran, 0) && ran_wrote(&ran, 1, "", 0))
		return true;
	note("of %s some are reached", addresses);
	ran_note(&ran);
	return false;
}

bool policy_put(struct dsec *d, const char *document)
{
	const struct dsec_policy_opts opts = { .size = sizeof opts,
					       .verb = DSEC_POLICY_LOAD,
					       .document = { document, strlen(document) } };

	return expect(ticket_end(d, dsec_policy(d, NULL, &opts)).code == DSEC_OK);
}

static const char out_document[] = "name: out\nphases: {verify: in}\n"
				   "network:\n  mode: shared\n  egress:\n"
				   "    allow: [203.0.113.0/24 tcp/80, 169.254.0.0/16,\n"
				   "      '2001:db8:2::/64 tcp/80 udp/7', 'fd00::/8 tcp/80']\n"
				   "    deny: [" OTHER ", '" OTHER6 "']\n";

struct dsec_create_opts out_opts(void)
{
	struct dsec_create_opts opts = create_opts(1);

	opts.network = DSEC_NETWORK_PRIVATE;
	opts.policy = "out";
	opts.flags &= ~(uint32_t)DSEC_CREATE_ALLOW_DEGRADED;
	return opts;
}

struct dsec_id out_make(struct dsec *d, uint32_t network)
{
	struct dsec_create_opts opts = out_opts();

	opts.network = network;
	return one_make(d, &opts);
}

bool policies_put(struct engine *e)
{
	return policy_put(e->d, "name: in\nnetwork: {mode: shared}\n") &&
	       policy_put(e->d, out_document);
}

struct dsec_inspected inspected_now(struct dsec *d, struct dsec_id id)
{
	int64_t ticket = dsec_inspect(d, NULL, id);
	struct dsec_inspected seen = { 0 };
	struct dsec_event *event;
	bool last = false;

	while (!last && expect(dsec_wait(d, ticket, -1, &event) == 0)) {
		last = event->flags & DSEC_LAST;
		if (expect(event->body))
			seen = *(const struct dsec_inspected *)event->body;
		dsec_event_free(event);
	}
	return seen;
}
