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
#include "sdk/cli/values.h"
#include "sdk/cli/verbs.h"

enum { LOOKS = 5, LOOK_AGAIN_MS = 100 };

struct check {
	struct session *session;	   /* NULL: no engine listens */
	char instance[RESIDUE_NAME_BYTES]; /* that is looked at; "": each that nobody runs */
	char mount[PATH_MAX];
	struct dsec_holdings holdings;
	struct dsec_id *ids; /* alive before or after the look */
	size_t id_count;
	struct residue residue;
	int64_t namespaces, left_namespaces;
	int error;
};

/* ---- what the engine says ---- */

static void holdings_note(void *state, const struct dsec_event *event)
{
	struct check *check = state;

	if (event->flags & DSEC_LAST && event->body)
		check->holdings = *(const struct dsec_holdings *)event->body;
}

static int holdings_ask(struct check *check)
{
	return session_events(check->session, dsec_check(check->session->d, NULL), "check",
			      holdings_note, check);
}

static void id_note(void *state, const struct dsec_event *event)
{
	const struct dsec_row *row = event->body;
	struct check *check = state;
	struct dsec_id *ids;

	if (event->kind != DSEC_EV_ROW || !row)
		return;
	ids = realloc(check->ids, (check->id_count + 1) * sizeof(*ids));
	if (!ids) {
		check->error = -ENOMEM;
		return;
	}
	ids[check->id_count++] = row->id;
	check->ids = ids;
}

/* Adds to those known: what was alive before the look or after it accounts for what was seen. */
static int ids_ask(struct check *check)
{
	int r;

	check->error = 0;
	r = session_events(check->session, dsec_list(check->session->d, NULL, NULL), "list",
			   id_note, check);
	return r < 0 ? r : check->error;
}

/* ---- what the machine says ---- */

static void instance_look(void *state, const char *instance)
{
	struct check *check = state;
	struct residue_live live = { check->ids, check->id_count };
	int r;

	if (check->instance[0] && strcmp(instance, check->instance) != 0)
		return;
	if (check->session) {
		r = residue_read_cgroups(check->mount, instance, true, &live, &check->residue);
	} else {
		/* An engine accounts for what is its own; where none runs, nobody does. */
		r = residue_instance_runs(instance);
		if (r == 0)
			r = residue_read_cgroups(check->mount, instance, false, &live,
						 &check->residue);
	}
	if (r < 0 && r != -ENOENT && !check->error)
		check->error = r;
}

static int machine_look(struct check *check)
{
	int r;

	residue_done(&check->residue);
	check->residue = (struct residue){ 0 };
	check->error = 0;
	r = residue_instances(check->mount, instance_look, check);
	if (r == 0)
		r = check->error;
	if (r == 0)
		r = residue_read_mounts(check->instance[0] ? check->instance : NULL,
					&check->residue);
	check->namespaces = namespaces_count(&check->residue.namespaces, NULL);
	check->left_namespaces =
		namespaces_count(&check->residue.left_namespaces, &check->residue.namespaces);
	return r < 0 ? r : check->left_namespaces < 0 ? -ENOMEM : 0;
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
		{ "networks", h->networks },
		{ "networks_ending", h->networks_ending },
		{ "networks_reused", h->networks_reused },
		{ "networks_discarded", h->networks_discarded },
		{ "forwards", h->forwards },
		{ "inbounds", h->inbounds },
		{ "tokens_refused", h->tokens_refused },
		{ "launchers_lost", h->launchers_lost },
		{ "callbacks", h->callbacks },
		{ "callbacks_over_1ms", h->callbacks_over_1ms },
		{ "callback_max_ns", h->callback_max_ns },
		{ "created_total", h->created_total },
		{ "reused_total", h->reused_total },
		{ "destroyed_total", h->destroyed_total },
		{ "refused_total", h->refused_total },
		{ "failed_total", h->failed_total },
		{ "quarantined", h->quarantined },
		{ "slots_quarantined", h->slots_quarantined },
		{ "execs_undying", h->execs_undying },
		{ "execs_kept", h->execs_kept },
		{ "files", h->files },
		{ "port_waits", h->port_waits },
		{ "imports", h->imports },
		{ "sinks", h->sinks },
		{ "subscriptions", h->subscriptions },
	};
	json_t *object = json_object();

	/* These fail on memory alone, and json_line() shows what there is. */
	for (size_t at = 0; at < sizeof(fields) / sizeof(fields[0]); at++)
		(void)json_object_set_new(object, fields[at].name, json_amount(fields[at].value));
	return object;
}

