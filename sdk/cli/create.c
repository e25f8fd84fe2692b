/* `dsec create`: sandboxes that stay. Called by main.c; run.c asks through create_start(), too. */
#include "sdk/cli/create.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/verbs.h"

struct tally {
	uint64_t created, refused;
	struct dsec_status why; /* of the first that was not made */
};

int64_t create_start(struct session *session, const char *image, uint32_t count,
		     uint32_t disconnect)
{
	const struct options *o = session->options;
	struct dsec_call call = { .size = sizeof(call) };
	auto_free struct dsec_label *labels = NULL;
	auto_free struct dsec_bytes *env = calloc(o->env.count + 1, sizeof(*env));
	struct dsec_create_opts opts = {
		.size = sizeof(opts),
		.count = count,
		.image = image,
		.hostname = o->hostname,
		.user = o->user,
		.env_count = o->env.count,
		.flags = (o->allow_degraded ? DSEC_CREATE_ALLOW_DEGRADED : 0) |
			 (o->fresh_root ? DSEC_CREATE_FRESH_ROOT : 0),
		.network = (uint32_t)o->network,
		.memory_bytes = o->memory_bytes,
		.disk_bytes = o->disk_bytes,
		.pids_max = (uint32_t)o->pids_max,
		.ttl_s = (uint32_t)(o->ttl_ms / 1000),
		.idle_ttl_s = (uint32_t)(o->idle_ttl_ms / 1000),
		.on_disconnect = disconnect,
	};

	labels = session_labels(o, &opts.label_count);
	if (!labels || !env)
		return -ENOMEM;
	for (uint32_t at = 0; at < o->env.count; at++)
		env[at] = (struct dsec_bytes){ o->env.items[at], strlen(o->env.items[at]) };
	opts.labels = labels;
	opts.env = env;
	return dsec_create(session->d, &call, &opts);
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
	(void)json_object_set_new(object, "network", json_string(network_name(created->network)));
	(void)json_object_set_new(object, "memory_bytes", json_amount(created->memory_bytes));
	(void)json_object_set_new(object, "disk_bytes", json_amount(created->disk_bytes));
	(void)json_object_set_new(object, "pids_max", json_integer(created->pids_max));
	(void)json_object_set_new(object, "ttl_s", json_integer(created->ttl_s));
	(void)json_object_set_new(object, "idle_ttl_s", json_integer(created->idle_ttl_s));
	(void)json_object_set_new(object, "unenforced", json_integer(created->unenforced));
	return object;
}

static void created_show(const struct options *options, const struct dsec_event *event)
{
	const struct dsec_created *created = event->body;
	auto_json json_t *json = options->json ? created_json(event) : NULL;
	char id[27];

	if (json) {
		(void)json_line(stdout, json); /* told at the end, by main() */
		return;
	}
	dsec_id_print(event->subject, id);
	(void)printf("%s\n", id); /* as above */
	if (created && created->unenforced)
		report_note(options, "%s: not enforced on this host:%s%s%s", id,
			    created->unenforced & DSEC_LIMIT_MEMORY ? " memory" : "",
			    created->unenforced & DSEC_LIMIT_PIDS ? " pids" : "",
			    created->unenforced & DSEC_LIMIT_CPU ? " cpu" : "");
}

static void tally_show(const struct session *session, const struct tally *tally, int64_t wall_ms)
{
	auto_json json_t *json = json_object();

	if (tally->refused && !session->options->json)
		report_status(session, "create", &tally->why);
	if (!session->options->json)
		return;
	/* As in created_json(). */
	(void)json_object_set_new(json, "asked", json_amount(tally->created + tally->refused));
	(void)json_object_set_new(json, "created", json_amount(tally->created));
	(void)json_object_set_new(json, "refused", json_amount(tally->refused));
	if (tally->refused)
		(void)json_object_set_new(json, "status", json_status(&tally->why));
	(void)json_object_set_new(json, "wall_ms", json_integer(wall_ms));
	(void)json_line(stdout, json); /* told at the end, by main() */
}

static int64_t clock_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail */
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void event_count(const struct options *options, const struct dsec_event *event,
			struct tally *tally)
{
	bool good = event->status.code == DSEC_OK;

	if (event->kind == DSEC_EV_CREATED && good) {
		tally->created++;
		created_show(options, event);
		return;
	}
	if (event->kind == DSEC_EV_CREATED)
		tally->refused++;
	if (!good && !tally->why.code)
		tally->why = event->status;
}

static int create_all(struct session *session, const char *image)
{
	const struct options *options = session->options;
	uint64_t asked = options->count ? options->count : 1;
	int64_t begun_ms = clock_ms();
	int64_t ticket = create_start(session, image, (uint32_t)asked, DSEC_DISCONNECT_KEEP);
	struct tally tally = { 0 };
	struct dsec_event *event;
	bool last = false;

	while (!last) {
		if (session_next(session, ticket, &event) < 0)
			return EXIT_TROUBLE;
		last = event->flags & DSEC_LAST;
		event_count(options, event, &tally);
		dsec_event_free(event);
	}
	tally.refused = asked - tally.created;
	tally_show(session, &tally, clock_ms() - begun_ms);
	return tally.refused ? EXIT_TROUBLE : 0;
}

int verb_create(const struct options *options)
{
	const char *image = options->image;
	struct session session;
	int status;

	if (!image && options->argument_count)
		image = options->arguments[0];
	if (!image || options->argument_count > (options->image ? 0 : 1)) {
		(void)fputs("dsec: create wants one image\n", stderr);
		return EXIT_TROUBLE;
	}
	if (session_open(&session, options, false) < 0)
		return EXIT_TROUBLE;
	status = create_all(&session, image);
	session_close(&session);
	return status;
}
