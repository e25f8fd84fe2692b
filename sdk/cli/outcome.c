/*
 * Running a program and telling how it ended. Called by run.c, exec.c and attach.c. On stdout goes
 * what the program wrote, byte for byte, or one JSON object; everything that dsec itself says goes
 * to stderr.
 */
#include "sdk/cli/outcome.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/live.h"
#include "sdk/cli/settings.h"
#include "sdk/cli/terminal.h"
#include "sdk/cli/ulimit.h"
#include "sdk/cli/values.h"

enum { OUTPUT_BYTES_DEFAULT = 1 << 20, KILLED_TEXT_BYTES = VALUE_TEXT_BYTES + 24 };

struct outcome {
	struct live live;		   /* first */
	const struct dsec_exec_opts *opts; /* exec */
	uint64_t exec;			   /* attach */
	bool streams;			   /* its output was shown as it came */
	bool so_far;
	int status; /* dsec's */
};

static struct outcome *container_of_live(struct live *live)
{
	return (struct outcome *)live;
}

/* ---- what is asked ---- */

/* `first` comes before them; NULL: nothing does. */
static struct dsec_bytes *bytes_list(const char *first, const char *const *texts, uint32_t count)
{
	struct dsec_bytes *list = calloc(count + 2, sizeof(*list));
	uint32_t at = 0;

	if (list && first)
		list[at++] = (struct dsec_bytes){ first, strlen(first) };
	for (uint32_t text = 0; list && text < count; text++)
		list[at++] = (struct dsec_bytes){ texts[text], strlen(texts[text]) };
	return list;
}

/* What an exec is asked with, and what its options point to. */
struct wish {
	struct dsec_exec_opts opts;
	struct dsec_bytes *argv, *env;
	struct dsec_rlimit *rlimits;
	char *term; /* TERM=... of the user's terminal */
};

static void wish_done(struct wish *wish)
{
	free(wish->argv);
	free(wish->env);
	free(wish->rlimits);
	free(wish->term);
}

static bool env_has(const struct texts *env, const char *name)
{
	for (uint32_t at = 0; at < env->count; at++)
		if (!strncmp(env->items[at], name, strlen(name)))
			return true;
	return false;
}

/* Programs on a terminal ask TERM what it can do: as much as the user's. */
static int wish_env(struct wish *wish, const struct options *o)
{
	const char *term = getenv("TERM");
	uint32_t count = o->env.count;

	wish->env = bytes_list(NULL, o->env.items, count); /* and room for one more */
	if (!wish->env)
		return -ENOMEM;
	if (o->tty && term && *term && !env_has(&o->env, "TERM=")) {
		if (asprintf(&wish->term, "TERM=%s", term) < 0)
			return -ENOMEM;
		wish->env[count++] = (struct dsec_bytes){ wish->term, strlen(wish->term) };
	}
	wish->opts.env = wish->env;
	wish->opts.env_count = count;
	return 0;
}

static int wish_limits(struct session *session, struct wish *wish)
{
	const struct texts *texts = &session->options->ulimits;

	wish->rlimits = calloc(texts->count + 1, sizeof(*wish->rlimits));
	if (!wish->rlimits)
		return -ENOMEM;
	for (uint32_t at = 0; at < texts->count; at++) {
		if (ulimit_parse(texts->items[at], &wish->rlimits[at]) == 0)
			continue;
		(void)session_refuse(session, "--ulimit: '%s' is not NAME=SOFT[:HARD]",
				     texts->items[at]);
		return -EINVAL;
	}
	wish->opts.rlimits = wish->rlimits;
	wish->opts.rlimit_count = texts->count;
	return 0;
}

/* 0, or -errno after a line on stderr. Undone by wish_done() in any case. */
static int wish_make(struct session *session, struct wish *wish)
{
	const struct options *o = session->options;
	uint64_t kept = o->output_bytes ? o->output_bytes : OUTPUT_BYTES_DEFAULT;
	int r;

	*wish = (struct wish){ .opts = {
				       .size = sizeof(wish->opts),
				       .flags = session->image_command ? DSEC_EXEC_IMAGE_COMMAND :
									 0,
				       .argc = (uint32_t)o->command_count + (o->entrypoint ? 1 : 0),
				       .cwd = o->cwd,
				       .user = o->user,
				       .timeout_ms = (uint32_t)o->timeout_ms,
				       .idle_timeout_ms = (uint32_t)o->idle_timeout_ms,
				       .kill_after_ms = (uint32_t)o->kill_after_ms,
				       .output_limit_bytes = o->output_limit_bytes,
				       .phase = o->in_phase,
				       .head_bytes = kept - kept / 2,
				       .tail_bytes = kept / 2 ? kept / 2 : 1,
			       } };
	wish->argv = bytes_list(o->entrypoint, (const char *const *)o->command,
				(uint32_t)o->command_count);
	wish->opts.argv = wish->argv;
	r = wish->argv ? wish_env(wish, o) : -ENOMEM;
	if (r < 0) {
		(void)session_fail_error(session, r, "exec", "no memory");
		return r;
	}
	return wish_limits(session, wish);
}

