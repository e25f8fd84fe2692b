/*
 * The two conveniences that block: a sandbox with defaults, and a program in it. Called by
 * applications; they use dsec.h's own functions, and beneath those dsec__owned() alone.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <dsec/dsec.h>

#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"

static int status_errno(const struct dsec_status *status)
{
	switch (status->code) {
	case DSEC_OK:
		return 0;
	case DSEC_REFUSED:
		return -EBUSY;
	case DSEC_INVALID:
		return -EINVAL;
	case DSEC_DENIED:
		return -EACCES;
	case DSEC_ABSENT:
		return -ENOENT;
	case DSEC_UNSUPPORTED:
		return -EOPNOTSUPP;
	case DSEC_DEADLINE:
		return -ETIMEDOUT;
	case DSEC_LOST:
		return -ECONNRESET;
	default:
		return status->error > 0 ? -status->error : -EIO;
	}
}

static int status_fail(const struct dsec_status *status, const char *what)
{
	return dsec__fail(status_errno(status), "%s: %s%s%s", what, status->detail,
			  status->step[0] ? " at " : "", status->step);
}

int dsec_sandbox(struct dsec *d, const char *image, struct dsec_id *ret)
{
	struct dsec_create_opts opts = { .size = sizeof(opts), .image = image };
	struct dsec_id id = { 0, 0 };
	struct dsec_event *event;
	bool made = false, last = false;
	int64_t ticket;
	int r = 0;

	r = dsec__owned(d, "sandbox");
	if (r < 0)
		return r;
	if (!ret)
		return dsec__fail(-EINVAL, "sandbox: NULL");
	ticket = dsec_create(d, NULL, &opts);
	if (ticket < 0)
		return (int)ticket;
	while (!last) {
		int waited = dsec_wait(d, ticket, -1, &event);

		if (waited < 0)
			return waited;
		last = event->flags & DSEC_LAST;
		if (event->status.code != DSEC_OK) {
			r = status_fail(&event->status, "sandbox");
		} else if (event->kind == DSEC_EV_CREATED) {
			id = event->subject;
			made = true;
		}
		dsec_event_free(event);
	}
	if (!made)
		return r < 0 ? r : dsec__fail(-EIO, "sandbox: the engine made none");
	*ret = id;
	return 0;
}

static struct dsec_bytes *arguments_new(const char *const argv[], uint32_t *ret_count)
{
	struct dsec_bytes *arguments;
	uint32_t count = 0;

	while (argv[count])
		count++;
	arguments = calloc(count + 1, sizeof(*arguments));
	if (!arguments)
		return NULL;
	for (uint32_t at = 0; at < count; at++)
		arguments[at] = (struct dsec_bytes){ argv[at], strlen(argv[at]) };
	*ret_count = count;
	return arguments;
}

int dsec_run(struct dsec *d, struct dsec_id sandbox, const char *const argv[], uint32_t timeout_ms,
	     struct dsec_event **ret)
{
	struct dsec_exec_opts opts = {
		.size = sizeof(opts),
		.flags = DSEC_EXEC_CAPTURE,
		.timeout_ms = timeout_ms,
	};
	struct dsec_bytes *arguments;
	struct dsec_event *event;
	int64_t ticket;
	int r;

	r = dsec__owned(d, "run");
	if (r < 0)
		return r;
	if (!argv || !ret)
		return dsec__fail(-EINVAL, "run: NULL");
	arguments = arguments_new(argv, &opts.argc);
	if (!arguments)
		return dsec__fail(-ENOMEM, "run: no memory");
	opts.argv = arguments;
	ticket = dsec_exec(d, NULL, sandbox, &opts);
	free(arguments);
	if (ticket < 0)
		return (int)ticket;
	for (;;) {
		r = dsec_wait(d, ticket, -1, &event);
		if (r < 0)
			return r;
		if (event->flags & DSEC_LAST)
			break;
		dsec_event_free(event);
	}
	*ret = event;
	return 0;
}
