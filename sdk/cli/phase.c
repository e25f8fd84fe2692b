/* `dsec phase`: moves a sandbox to another phase. Called by main.c. */
#include <inttypes.h>
#include <stdio.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/select.h"
#include "sdk/cli/settings.h"
#include "sdk/cli/values.h"
#include "sdk/cli/verbs.h"

struct telling {
	const struct options *options;
	struct dsec_id id;
};

static json_t *phased_json(const struct dsec_event *event, struct dsec_id id)
{
	const struct dsec_phased *phased = event->body;
	json_t *object = json_status(&event->status);

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_object_set_new(object, "id", json_id(id));
	if (!phased)
		return object;
	phase_add(object, phased->name, phased->version);
	(void)json_add_bytes(object, "policy", phased->policy_name);
	(void)json_object_set_new(object, "policy_version", json_integer(phased->policy));
	(void)json_object_set_new(object, "rules_unenforced",
				  json_integer(phased->rules_unenforced));
	(void)json_object_set_new(object, "killed", json_integer(phased->execs_killed));
	(void)json_object_set_new(object, "flows_cut", json_integer(phased->flows_cut));
	return object;
}

/* Whether stdout took it is told at the end, by main(). */
static void phased_tell(void *state, const struct dsec_event *event)
{
	const struct telling *telling = state;
	const struct dsec_phased *phased = event->body;
	auto_json json_t *json = NULL;

	if (telling->options->json) {
		json = phased_json(event, telling->id);
		(void)json_line(stdout, json);
		return;
	}
	if (event->status.code || !phased)
		return; /* its detail says where it is */
	if (telling->options->quiet) {
		(void)printf("%" PRIu64 "\n", phased->version);
		return;
	}
	value_write(stdout, phased->name);
	(void)printf("  version %" PRIu64 ", policy ", phased->version);
	value_write(stdout, phased->policy_name);
	(void)printf(", %u killed", phased->execs_killed);
	if (phased->rules_unenforced)
		(void)printf(", %u rules unenforced", phased->rules_unenforced);
	(void)fputc('\n', stdout);
}

static int phase_move(struct session *session)
{
	const struct options *o = session->options;
	const struct dsec_phase_opts opts = {
		.size = sizeof(opts),
		.flags = (o->kill_old ? DSEC_PHASE_KILL_OLD : 0) |
			 (o->cut_flows ? DSEC_PHASE_CUT_FLOWS : 0) |
			 (o->allow_degraded ? DSEC_PHASE_ALLOW_DEGRADED : 0),
		.name = o->arguments[1],
		.policy = o->policy,
		.version = o->policy_version,
	};
	struct dsec_call call = session_call(session);
	struct telling telling = { .options = o };

	if (select_one(session, o->arguments[0], &telling.id) < 0)
		return EXIT_TROUBLE;
	return session_events(session, dsec_phase(session->d, &call, telling.id, &opts), "phase",
			      phased_tell, &telling) < 0 ?
		       EXIT_TROUBLE :
		       0;
}

int verb_phase(const struct options *options)
{
	struct session session = { .options = options };
	int status = EXIT_TROUBLE;

	if (options->argument_count != 2)
		status = session_refuse(&session, "phase wants a sandbox and a name");
	else if (session_open(&session, false) == 0)
		status = phase_move(&session);
	return session_end(&session, status);
}