static uint32_t exec_flags(const struct outcome *outcome)
{
	const struct options *o = outcome->live.session->options;
	uint32_t flags = o->input ? DSEC_EXEC_INPUT_STREAM : 0;

	if (o->detach)
		return flags | DSEC_EXEC_DETACH;
	if (outcome->streams)
		flags |= DSEC_EXEC_STREAM;
	/* A result in JSON has the output, too. */
	return !outcome->streams || o->status_file ? flags | DSEC_EXEC_CAPTURE : flags;
}

static int64_t exec_ask(struct live *live, const struct dsec_call *call)
{
	return dsec_exec(live->session->d, call, live->sandbox, container_of_live(live)->opts);
}

static int64_t attach_ask(struct live *live, const struct dsec_call *call)
{
	const struct outcome *outcome = container_of_live(live);
	const struct options *o = live->session->options;
	const struct dsec_at at[] = { { .stream = 1, .offset = o->from },
				      { .stream = 2, .offset = o->from_stderr } };
	struct dsec_attach_opts opts = {
		.size = sizeof(opts),
		.flags = outcome->so_far ? DSEC_ATTACH_SO_FAR : 0,
		.exec = outcome->exec,
		.at = at,
		.at_count = 2,
	};

	return dsec_attach(live->session->d, call, live->sandbox, &opts);
}

/* ---- what is told ---- */

static json_t *output_json(const struct dsec_output *output)
{
	json_t *object = json_object();

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_add_bytes(object, "text", output->head);
	if (output->tail.bytes)
		(void)json_add_bytes(object, "tail", output->tail);
	(void)json_object_set_new(object, "bytes_total", json_amount(output->total_bytes));
	(void)json_object_set_new(object, "truncated", json_boolean(output->truncated));
	return object;
}

static json_t *result_json(struct dsec_id sandbox, const struct dsec_event *event)
{
	const struct dsec_result *result = event->body;
	json_t *object = json_status(&event->status);

	(void)json_object_set_new(object, "sandbox", json_id(sandbox));
	if (!result)
		return object;
	(void)json_object_set_new(object, "exec", json_amount(result->exec));
	(void)json_object_set_new(object, "reason", json_string(reason_name(result->reason)));
	(void)json_object_set_new(object, "code",
				  result->reason == DSEC_EXIT ||
						  result->reason == DSEC_NOT_STARTED ?
					  json_integer(result->exit_code) :
					  json_null());
	(void)json_object_set_new(object, "signal",
				  result->signal ? json_integer(result->signal) : json_null());
	(void)json_object_set_new(object, "wall_ms", json_real((double)result->wall_us / 1000));
	(void)json_object_set_new(object, "cpu_ms",
				  result->cpu_us > INT64_MAX ?
					  json_null() :
					  json_real((double)result->cpu_us / 1000));
	(void)json_object_set_new(object, "processes_killed",
				  result->processes_killed == UINT32_MAX ?
					  json_null() :
					  json_integer(result->processes_killed));
	integrity_add(object, result->tainted);
	(void)json_object_set_new(object, "phase_version", json_amount(result->phase));
	if (result->flags & DSEC_RESULT_UNPOLICED)
		(void)json_object_set_new(object, "network", json_string("egress-unpoliced"));
	(void)json_object_set_new(object, "memory_peak_bytes",
				  json_amount(result->memory_peak_bytes));
	if (result->reason == DSEC_OOM)
		(void)json_object_set_new(object, "memory_limit_bytes",
					  json_amount(result->memory_limit_bytes));
	for (uint32_t at = 0; at < result->output_count; at++) {
		const struct dsec_output *output = &result->outputs[at];
		const char *name = output->stream == 1 ? "stdout" : "stderr";

		(void)json_object_set_new(object, name, output_json(output));
	}
	return object;
}

/* Whether it got out is told at the end, by main(). */
static void bytes_write(FILE *file, struct dsec_bytes bytes)
{
	if (bytes.bytes)
		(void)fwrite(bytes.data, 1, bytes.bytes, file);
	(void)fflush(file);
}

