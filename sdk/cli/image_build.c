/*
 * `dsec image build`: a sandbox, a program in it, and what it made as an image. Called by image.c.
 * Must hold: the sandbox goes whatever happens, and nothing is made of a program that failed.
 */
#include <errno.h>

#include "sdk/cli/copy.h"
#include "sdk/cli/create.h"
#include "sdk/cli/image.h"
#include "sdk/cli/outcome.h"

static void sandbox_take(void *state, const struct dsec_event *event)
{
	struct dsec_id *id = state;

	if (event->kind == DSEC_EV_CREATED)
		*id = event->subject;
}

static int build_in(struct session *session, struct dsec_id sandbox, const char *name)
{
	int status = copies_make(session, sandbox);

	if (status == 0)
		status = outcome_run(session, sandbox);
	return status == 0 ? image_pack(session, sandbox, name) : status;
}

int image_build(struct session *session, const char *name)
{
	struct dsec_id id = { 0, 0 };
	int64_t ticket;
	int status;

	session->runs = true; /* the time is the program's */
	ticket = create_start(session, session->options->image, 1, DSEC_DISCONNECT_DESTROY);
	if (session_events(session, ticket, "create", sandbox_take, &id) < 0)
		return EXIT_TROUBLE;
	if (!id.hi && !id.lo)
		return session_fail_error(session, -EIO, "create", "no sandbox was created");
	status = build_in(session, id, name);
	return create_undo(session, id) < 0 ? EXIT_TROUBLE : status;
}
