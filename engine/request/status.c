/*
 * What went wrong, from errno and back to the wire. Called by requests, their ops and records.
 */
#include "engine/request/status.h"

#include <errno.h>
#include <string.h>

struct status status_of_errno(int error, const char *table, const char *step)
{
	struct status s = { .code = DSEC_FAILED,
			    .blame = DSEC_BLAME_PLATFORM,
			    .error = -error,
			    .table = table,
			    .step = step };

	if (error >= 0)
		return STATUS_OK;
	if (error == -EAGAIN || error == -ENOSPC) {
		s.code = DSEC_REFUSED;
		s.retry_after_ms = 500;
	} else if (error == -ECANCELED) {
		s.code = DSEC_CANCELLED;
		s.blame = DSEC_BLAME_CALLER;
	}
	return s;
}

struct status status_unsupported(const char *table, const char *step, const char *detail)
{
	return (struct status){ .code = DSEC_UNSUPPORTED,
				.blame = DSEC_BLAME_CALLER,
				.table = table,
				.step = step,
				.detail = detail };
}

struct status status_absent(void)
{
	return (struct status){ .code = DSEC_ABSENT,
				.blame = DSEC_BLAME_CALLER,
				.table = "request",
				.step = "subject",
				.detail = "no such sandbox, or it is being destroyed" };
}

void status_merge(struct status *into, const struct status *other)
{
	if (into->code == DSEC_OK)
		*into = *other;
}

void status_write(const struct status *s, struct dsec_wire_status *ret)
{
	*ret = (struct dsec_wire_status){
		.code = s->code,
		.blame = s->blame,
		.error = s->error,
		.retry_after_ms = s->retry_after_ms,
	};
	if (s->step) {
		size_t used = 0;

		if (s->table) {
			(void)strncpy(ret->step, s->table, sizeof ret->step - 2);
			used = strlen(ret->step);
			ret->step[used++] = '.';
		}
		(void)strncpy(ret->step + used, s->step, sizeof ret->step - 1 - used);
	}
	if (s->detail)
		(void)strncpy(ret->detail, s->detail, sizeof ret->detail - 1);
}