/* Head and tail; what lies between is told on stderr, where it cannot be taken for output. */
static void output_show(const struct options *options, const struct dsec_output *output, FILE *file)
{
	uint64_t kept = output->head.bytes + output->tail.bytes;
	char gone[VALUE_TEXT_BYTES];

	bytes_write(file, output->head);
	if (output->truncated) {
		value_print_count(output->total_bytes > kept ? output->total_bytes - kept : 0,
				  gone);
		report_note(options, "%s: %s bytes are not kept here; %s",
			    output->stream == 1 ? "stdout" : "stderr", gone,
			    options->output_bytes < OUTPUT_BYTES_MAX ? "--output-max keeps more" :
								       "no more can be");
	}
	bytes_write(file, output->tail);
}

static void oom_tell(const struct options *options, const struct dsec_result *result,
		     const char *kept)
{
	char limit[VALUE_TEXT_BYTES], peak[VALUE_TEXT_BYTES];

	value_print_bytes(result->memory_limit_bytes, limit);
	value_print_bytes(result->memory_peak_bytes, peak);
	report_note(options, "oom: killed at the memory limit of %s, peak %s, %s bytes of output",
		    limit, peak, kept);
}

/* "60.0 s" */
static void seconds_print(uint64_t ms, char ret_text[VALUE_TEXT_BYTES])
{
	(void)snprintf(ret_text, VALUE_TEXT_BYTES, "%" PRIu64 ".%" PRIu64 " s", ms / 1000,
		       ms / 100 % 10); /* fits */
}

/* "3 processes killed"; "killed": nobody counted. */
static void killed_print(const struct dsec_result *result, char ret_text[KILLED_TEXT_BYTES])
{
	char count[VALUE_TEXT_BYTES];

	value_print_count(result->processes_killed, count);
	if (result->processes_killed == UINT32_MAX)
		(void)snprintf(ret_text, KILLED_TEXT_BYTES, "killed"); /* fits, as below */
	else
		(void)snprintf(ret_text, KILLED_TEXT_BYTES, "%s process%s killed", count,
			       result->processes_killed == 1 ? "" : "es");
}

static void timeout_tell(const struct options *options, const struct dsec_result *result,
			 const char *bytes)
{
	bool idle = result->reason == DSEC_IDLE_TIMEOUT;
	char time[VALUE_TEXT_BYTES], killed[KILLED_TEXT_BYTES];

	killed_print(result, killed);
	seconds_print(idle ? options->idle_timeout_ms : result->wall_us / 1000, time);
	report_note(options, "%s %s: %s, %s bytes of output (exec %" PRIu64 ")",
		    idle ? "idle timeout: no output for" : "timeout after", time, killed, bytes,
		    result->exec);
}

static void end_tell(struct session *session, const struct dsec_event *event)
{
	const struct dsec_result *result = event->body;
	const struct options *options = session->options;
	char bytes[VALUE_TEXT_BYTES], killed[KILLED_TEXT_BYTES];
	uint64_t count = 0;

	for (uint32_t at = 0; at < result->output_count; at++)
		count += result->outputs[at].total_bytes;
	value_print_count(count, bytes);
	killed_print(result, killed);
	if (result->reason == DSEC_TIMEOUT || result->reason == DSEC_IDLE_TIMEOUT)
		timeout_tell(options, result, bytes);
	else if (result->reason == DSEC_OOM)
		oom_tell(options, result, bytes);
	else if (result->reason == DSEC_OUTPUT_LIMIT)
		report_note(options, "output limit: %s, %s bytes of output (exec %" PRIu64 ")",
			    killed, bytes, result->exec);
	else if (result->reason == DSEC_KILLED)
		report_note(options, "killed: the sandbox was destroyed, or somebody killed it");
	else if (result->reason == DSEC_PHASE_OVER)
		report_note(options, "%s: its phase is over (exec %" PRIu64 ")", killed,
			    result->exec);
	else if (result->reason == DSEC_FORK_BOMB)
		report_note(options,
			    "fork bomb: %s: at its limit of processes it did little but fail to"
			    " fork (exec %" PRIu64 ")",
			    killed, result->exec);
	else if (result->reason == DSEC_END_UNKNOWN)
		report_note(options, "nobody saw how the program ended");
	else if (result->reason == DSEC_NOT_STARTED)
		(void)session_fail(session, "starting the program", &event->status);
	if (event->status.code && result->reason != DSEC_NOT_STARTED)
		(void)session_fail(session, "ending the program", &event->status);
}

