/* `dsec create`: sandboxes that stay. Called by main.c; run.c asks through create_start(), too. */
#include "sdk/cli/create.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/copy.h"
#include "sdk/cli/json.h"
#include "sdk/cli/select.h"
#include "sdk/cli/settings.h"
#include "sdk/cli/verbs.h"

struct tally {
	const struct options *options;
	struct session *session;
	uint64_t created;
	uint32_t policy_version; /* of the last one */
	bool lost;		 /* an id could not be written to stdout */
};

int64_t create_start(struct session *session, const char *image, uint32_t count,
		     uint32_t disconnect)
{
	const struct options *o = session->options;
	struct dsec_call call = session_call(session);
	auto_free struct dsec_label *labels = NULL;
	auto_free struct dsec_bytes *env = calloc(o->env.count + 1, sizeof(*env));
	struct dsec_create_opts opts = {
		.size = sizeof(opts),
		.count = count,
		.image = image,
		.hostname = o->hostname,
		.user = o->user,
		.backend = o->backend,
		.policy = o->policy,
		.env_count = o->env.count,
		.flags = (o->allow_degraded ? DSEC_CREATE_ALLOW_DEGRADED : 0) |
			 (o->fresh_root ? DSEC_CREATE_FRESH_ROOT : 0) |
			 (o->sched_idle ? DSEC_CREATE_SCHED_IDLE : 0),
		.network = (uint32_t)o->network,
		.memory_bytes = o->memory_bytes,
		.disk_bytes = o->disk_bytes,
		.pids_max = (uint32_t)o->pids_max,
		.ttl_s = (uint32_t)(o->ttl_ms / 1000),
		.idle_ttl_s = (uint32_t)(o->idle_ttl_ms / 1000),
		.on_disconnect = disconnect,
		.inodes = o->inodes,
		.swap_bytes = o->swap_bytes,
		.io_bytes_per_s = o->io_bytes_per_s,
		.cpu_max_permille = (uint32_t)o->cpu_permille,
		.cpu_weight = (uint32_t)o->cpu_weight,
		.io_weight = (uint32_t)o->io_weight,
		.on_timeout = (uint32_t)o->on_timeout,
		.output_limit_bytes = o->output_limit_bytes,
		.processes_per_s = (uint32_t)o->processes_per_s,
	};

	labels = select_labels(o, &opts.label_count);
	if (!labels || !env)
		return -ENOMEM;
	for (uint32_t at = 0; at < o->env.count; at++)
		env[at] = (struct dsec_bytes){ o->env.items[at], strlen(o->env.items[at]) };
	opts.labels = labels;
	opts.env = env;
	return dsec_create(session->d, &call, &opts);
}

int create_undo(struct session *session, struct dsec_id id)
{
	struct dsec_select select = { .size = sizeof(select), .count = 1, .ids = &id };

	return session_events(session, dsec_destroy(session->d, NULL, &select), "destroy", NULL,
			      NULL);
}

static json_t *created_json(const struct dsec_event *event)
{
	const struct dsec_created *created = event->body;
	json_t *object = json_object();

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_object_set_new(object, "id", json_id(event->subject));
	(void)json_object_set_new(object, "index", json_integer(event->index));
	if (!created)
		return object;
	settings_add(object, created);
	return object;
}

/* A sandbox whose id nobody knows cannot be removed: where stdout does not take it, stderr must. */
static void created_show(struct tally *tally, const struct dsec_event *event)
{
	const struct dsec_created *created = event->body;
	const struct options *options = tally->options;
	auto_json json_t *json = options->json ? created_json(event) : NULL;
	char id[27], limits[LIMITS_TEXT_BYTES];

	dsec_id_print(event->subject, id);
	if (json)
		(void)json_line(stdout, json); /* here and below it is ferror() that tells */
	else
		(void)printf("%s\n", id);
	if (fflush(stdout) == EOF || ferror(stdout)) {
		(void)fprintf(stderr, "dsec: create: stdout did not take this id: %s\n", id);
		tally->lost = true;
	}
	if (json || !created)
		return;
	if (network_lack(created->network_why))
		report_note(options, "%s: network %s: %s: see dsecd --check, bpf-shared", id,
			    network_name(created->network), network_lack(created->network_why));
	if (created->rules_unenforced)
		report_note(
			options,
			"%s: held by nothing: %u of its policy's rules, which this host does not "
			"enforce or whose paths its image lacks: see --effective",
			id, created->rules_unenforced);
	if (!created->unenforced)
		return;
	limits_text(created->unenforced, limits);
	report_note(options, "%s: not enforced on this host:%s", id, limits);
}

