/*
 * `dsec run`: a sandbox, one program in it, and its end. Called by main.c. Where no engine listens
 * it starts one of its own, which leaves nothing behind.
 */
#include <stdio.h>
#include <unistd.h>

#include "sdk/cli/create.h"
#include "sdk/cli/outcome.h"
#include "sdk/cli/verbs.h"

/* 0: there is a sandbox; else it was said why not. */
static int sandbox_await(struct session *session, int64_t ticket, struct dsec_id *ret)
{
	struct dsec_event *event;
	bool made = false, told = false, last = false;

	while (!last) {
		if (session_next(session, ticket, &event) < 0)
			return -1;
		last = event->flags & DSEC_LAST;
		if (event->status.code != DSEC_OK && !told) {
			report_status(session, "create", &event->status);
			told = true;
		} else if (event->kind == DSEC_EV_CREATED && event->status.code == DSEC_OK) {
			*ret = event->subject;
			made = true;
		}
		dsec_event_free(event);
	}
	return made ? 0 : -1;
}

static int sandbox_remove(struct session *session, struct dsec_id id)
{
	struct dsec_select select = { .size = sizeof(select), .count = 1, .ids = &id };
	int64_t ticket = dsec_destroy(session->d, NULL, &select);
	struct dsec_event *event;
	bool good = true, last = false;

	while (!last) {
		if (session_next(session, ticket, &event) < 0)
			return -1;
		last = event->flags & DSEC_LAST;
		if (event->status.code != DSEC_OK) {
			report_status(session, "destroy", &event->status);
			good = false;
		}
		dsec_event_free(event);
	}
	return good ? 0 : -1;
}

static int run(struct session *session, const char *image)
{
	const struct options *options = session->options;
	bool goes = !options->keep || session->is_private;
	struct dsec_id id = { 0, 0 };
	int64_t ticket;
	char text[27];
	int status;

	ticket = create_start(session, image, 1,
			      goes ? DSEC_DISCONNECT_DESTROY : DSEC_DISCONNECT_KEEP);
	if (sandbox_await(session, ticket, &id) < 0)
		return EXIT_TROUBLE;
	status = outcome_run(session, id);
	if (goes && sandbox_remove(session, id) < 0)
		return EXIT_TROUBLE;
	dsec_id_print(id, text);
	if (!goes && isatty(STDERR_FILENO))
		report_note(options, "sandbox %s stays: dsec exec uses it, dsec rm removes it",
			    text);
	return status;
}

int verb_run(const struct options *options)
{
	const char *image = options->image	    ? options->image :
			    options->argument_count ? options->arguments[0] :
						      NULL;
	struct session session;
	int status;

	if (!image || !options->command_count) {
		(void)fputs("dsec: run wants an image and a program: dsec run IMAGE -- PROGRAM\n",
			    stderr);
		return EXIT_TROUBLE;
	}
	if (options->keep && options->remove) {
		(void)fputs("dsec: run: --keep and --rm exclude each other\n", stderr);
		return EXIT_TROUBLE;
	}
	if (session_open(&session, options, true) < 0)
		return EXIT_TROUBLE;
	status = run(&session, image);
	session_close(&session);
	return status;
}