static void json_tell(struct session *session, const struct check *check)
{
	const struct residue *residue = &check->residue;
	auto_json json_t *object = json_object();
	json_t *machine = json_object(), *left = json_object();

	/* As in holdings_json(). */
	(void)json_object_set_new(machine, "sandboxes", json_amount(residue->sandboxes));
	(void)json_object_set_new(machine, "processes", json_amount(residue->processes));
	(void)json_object_set_new(machine, "namespaces", json_integer(check->namespaces));
	(void)json_object_set_new(machine, "slots", json_amount(residue->slots));
	(void)json_object_set_new(left, "processes", json_amount(residue->left_processes));
	(void)json_object_set_new(left, "cgroups", json_amount(residue->left_cgroups));
	(void)json_object_set_new(left, "mounts", json_amount(residue->left_mounts));
	(void)json_object_set_new(left, "namespaces", json_integer(check->left_namespaces));
	if (residue->first[0])
		(void)json_object_set_new(left, "first", json_string(residue->first));
	(void)json_object_set_new(object, "instance",
				  check->instance[0] ? json_string(check->instance) : json_null());
	(void)json_object_set_new(object, "engine",
				  check->session ? holdings_json(&check->holdings) : json_null());
	(void)json_object_set_new(object, "machine", machine);
	(void)json_object_set_new(object, "left", left);
	(void)json_object_set_new(object, "clean", json_boolean(!residue_left(residue)));
	session_tell(session, object);
}

/* Whether stdout took all is told at the end, by main(). */
static void holdings_show(const struct dsec_holdings *h)
{
	const bool narrow = h->slots == UINT64_MAX; /* one of several tenants': its own */

	if (narrow) {
		(void)printf("tenant:  sandboxes %" PRIu64 ", execs %" PRIu64
			     ", clients %u, forwards %" PRIu64 "\n",
			     h->sandboxes, h->execs, h->clients, h->forwards);
		(void)printf("so far:  created %" PRIu64 ", destroyed %" PRIu64 ", refused %" PRIu64
			     ", failed %" PRIu64 "\n",
			     h->created_total, h->destroyed_total, h->refused_total,
			     h->failed_total);
		return;
	}
	(void)printf("engine:  sandboxes %" PRIu64 ", execs %" PRIu64 ", clients %u, slots %" PRIu64
		     " (%" PRIu64 " free, %" PRIu64 " being rebuilt), launchers %" PRIu64 "\n",
		     h->sandboxes, h->execs, h->clients, h->slots, h->slots_free,
		     h->slots_rebuilding, h->launchers);
	(void)printf("so far:  created %" PRIu64 " (%" PRIu64 " on a used root), destroyed %" PRIu64
		     ", refused %" PRIu64 ", failed %" PRIu64 ", launchers lost %" PRIu64 "\n",
		     h->created_total, h->reused_total, h->destroyed_total, h->refused_total,
		     h->failed_total, h->launchers_lost);
	(void)printf("loops:   %" PRIu64 " callbacks, %" PRIu64 " over 1 ms, the longest %" PRIu64
		     " us\n",
		     h->callbacks, h->callbacks_over_1ms, h->callback_max_ns / 1000);
	if (h->networks || h->forwards)
		(void)printf("network: %" PRIu64 " namespaces (%" PRIu64
			     " ending), forwards %" PRIu64 ", connections %" PRIu64 "\n",
			     h->networks, h->networks_ending, h->forwards, h->inbounds);
	if (h->subscriptions)
		(void)printf("events:  subscriptions %" PRIu64 "\n", h->subscriptions);
	if (h->files || h->imports || h->sinks || h->port_waits)
		(void)printf("busy:    file operations %" PRIu64 ", imports %" PRIu64
			     ", waits for ports %" PRIu64 ", background streams %" PRIu64 "\n",
			     h->files, h->imports, h->port_waits, h->sinks);
	if (h->quarantined || h->slots_quarantined || h->execs_undying)
		(void)printf("caught:  %" PRIu64 " sandboxes, %" PRIu64 " slots and %" PRIu64
			     " execs that do not end; they are tried again\n",
			     h->quarantined, h->slots_quarantined, h->execs_undying);
}

static void text_show(const struct check *check)
{
	const struct residue *residue = &check->residue;

	if (check->session) {
		holdings_show(&check->holdings);
	} else {
		(void)puts("engine:  none listens");
	}
	(void)printf("looked:  at %s%s\n", check->instance[0] ? "instance " : "",
		     check->instance[0] ? check->instance : "all instances that nobody runs");
	(void)printf("machine: sandboxes %" PRIu64 ", processes %" PRIu64 ", namespaces %" PRId64
		     ", slots %" PRIu64 "\n",
		     residue->sandboxes, residue->processes, check->namespaces, residue->slots);
	(void)printf("left:    processes %" PRIu64 ", cgroups %" PRIu64 ", mounts %" PRIu64
		     ", namespaces %" PRId64 "\n",
		     residue->left_processes, residue->left_cgroups, residue->left_mounts,
		     check->left_namespaces);
	if (residue->first[0]) {
		(void)fputs("first:   ", stdout);
		value_write(stdout, (struct dsec_bytes){ residue->first, strlen(residue->first) });
		(void)putchar('\n');
	}
}

/* ---- the verb ---- */

