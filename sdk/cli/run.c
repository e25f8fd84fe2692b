/*
 * `dsec run`: a sandbox, one program in it, and its end. Called by main.c. Where no engine listens
 * it starts one of its own, which leaves nothing behind; so nothing can be kept there.
 */
#include <errno.h>

#include "sdk/cli/copy.h"
#include "sdk/cli/create.h"
#include "sdk/cli/outcome.h"
#include "sdk/cli/verbs.h"

static void sandbox_note(void *state, const struct dsec_event *event)
{
	struct dsec_id *id = state;

	if (event->kind == DSEC_EV_CREATED)
		*id = event->subject;
}

static int run(struct session *session, const char *image)
{
	const struct options *options = session->options;
	struct dsec_id id = { 0, 0 };
	int64_t ticket;
	char text[27];
	int status;

	ticket = create_start(session, image, 1,
			      options->keep ? DSEC_DISCONNECT_KEEP : DSEC_DISCONNECT_DESTROY);
	if (session_events(session, ticket, "create", sandbox_note, &id) < 0)
		return EXIT_TROUBLE;
	if (!id.hi && !id.lo)
		return session_fail_error(session, -EIO, "create", "no sandbox was created");
	status = copies_make(session, id);
	if (status != 0) {
		(void)create_undo(session, id); /* it says so itself */
		return status;
	}
	status = outcome_run(session, id);
	if (!options->keep)
		return create_undo(session, id) < 0 ? EXIT_TROUBLE : status;
	dsec_id_print(id, text);
	report_note(options, "sandbox %s stays: dsec exec uses it, dsec rm removes it", text);
	return status;
}

int verb_run(const struct options *options)
{
	const char *image = options->image	    ? options->image :
			    options->argument_count ? options->arguments[0] :
						      NULL;
	struct session session = { .options = options,
				   .runs = true,
				   .image_command = !options->entrypoint };
	int status = EXIT_TROUBLE;

	if (!image)
		status = session_refuse(&session, "run wants an image: "
						  "dsec run IMAGE -- PROGRAM");
	else if (options->keep && options->remove)
		status = session_refuse(&session, "run: --keep and --rm exclude each other");
	else if (options->keep && address_is_private(options))
		status = session_refuse(&session, "run: --keep wants an engine that stays, and "
						  "private: is one that goes");
	else if (copies_check(&session) == 0 && session_open(&session, true) == 0)
		status = run(&session, image);
	return session_end(&session, status);
}
