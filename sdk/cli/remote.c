/* Places in sandboxes. Called by the verbs about files. */
#include "sdk/cli/remote.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/select.h"
#include "sdk/cli/values.h"

/* The colon before the path: "name:NAME" has one of its own. */
static const char *colon_of(const char *text)
{
	return strchr(strncmp(text, "name:", 5) == 0 ? text + 5 : text, ':');
}

bool remote_is(const char *text)
{
	return *text != '/' && *text != '.' && *text != '-' && colon_of(text);
}

int remote_find(struct session *session, const char *text, struct remote *ret)
{
	const char *colon = remote_is(text) ? colon_of(text) : NULL;
	auto_free char *id = colon ? strndup(text, (size_t)(colon - text)) : NULL;

	if (!colon || !colon[1])
		return session_refuse(session, "'%s' is not ID:PATH", text);
	if (!id)
		return session_fail_error(session, -ENOMEM, "request", strerror(ENOMEM));
	ret->path = colon + 1;
	ret->text = text;
	return select_one(session, id, &ret->id) < 0 ? EXIT_TROUBLE : 0;
}

const char *remote_what(const struct remote *remote, const char *verb, char ret[REMOTE_WHAT_BYTES])
{
	(void)snprintf(ret, REMOTE_WHAT_BYTES, "%s %s", verb,
		       remote->text ? remote->text : remote->path); /* cut is fine */
	return ret;
}

struct dsec_file_opts remote_opts(const struct session *session, const struct remote *remote)
{
	return (struct dsec_file_opts){ .size = sizeof(struct dsec_file_opts),
					.path = { remote->path, strlen(remote->path) },
					.user = session->options->user };
}

int remote_stat(struct session *session, const struct remote *remote, struct dsec_file_row *ret)
{
	struct dsec_file_opts opts = remote_opts(session, remote);
	struct dsec_call call = session_call(session);
	struct dsec_event *event;
	bool last = false;
	int64_t ticket;
	int r = 0;

	opts.verb = DSEC_FILE_STAT;
	ticket = dsec_file(session->d, &call, remote->id, &opts);
	if (ticket < 0) {
		(void)session_fail_error(session, (int)ticket, "request",
					 dsec_error(session->d, ticket));
		return (int)ticket;
	}
	while (r == 0 && !last) {
		r = dsec_wait(session->d, ticket, -1, &event);
		if (r < 0) {
			(void)session_fail_error(session, r, "connection",
						 dsec_error(session->d, r));
			return r;
		}
		if (event->kind == DSEC_EV_ROW && event->body)
			*ret = *(const struct dsec_file_row *)event->body;
		last = event->flags & DSEC_LAST;
		if (last && event->status.code) {
			r = event->status.error == ENOENT ? -ENOENT : -EIO;
			if (r != -ENOENT || event->status.code != DSEC_FAILED) {
				(void)session_fail(session, remote->path, &event->status);
				r = -EIO;
			}
		}
		dsec_event_free(event);
	}
	ret->name = ret->target = (struct dsec_bytes){ 0 }; /* went with the event */
	return r;
}

void remote_refusal_note(const struct session *session, const struct dsec_file_row *row)
{
	static const char *const reasons[] = {
		[DSEC_FILE_REASON_OUTSIDE] = "left out, it leads out of the folder",
		[DSEC_FILE_REASON_LINK] = "left out, a link lies on its way",
		[DSEC_FILE_REASON_SPECIAL] = "left out, it is no file, folder or link",
		[DSEC_FILE_REASON_BITS] = "without setuid, setgid and sticky",
		[DSEC_FILE_REASON_SIZE] = "left out, it is too large",
		[DSEC_FILE_REASON_DEEP] = "left out, it lies too deep",
		[DSEC_FILE_REASON_FAILED] = "left out",
		[DSEC_FILE_REASON_ATTRIBUTES] = "without some of its attributes",
	};
	const uint32_t known = sizeof(reasons) / sizeof(reasons[0]);

	if (session->options->quiet || !row->reason)
		return;
	(void)fputs("dsec: ", stderr); /* or nobody sees it, as all of these */
	value_write(stderr, row->name);
	(void)fprintf(stderr, ": %s", row->reason < known ? reasons[row->reason] : "left out");
	if (row->error)
		(void)fprintf(stderr, ": %s", strerror((int)row->error));
	(void)fputc('\n', stderr);
}

struct dsec_bytes path_last(const char *path)
{
	size_t end = strlen(path), begin;

	while (end && path[end - 1] == '/')
		end--;
	for (begin = end; begin && path[begin - 1] != '/';)
		begin--;
	return (struct dsec_bytes){ path + begin, end - begin };
}
