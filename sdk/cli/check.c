/*
 * `dsec check`: what the engine says it holds, and what the machine says is there. Called by
 * main.c. The two come from different sources: a sandbox that the engine forgot still has processes
 * in a cgroup, and is found there.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/residue.h"
#include "sdk/cli/session.h"
#include "sdk/cli/verbs.h"

enum { LOOKS = 5, LOOK_AGAIN_MS = 100 };

struct check {
	struct session *session; /* NULL: no engine listens */
	const struct options *options;
	char instance[RESIDUE_NAME_BYTES];
	char mount[PATH_MAX];
	struct dsec_holdings holdings;
	struct dsec_id *ids; /* alive before or after the look */
	size_t id_count;
	struct residue residue;
	int error;
};

/* ---- what the engine says ---- */

static int holdings_ask(struct check *check)
{
	int64_t ticket = dsec_check(check->session->d, NULL);
	struct dsec_event *event;
	bool last = false;
	int r = 0;

	while (!last) {
		if (session_next(check->session, ticket, &event) < 0)
			return -EIO;
		last = event->flags & DSEC_LAST;
		if (event->status.code != DSEC_OK) {
			report_status(check->session, "check", &event->status);
			r = -EIO;
		} else if (last && event->body) {
			check->holdings = *(const struct dsec_holdings *)event->body;
		}
		dsec_event_free(event);
	}
	return r;
}

static int id_add(struct check *check, struct dsec_id id)
{
	struct dsec_id *ids = realloc(check->ids, (check->id_count + 1) * sizeof(*ids));

	if (!ids)
		return -ENOMEM;
	ids[check->id_count++] = id;
	check->ids = ids;
	return 0;
}

/* Adds to those known: what was alive before the look or after it accounts for what was seen. */
static int ids_ask(struct check *check)
{
	int64_t ticket = dsec_list(check->session->d, NULL, NULL);
	struct dsec_event *event;
	bool last = false;
	int r = 0;

	while (!last) {
		if (session_next(check->session, ticket, &event) < 0)
			return -EIO;
		last = event->flags & DSEC_LAST;
		if (event->status.code != DSEC_OK)
			r = -EIO;
		else if (event->kind == DSEC_EV_ROW && event->body)
			r = id_add(check, ((const struct dsec_row *)event->body)->id);
		dsec_event_free(event);
	}
	return r;
}

/* ---- what the machine says ---- */

static void instance_look(void *state, const char *instance)
{
	struct check *check = state;
	struct residue_live live = { check->ids, check->id_count };
	bool mine = !strcmp(instance, check->instance);
	int r;

	if (mine && check->session) {
		r = residue_read_cgroups(check->mount, instance, true, &live, &check->residue);
	} else if (mine || !check->options->instance) {
		/* Others' engines account for what is theirs; where none runs, nobody does. */
		r = residue_instance_runs(instance);
		if (r == 0)
			r = residue_read_cgroups(check->mount, instance, false, &live,
						 &check->residue);
	} else {
		return;
	}
	if (r < 0 && r != -ENOENT && !check->error)
		check->error = r;
}

static int machine_look(struct check *check)
{
	int r;

	check->residue = (struct residue){ 0 };
	check->error = 0;
	r = residue_instances(check->mount, instance_look, check);
	if (r == 0)
		r = check->error;
	if (r == 0)
		r = residue_read_mounts(check->options->instance, &check->residue);
	return r;
}

/*
 * Sandboxes come and go while we look, and teardown goes on after the engine said that nothing
 * runs: what is left over only counts if it stays.
 */
static int look(struct check *check)
{
	static const struct timespec pause = { 0, LOOK_AGAIN_MS * 1000000l };
	int r = 0;

	for (int turn = 0; turn < LOOKS; turn++) {
		check->id_count = 0;
		if (check->session)
			r = ids_ask(check);
		if (r == 0)
			r = machine_look(check);
		if (r == 0 && check->session && residue_left(&check->residue)) {
			r = ids_ask(check);
			if (r == 0)
				r = machine_look(check);
		}
		if (r < 0 || !residue_left(&check->residue))
			return r;
		(void)nanosleep(&pause, NULL); /* shorter is fine */
	}
	return 0;
}

/* ---- what is told ---- */

static json_t *holdings_json(const struct dsec_holdings *h)
{
	const struct {
		const char *name;
		uint64_t value;
	} fields[] = {
		{ "clients", h->clients },
		{ "sandboxes", h->sandboxes },
		{ "execs", h->execs },
		{ "slots", h->slots },
		{ "slots_free", h->slots_free },
		{ "slots_rebuilding", h->slots_rebuilding },
		{ "launchers", h->launchers },
		{ "launchers_lost", h->launchers_lost },
		{ "callbacks", h->callbacks },
		{ "callbacks_over_1ms", h->callbacks_over_1ms },
		{ "callback_max_ns", h->callback_max_ns },
		{ "created_total", h->created_total },
		{ "reused_total", h->reused_total },
		{ "destroyed_total", h->destroyed_total },
		{ "refused_total", h->refused_total },
		{ "failed_total", h->failed_total },
	};
	json_t *object = json_object();

	/* These fail on memory alone, and json_line() shows what there is. */
	for (size_t at = 0; at < sizeof(fields) / sizeof(fields[0]); at++)
		(void)json_object_set_new(object, fields[at].name, json_amount(fields[at].value));
	return object;
}