/*
 * Whose socket it is, by the engine's own rule: /run/dsec.sock is main's, /run/dsec/NAME.sock is
 * NAME's. False: any instance may have that one.
 */
static bool address_instance(const char *address, char *ret_name)
{
	static const char folder[] = "/run/dsec/", ending[] = ".sock";
	const char *path = strchr(address, '/');
	size_t bytes;

	if (!path)
		return false;
	if (!strcmp(path, "/run/dsec.sock")) {
		(void)snprintf(ret_name, RESIDUE_NAME_BYTES, "main"); /* fits */
		return true;
	}
	if (strncmp(path, folder, strlen(folder)) != 0)
		return false;
	path += strlen(folder);
	bytes = strlen(path);
	if (bytes <= strlen(ending) || strcmp(path + bytes - strlen(ending), ending) != 0)
		return false;
	bytes -= strlen(ending);
	if (bytes >= RESIDUE_NAME_BYTES || memchr(path, '/', bytes))
		return false;
	(void)snprintf(ret_name, RESIDUE_NAME_BYTES, "%.*s", (int)bytes, path); /* as above */
	return true;
}

/* named: somebody said which engine it is. */
static int instance_choose(struct check *check, struct session *session, bool named)
{
	const struct options *options = session->options;
	const char *address = options->address ? options->address : getenv("DSEC_ADDRESS");

	if (options->instance) {
		if (strlen(options->instance) >= RESIDUE_NAME_BYTES ||
		    strchr(options->instance, '/')) {
			(void)session_refuse(session, "check: --instance: that is no name of one");
			return -EINVAL;
		}
		(void)snprintf(check->instance, sizeof(check->instance), "%s", options->instance);
		return 0;
	}
	if (!named && !check->session)
		return 0; /* nobody's: all that nobody runs */
	if (named && address_instance(address, check->instance))
		return 0;
	(void)snprintf(check->instance, sizeof(check->instance), "main"); /* fits */
	if (named)
		report_note(options,
			    "check: %s may be any instance's: looking at main; "
			    "--instance says whose it is",
			    address);
	return 0;
}

static int engine_open(struct check *check, struct session *session)
{
	const struct options *options = session->options;
	struct dsec_open_opts opts = {
		.size = sizeof(opts),
		.address = options->address,
		.reconnect_ms = UINT32_MAX, /* one engine's account, not two halves */
	};
	bool named;
	int r;

	r = session_connect(session, &opts, &named);
	if (r == 0) {
		check->session = session;
		r = holdings_ask(check);
	} else if (r == -EKEYREJECTED) {
		return r; /* was told */
	} else if (r == -ENOENT || r == -ECONNREFUSED) {
		/* No engine is an answer, too. */
		if (named)
			report_note(options, "%s", dsec_error(NULL, r));
		r = 0;
	} else {
		(void)session_fail_error(session, r, "connect", dsec_error(NULL, r));
	}
	return r < 0 ? r : instance_choose(check, session, named);
}

static int check_all(struct check *check, struct session *session)
{
	char path[PATH_MAX + RESIDUE_NAME_BYTES + 8], text[PATH_MAX + 256];
	int r;

	r = residue_mount_find(check->mount);
	if (r < 0) {
		(void)session_fail_error(session, r, "cgroup", "check: no cgroup2 is mounted here");
		return r;
	}
	(void)snprintf(path, sizeof(path), "%s/dsec-%s", check->mount, check->instance); /* fits */
	if (check->session && access(path, F_OK) < 0) {
		(void)snprintf(text, sizeof(text), "check: %s: %s; --instance says whose it is",
			       path, strerror(errno)); /* cut is fine */
		(void)session_fail_error(session, -EINVAL, "instance", text);
		return -ENOENT;
	}
	r = look(check);
	if (r < 0) {
		(void)snprintf(text, sizeof(text), "check: %s", strerror(-r)); /* fits */
		(void)session_fail_error(session, r, "look", text);
	}
	return r;
}

int verb_check(const struct options *options)
{
	struct session session = { .options = options };
	struct check check = { 0 };
	int status = EXIT_TROUBLE;

	if (geteuid() != 0) {
		status = session_fail_error(&session, -EPERM, "user",
					    "check: only root sees whose cgroups are whose");
	} else if (address_is_private(options)) {
		status = session_refuse(&session, "check: private: is an engine started for this, "
						  "and holds nothing");
	} else if (!strncmp(session_address(options), "ssh:", 4)) {
		status = session_refuse(&session, "check: it looks at the machine, too: run it "
						  "where the engine is");
	} else if (engine_open(&check, &session) == 0 && check_all(&check, &session) == 0) {
		if (options->json)
			json_tell(&session, &check);
		else
			text_show(&check);
		status = residue_left(&check.residue) ? EXIT_DIFFERS : 0;
	}
	residue_done(&check.residue);
	free(check.ids);
	return session_end(&session, status);
}
