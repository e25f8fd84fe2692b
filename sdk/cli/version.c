/* `dsec version`: of this program, and of the engine if one listens. Called by main.c. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/session.h"
#include "sdk/cli/settings.h"
#include "sdk/cli/values.h"
#include "sdk/cli/verbs.h"

static json_t *caps_json(const struct dsec_caps *caps)
{
	json_t *object = json_object();

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_object_set_new(object, "version", json_string(caps->version));
	(void)json_object_set_new(object, "kernel", json_string(caps->kernel));
	(void)json_object_set_new(object, "shards", json_integer(caps->shards));
	(void)json_object_set_new(object, "features", json_amount(caps->features));
	(void)json_object_set_new(object, "sandboxes_max", json_integer(caps->sandboxes_max));
	(void)json_object_set_new(object, "execs_max", json_integer(caps->execs_max));
	(void)json_object_set_new(object, "requests_max", json_integer(caps->requests_max));
	(void)json_object_set_new(object, "clients_max", json_integer(caps->clients_max));
	(void)json_object_set_new(object, "tenant", json_string(caps->tenant));
	(void)json_object_set_new(object, "unenforced", json_amount(caps->unenforced));
	return object;
}

static void caps_show(const struct dsec_caps *caps)
{
	char limits[LIMITS_TEXT_BYTES];

	/* Whether stdout took all is told at the end, by main(). */
	(void)fputs("engine ", stdout);
	value_write(stdout, (struct dsec_bytes){ caps->version, strlen(caps->version) });
	(void)fputs(" on Linux ", stdout);
	value_write(stdout, (struct dsec_bytes){ caps->kernel, strlen(caps->kernel) });
	(void)printf(", %u shards, at most %u sandboxes\n", caps->shards, caps->sandboxes_max);
	limits_text(caps->unenforced, limits);
	if (caps->unenforced)
		(void)printf("not enforced on that host:%s\n", limits);
}

int verb_version(const struct options *options)
{
	auto_json json_t *json = json_object();
	struct dsec_open_opts opts = { .size = sizeof(opts), .address = options->address };
	const struct dsec_caps *caps = NULL;
	struct session session = { .options = options };
	bool named;
	int r;

	r = session_connect(&session, &opts, &named);
	if (r == -EKEYREJECTED)
		return session_end(&session, EXIT_TROUBLE);
	if (r == 0)
		r = dsec_capabilities(session.d, &caps);
	if (options->json) {
		(void)json_object_set_new(json, "dsec", json_string(DSEC_VERSION)); /* as above */
		(void)json_object_set_new(json, "engine", r < 0 ? json_null() : caps_json(caps));
		(void)json_line(stdout, json);
	} else {
		(void)printf("dsec %s\n", DSEC_VERSION);
		if (r == 0)
			caps_show(caps);
		else
			report_note(options, "%s", dsec_error(session.d, r));
	}
	dsec_close(session.d);
	/* Nobody listening is no failure, unless somebody was expected. */
	return r < 0 && (options->address || options->tenant || options->token_file) ?
		       EXIT_TROUBLE :
		       0;
}
