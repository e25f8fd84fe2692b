/* Sessions. Called by claims about terminals. */
#include "tests/root/engine/engine_session.h"

#include <string.h>

#include "tests/root/engine/engine_client.h"

struct session session_of(struct engine *e, struct dsec_id id, const char *const *words)
{
	struct dsec_bytes argv[COMMAND_WORDS_MAX];
	struct dsec_exec_opts opts = {
		.size = sizeof opts,
		.flags = DSEC_EXEC_TTY | DSEC_EXEC_STREAM | DSEC_EXEC_INPUT_STREAM,
		.argv = argv,
		.rows = SESSION_ROWS,
		.columns = SESSION_COLUMNS,
	};
	struct session s = { .d = e->d, .id = id };
	int64_t ticket;

	for (; words[opts.argc]; opts.argc++)
		argv[opts.argc] = (struct dsec_bytes){ words[opts.argc], strlen(words[opts.argc]) };
	ticket = dsec_exec(e->d, NULL, id, &opts);
	if (!expect(ticket >= 0))
		note("%s", dsec_error(e->d, ticket));
	s.out = follower_of(e->d, ticket);
	return s;
}

struct session session_start(struct engine *e, struct dsec_id id, const char *script)
{
	const char *const words[] = { "/bin/sh", script ? "-c" : NULL, script, NULL };

	return session_of(e, id, words);
}

void session_done(struct session *s)
{
	follower_done(&s->out);
}

static const char *session_find(const struct session *s, uint64_t from, const char *text)
{
	const struct followed *out = &s->out.streams[0];

	return out->bytes ? memmem(out->bytes + from, out->next - from, text, strlen(text)) : NULL;
}

bool session_said(const struct session *s, const char *text)
{
	return session_find(s, 0, text);
}

static void session_note(const struct session *s)
{
	const struct dsec_result *result = s->out.result;
	struct dsec_status status = session_status(s);

	note("code %u at \"%s\", reason %u, exit %d, signal %d: %.*s", status.code, status.step,
	     result ? result->reason : 0, result ? result->exit_code : 0,
	     result ? result->signal : 0, (int)s->out.streams[0].next, s->out.streams[0].bytes);
}

bool session_sees(struct session *s, const char *text)
{
	const char *found;

	while (!(found = session_find(s, s->looked, text))) {
		if (follower_step(&s->out, SESSION_ANSWER_MS))
			continue;
		note("no \"%s\"", text);
		session_note(s);
		return false;
	}
	s->looked = (uint64_t)(found - s->out.streams[0].bytes) + strlen(text);
	return true;
}

bool session_type(struct session *s, const char *text)
{
	uint32_t code = follower_give(s->d, s->out.ticket, s->typed, text);

	s->typed += strlen(text);
	return code == DSEC_OK;
}

bool session_ends(struct session *s)
{
	bool ends = follower_to_end(&s->out, SESSION_ANSWER_MS) && !s->out.wrong_offset;

	if (!expect(ends))
		session_note(s);
	return ends;
}

bool session_exited(struct session *s, int code)
{
	const struct dsec_result *result;

	if (!session_ends(s))
		return false;
	result = s->out.result;
	if (result && result->reason == DSEC_EXIT && result->exit_code == code)
		return true;
	session_note(s);
	return false;
}

struct dsec_status session_status(const struct session *s)
{
	return s->out.last ? s->out.last->status : (struct dsec_status){ 0 };
}

/* The number is known from the start on. */
static uint64_t session_exec(struct session *s)
{
	while (!s->out.exec && follower_step(&s->out, SESSION_ANSWER_MS))
		;
	return s->out.exec;
}

struct dsec_status session_signal(struct session *s, int signal)
{
	return ticket_end(s->d, dsec_signal(s->d, NULL, s->id, session_exec(s), signal));
}

struct dsec_status session_resize(struct session *s, uint32_t rows, uint32_t columns)
{
	return ticket_end(s->d,
			  dsec_resize(s->d, NULL, s->id, session_exec(s), rows << 16 | columns));
}