/* As a shell would say it. */
static int exit_status(const struct dsec_event *event)
{
	const struct dsec_result *result = event->body;

	if (!result)
		return event->status.code == DSEC_DEADLINE ? EXIT_TIMED_OUT : EXIT_TROUBLE;
	switch (result->reason) {
	case DSEC_EXIT:
		return result->exit_code & 0xff;
	case DSEC_SIGNAL:
		return 128 + (result->signal & 0x7f);
	case DSEC_OOM:
	case DSEC_KILLED:
	case DSEC_OUTPUT_LIMIT:
	case DSEC_PHASE_OVER:
	case DSEC_FORK_BOMB:
		return 128 + 9;
	case DSEC_TIMEOUT:
	case DSEC_IDLE_TIMEOUT:
		return EXIT_TIMED_OUT;
	case DSEC_NOT_STARTED:
		return result->exit_code == 126 ? 126 : 127;
	default:
		return EXIT_TROUBLE;
	}
}

/* It runs on, and its number is all there is to tell. */
static void running_tell(const struct outcome *outcome, const struct dsec_result *result)
{
	if (!outcome->live.session->options->json && !outcome->so_far)
		(void)printf("%" PRIu64 "\n", result->exec);
}

static void outcome_show(struct outcome *outcome, const struct dsec_event *event)
{
	struct session *session = outcome->live.session;
	const struct options *options = session->options;
	const struct dsec_result *result = event->body;
	auto_json json_t *json = result_json(outcome->live.sandbox, event);

	outcome->status = exit_status(event);
	session_tell(session, json);
	if (!result) {
		(void)session_fail(session,
				   outcome->so_far ? "logs" :
				   outcome->exec   ? "attach" :
						     "exec",
				   &event->status);
		return;
	}
	if (result->reason == DSEC_RUNNING || outcome->so_far) {
		outcome->status = 0;
		if (result->reason == DSEC_RUNNING)
			running_tell(outcome, result);
		return;
	}
	for (uint32_t at = 0; at < result->output_count && !options->json && !outcome->streams;
	     at++)
		output_show(options, &result->outputs[at],
			    result->outputs[at].stream == 1 ? stdout : stderr);
	if (!options->json || result->reason == DSEC_NOT_STARTED)
		end_tell(session, event);
}

/* ---- following it ---- */

static void outcome_last(struct live *live, const struct dsec_event *event)
{
	outcome_show(container_of_live(live), event);
}

static struct outcome outcome_of(struct session *session, struct dsec_id sandbox)
{
	const struct options *options = session->options;

	return (struct outcome){
		.live = { .session = session,
			  .sandbox = sandbox,
			  .input = options->input,
			  .last = outcome_last },
		.streams = !options->json && !options->no_stream && !options->output_bytes,
		.status = EXIT_TROUBLE,
	};
}

static void run_followed(struct outcome *outcome, struct wish *wish)
{
	wish->opts.flags |= exec_flags(outcome);
	outcome->opts = &wish->opts;
	outcome->live.ask = exec_ask;
	outcome->live.shows = outcome->streams;
	outcome->live.passes = !outcome->live.session->options->detach;
	/* What failed is remembered, and the status is trouble until there is a result. */
	(void)live_follow(&outcome->live);
	if (outcome->live.interrupted)
		outcome->status = 128 + outcome->live.interrupted;
}

static void last_show(void *state, const struct dsec_event *event)
{
	if (event->flags & DSEC_LAST)
		outcome_show(state, event);
}

static void run_on_terminal(struct outcome *outcome, struct wish *wish)
{
	struct session *session = outcome->live.session;
	struct terminal_wish terminal = {
		.sandbox = outcome->live.sandbox,
		.opts = &wish->opts,
		.input = session->options->input,
		.last = last_show,
		.state = outcome,
	};
	int r;

	outcome->streams = true;
	r = terminal_run(session, &terminal);
	if (r > 0)
		outcome->status = r;
}

int outcome_run(struct session *session, struct dsec_id sandbox)
{
	struct outcome outcome = outcome_of(session, sandbox);
	struct wish wish;

	if (session->options->tty && session->options->json)
		return session_refuse(session, "--tty and --json exclude each other");
	if (session->options->tty && session->options->detach)
		return session_refuse(session, "--tty and --detach exclude each other");
	if (wish_make(session, &wish) == 0) {
		if (session->options->tty)
			run_on_terminal(&outcome, &wish);
		else
			run_followed(&outcome, &wish);
	}
	wish_done(&wish);
	return outcome.status;
}

int outcome_attach(struct session *session, struct dsec_id sandbox, uint64_t exec, bool so_far)
{
	struct outcome outcome = outcome_of(session, sandbox);

	outcome.live.ask = attach_ask;
	outcome.live.shows = !session->options->json;
	outcome.live.input = false;
	outcome.streams = true;
	outcome.exec = exec;
	outcome.so_far = so_far;
	(void)live_follow(&outcome.live); /* as above */
	return outcome.status;
}
