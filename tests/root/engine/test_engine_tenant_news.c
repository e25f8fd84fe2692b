/*
 * What happens to a tenant's sandboxes, and its functions: no news and no names of others.
 */
#include <stdio.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/tenant_client.h"

static uint32_t news_count(struct dsec *d, const struct dsec_subscribe_opts *opts)
{
	int64_t ticket = dsec_subscribe(d, NULL, opts);
	struct dsec_event *event;
	bool is_last = !expect(ticket >= 0);
	uint32_t count = 0;

	while (!is_last && expect(dsec_wait(d, ticket, -1, &event) == 0)) {
		is_last = event->flags & DSEC_LAST;
		count += event->kind == DSEC_EV_STATE;
		dsec_event_free(event);
	}
	return count;
}

static struct dsec_id subject_of(struct dsec *d, int64_t ticket)
{
	struct dsec_id id = { 0 };
	struct dsec_event *event;

	if (!expect(ticket >= 0) || !expect(dsec_wait(d, ticket, -1, &event) == 0))
		return id;
	expect(event->status.code == DSEC_OK && event->flags & DSEC_LAST);
	id = event->subject;
	dsec_event_free(event);
	return id;
}

/* Events and functions: what happens to another's is no news, and its functions are no names. */
static void events_and_functions_are_a_tenants_own(struct engine *e)
{
	struct dsec *ours = way_open(e, (struct way){ .door = "blue" });
	struct dsec *theirs = way_open(e, (struct way){ .door = "green" }), *d;
	const struct dsec_subscribe_opts so_far = { .size = sizeof so_far,
						    .flags = DSEC_SUBSCRIBE_SO_FAR,
						    .from_seq = 1 };
	const struct dsec_bytes argv = { "/bin/true", 9 }, input = { "", 0 };
	struct dsec_function_opts function = { .size = sizeof function,
					       .verb = DSEC_FUNCTION_REGISTER,
					       .name = "judge",
					       .image = "test",
					       .argv = &argv,
					       .argc = 1 };
	uint32_t before = news_count(theirs, &so_far), mine = news_count(ours, &so_far), all;
	struct dsec_id ids[2];

	d = way_open(e, (struct way){ .acts_for = "*" });
	all = news_count(d, &so_far);
	sandbox_end(ours, sandbox_make(ours));
	expect(until(5000, news_count(ours, &so_far) >= mine + 4));
	expect(news_count(theirs, &so_far) == before);
	expect(until(5000, news_count(d, &so_far) >= all + 4));
	for (int i = 0; i < 2; i++)
		ids[i] = subject_of(i ? theirs : ours,
				    dsec_function(i ? theirs : ours, NULL, &function));
	expect(memcmp(&ids[0], &ids[1], sizeof *ids) != 0);
	expect(answer_wait(theirs, dsec_invoke(theirs, NULL, ids[0], &input, 1)).status.code ==
	       DSEC_ABSENT);
	function =
		(struct dsec_function_opts){ .size = sizeof function, .verb = DSEC_FUNCTION_LIST };
	expect(answer_wait(theirs, dsec_function(theirs, NULL, &function)).rows == 1);
	function.verb = DSEC_FUNCTION_REMOVE;
	function.id = ids[0];
	expect(answer_wait(theirs, dsec_function(theirs, NULL, &function)).status.code ==
	       DSEC_ABSENT);
	expect(answer_wait(ours, dsec_function(ours, NULL, &function)).status.code == DSEC_OK);
	function.id = ids[1];
	expect(answer_wait(theirs, dsec_function(theirs, NULL, &function)).status.code == DSEC_OK);
	dsec_close(d);
	dsec_close(ours);
	dsec_close(theirs);
}

static const struct claim claims[] = { CLAIM(events_and_functions_are_a_tenants_own) };

int main(int argc, char **argv)
{
	char folder[64], doors[2][128];
	const char *const nobody[] = { NULL };
	const char *const arguments[] = { "--shards", "2",	"--tenant", "name=default,gateway",
					  "--tenant", doors[0], "--tenant", doors[1],
					  NULL };
	const struct suite suites[] = {
		SUITE("tenant_news", claims, .arguments = arguments, .tenant = "*"),
	};
	int r;

	if (!tenant_folder_make(folder))
		return 1;
	(void)snprintf(doors[0], sizeof doors[0], "name=blue,socket=%s/blue.sock", folder);
	(void)snprintf(doors[1], sizeof doors[1], "name=green,socket=%s/green.sock", folder);
	r = suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
	return tenant_folder_remove(nobody) ? r : 1;
}