static void json_show(const struct check *check)
{
	const struct residue *residue = &check->residue;
	auto_json json_t *object = json_object();
	json_t *machine = json_object(), *left = json_object();

	/* As in holdings_json(). */
	(void)json_object_set_new(machine, "sandboxes", json_amount(residue->sandboxes));
	(void)json_object_set_new(machine, "processes", json_amount(residue->processes));
	(void)json_object_set_new(machine, "slots", json_amount(residue->slots));
	(void)json_object_set_new(left, "processes", json_amount(residue->left_processes));
	(void)json_object_set_new(left, "cgroups", json_amount(residue->left_cgroups));
	(void)json_object_set_new(left, "mounts", json_amount(residue->left_mounts));
	if (residue->first[0])
		(void)json_object_set_new(left, "first", json_string(residue->first));
	(void)json_object_set_new(object, "instance", json_string(check->instance));
	(void)json_object_set_new(object, "engine",
				  check->session ? holdings_json(&check->holdings) : json_null());
	(void)json_object_set_new(object, "machine", machine);
	(void)json_object_set_new(object, "left", left);
	(void)json_object_set_new(object, "clean", json_boolean(!residue_left(residue)));
	(void)json_line(stdout, object); /* told at the end, by main() */
}

static void text_show(const struct check *check)
{
	const struct dsec_holdings *h = &check->holdings;
	const struct residue *residue = &check->residue;

	/* Whether stdout took all is told at the end, by main(). */
	if (check->session) {
		(void)printf("engine:  sandboxes %" PRIu64 ", execs %" PRIu64
			     ", clients %u, slots %" PRIu64 " (%" PRIu64 " free, %" PRIu64
			     " being rebuilt), launchers %" PRIu64 "\n",
			     h->sandboxes, h->execs, h->clients, h->slots, h->slots_free,
			     h->slots_rebuilding, h->launchers);
		(void)printf("so far:  created %" PRIu64 " (%" PRIu64
			     " on a used root), destroyed %" PRIu64 ", refused %" PRIu64
			     ", failed %" PRIu64 ", launchers lost %" PRIu64 "\n",
			     h->created_total, h->reused_total, h->destroyed_total,
			     h->refused_total, h->failed_total, h->launchers_lost);
		(void)printf("loops:   %" PRIu64 " callbacks, %" PRIu64
			     " over 1 ms, the longest %" PRIu64 " us\n",
			     h->callbacks, h->callbacks_over_1ms, h->callback_max_ns / 1000);
	} else {
		(void)puts("engine:  none listens");
	}
	(void)printf("machine: sandboxes %" PRIu64 ", processes %" PRIu64 ", slots %" PRIu64 "\n",
		     residue->sandboxes, residue->processes, residue->slots);
	(void)printf("left:    processes %" PRIu64 ", cgroups %" PRIu64 ", mounts %" PRIu64 "\n",
		     residue->left_processes, residue->left_cgroups, residue->left_mounts);
	if (residue->first[0])
		(void)printf("first:   %s\n", residue->first);
}

/* ---- the verb ---- */

/* As the engine's own rule: /run/dsec.sock is main's, /run/dsec/NAME.sock is NAME's. */
static void instance_name(struct check *check, const struct options *options)
{
	static const char folder[] = "/run/dsec/", ending[] = ".sock";
	const char *address = options->address ? options->address : getenv("DSEC_ADDRESS");
	const char *name = address ? strstr(address, folder) : NULL;
	size_t bytes;

	(void)snprintf(check->instance, sizeof(check->instance), "%s", /* cut: then unknown */
		       options->instance ? options->instance : "main");
	if (options->instance || !name)
		return;
	name += strlen(folder);
	bytes = strlen(name);
	if (bytes <= strlen(ending) || strcmp(name + bytes - strlen(ending), ending) != 0)
		return;
	(void)snprintf(check->instance, sizeof(check->instance), "%.*s", /* as above */
		       (int)(bytes - strlen(ending)), name);
}

static int engine_open(struct check *check, struct session *session)
{
	const struct options *options = check->options;
	const char *environment = getenv("DSEC_ADDRESS");
	struct dsec_open_opts opts = { .size = sizeof(opts), .address = options->address };
	int r;

	*session = (struct session){ .options = options };
	r = dsec_open(&opts, &session->d);
	if (r == 0) {
		check->session = session;
		return holdings_ask(check);
	}
	/* No engine is an answer too, unless one was named. */
	if ((r == -ENOENT || r == -ECONNREFUSED) && !options->address &&
	    !(environment && *environment))
		return 0;
	(void)fprintf(stderr, "dsec: %s\n", dsec_error(NULL, r));
	return r;
}

static int check_all(struct check *check)
{
	char path[PATH_MAX + RESIDUE_NAME_BYTES + 8];
	int r;

	r = residue_mount_find(check->mount);
	if (r < 0) {
		(void)fputs("dsec: check: no cgroup2 is mounted here\n", stderr);
		return r;
	}
	(void)snprintf(path, sizeof(path), "%s/dsec-%s", check->mount, check->instance); /* fits */
	if (check->session && access(path, F_OK) < 0) {
		(void)fprintf(stderr, "dsec: check: %s: %s; --instance says whose it is\n", path,
			      strerror(errno));
		return -ENOENT;
	}
	r = look(check);
	if (r < 0)
		(void)fprintf(stderr, "dsec: check: %s\n", strerror(-r));
	return r;
}

int verb_check(const struct options *options)
{
	struct check check = { .options = options };
	struct session session;
	int status = EXIT_TROUBLE;

	if (geteuid() != 0) {
		(void)fputs("dsec: check: only root sees whose cgroups are whose\n", stderr);
		return EXIT_TROUBLE;
	}
	instance_name(&check, options);
	if (engine_open(&check, &session) == 0 && check_all(&check) == 0) {
		if (options->json)
			json_show(&check);
		else
			text_show(&check);
		status = residue_left(&check.residue) ? EXIT_DIFFERS : 0;
	}
	free(check.ids);
	dsec_close(session.d);
	return status;
}