static void created_count(void *state, const struct dsec_event *event)
{
	struct tally *tally = state;
	const struct dsec_created *created = event->body;

	if (event->kind != DSEC_EV_CREATED)
		return;
	/* One that lacks what it was to have is not left behind, under an id nobody was told. */
	if (copies_make(tally->session, event->subject) != 0) {
		(void)create_undo(tally->session, event->subject);
		return;
	}
	tally->created++;
	tally->policy_version = created ? created->policy : 0;
	created_show(tally, event);
}

/* "limit sandboxes_max": what was refused without words has its name in the step. */
static json_t *reason_json(const struct dsec_status *failure)
{
	const char *dot = strrchr(failure->step, '.');

	if (failure->detail[0] || failure->code != DSEC_REFUSED)
		return json_string(failure->detail);
	return json_sprintf("limit %s", dot ? dot + 1 : failure->step);
}

static void tally_tell(struct session *session, const struct tally *tally, uint64_t asked,
		       int64_t wall_ms)
{
	auto_json json_t *json = json_status(&session->failure);

	/* As in created_json(). */
	if (session->failure.code != DSEC_OK)
		(void)json_object_set_new(json, "reason", reason_json(&session->failure));
	(void)json_object_set_new(json, "asked", json_amount(asked));
	(void)json_object_set_new(json, "created", json_amount(tally->created));
	(void)json_object_set_new(json, "refused", json_amount(asked - tally->created));
	(void)json_object_set_new(json, "wall_ms", json_integer(wall_ms));
	session_tell(session, json);
}

static int64_t clock_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail */
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int create_tell(struct session *session, int64_t ticket, const char *what, uint64_t asked)
{
	const struct options *options = session->options;
	struct tally tally = { .options = options, .session = session };
	int64_t begun_ms = clock_ms();

	(void)session_events(session, ticket, what, created_count, &tally); /* session->failure */
	if (tally.created < asked && session->failure.code == DSEC_OK)
		(void)session_fail_error(session, -EIO, what, "some were not created");
	if (tally.created < asked && asked > 1)
		report_note(options, "%s: %" PRIu64 " of %" PRIu64 " were created", what,
			    tally.created, asked);
	if (tally.created && options->effective)
		(void)policy_tell_made(session, tally.policy_version); /* session->failure */
	tally_tell(session, &tally, asked, clock_ms() - begun_ms);
	return session->failure.code != DSEC_OK || tally.lost ? EXIT_TROUBLE : 0;
}

static int create_all(struct session *session, const char *image)
{
	uint64_t asked = session->options->count ? session->options->count : 1;

	return create_tell(session,
			   create_start(session, image, (uint32_t)asked, DSEC_DISCONNECT_KEEP),
			   "create", asked);
}

int verb_create(const struct options *options)
{
	const char *image = options->image;
	struct session session = { .options = options };
	int status = EXIT_TROUBLE;

	if (!image && options->argument_count)
		image = options->arguments[0];
	if (!image || options->argument_count > (options->image ? 0 : 1))
		status = session_refuse(&session, "create wants one image");
	else if (address_is_private(options))
		status = session_refuse(&session,
					"create: private: is an engine that goes, and all "
					"sandboxes with it");
	else if (copies_check(&session) == 0 && session_open(&session, false) == 0)
		status = create_all(&session, image);
	return session_end(&session, status);
}
